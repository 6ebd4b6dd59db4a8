"""Trials on GPUs are traced, each cell once, unless a suite decides otherwise: what a report there says of the peak needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments.spec.load import list_suites, load_suite, profile_names
from experiments.spec.matrix import PlannedCell, expand
from experiments.spec.schema import Suite
from experiments.spec.traced import with_traces

# of what is launched kernel by kernel for many seconds, or only fits or not
_UNTRACED = {
    ("stable_diffusion", "full"),
    ("stable_diffusion", "cuda"),
    *(("flava", name) for name in ("fit", "x2_fit", "x4_fit", "x8_fit")),
}


def traces(suite: Suite) -> set[tuple[str, bool, Any, Any]]:
    """Device, whether it is a reference, and what is traced of each cell."""
    cells = with_traces(expand(suite), suite)
    return {(cell.device, cell.reference, cell.parameters["profile_steps"], cell.parameters["profile_repeats"]) for cell in cells}


def test_on_gpus_the_first_trial_of_each_cell_is_traced_and_elsewhere_none() -> None:
    suite = load_suite("bert", profile="cuda", pools=load_pools())
    assert traces(suite) == {("cuda", False, 4, 1)}
    assert traces(load_suite("bert", profile="smoke", pools=load_pools())) == {("cpu", False, 0, None)}
    both = load_suite("bert", profile="full", pools=load_pools())
    assert {device for device, *_ in traces(both)} == {"cuda", "hpu"} and ("hpu", False, 0, None) in traces(both)


def test_references_of_loss_parity_are_not_traced() -> None:
    suite = load_suite("bert", profile="cuda", pools=load_pools()).model_copy(update={"parity_reference": 3})
    assert traces(suite) == {("cuda", False, 4, 1), ("cuda", True, 0, None)}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"sets": {"profile_steps": 0}}, (0, None)),
        ({"sets": {"profile_steps": 2}}, (2, None)),
        ({"fixed": {"profile_steps": 3, "profile_repeats": 2}}, (3, 2)),
        ({"sets": {"profile_repeats": 2}}, (4, 2)),
        ({"conditions": [{"when": {"device": "cuda"}, "set": {"profile_steps": 1}}]}, (1, None)),
    ],
)
def test_a_suite_or_option_that_names_the_traced_steps_decides(how: dict[str, Any], expected: tuple[int, int | None]) -> None:
    plain = load_suite("bert", profile="cuda", pools=load_pools())
    told = plain.model_dump()
    for name, value in how.items():
        told[name] = [*told[name], *value] if isinstance(value, list) else {**told[name], **value}
    assert {found[2:] for found in traces(Suite.model_validate(told))} == {expected}


@pytest.mark.parametrize(
    ("suite", "profile"), [("llm_inference", "cuda"), ("t5_inference", "cuda"), ("stable_diffusion", "fast"), ("bert", "cuda")]
)
def test_none_are_traced_where_the_command_says_so(suite: str, profile: str) -> None:
    plain = load_suite(suite, profile=profile, pools=load_pools(), sets={"profile_steps": 0})
    assert {steps for _, _, steps, _ in traces(plain)} == {0}


def test_cells_of_another_commit_are_not_traced_since_it_may_not_know_how() -> None:
    suite = load_suite("bert", profile="cuda", pools=load_pools())
    older = [replace(cell, commit="HEAD~2") for cell in expand(suite)]
    assert {cell.parameters["profile_steps"] for cell in with_traces(older, suite)} == {0}


def test_at_the_limit_of_memory_one_device_is_traced_and_several_are_not() -> None:
    suite = load_suite("bert", profile="cuda", pools=load_pools())
    cells = [replace(cell, parameters={**cell.parameters, "batch_size": "max", "devices": n}) for cell in expand(suite)[:1] for n in (1, 2)]
    assert [cell.parameters["profile_steps"] for cell in with_traces(cells, suite)] == [4, 0]


@pytest.mark.parametrize("name", [found.name for found in list_suites()])
def test_every_profile_for_gpus_says_where_the_peak_goes(name: str) -> None:
    for profile in profile_names(name):
        suite = load_suite(name, profile=profile, pools=load_pools())
        cells = [cell for cell in with_traces(expand(suite), suite) if cell.device == "cuda" and not cell.reference]
        untraced = [cell for cell in cells if not cell.parameters["profile_steps"]]
        if (name, profile) in _UNTRACED:
            assert untraced == cells
        else:
            assert all(_at_the_limit(cell) or _launch_by_launch(cell, suite) for cell in untraced), profile


def _at_the_limit(cell: PlannedCell) -> bool:
    return cell.parameters["batch_size"] == "max" and cell.parameters["devices"] > 1


def _launch_by_launch(cell: PlannedCell, suite: Suite) -> bool:
    return suite.suite == "stable_diffusion" and cell.parameters["compile"] == "none"
