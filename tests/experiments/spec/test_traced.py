"""Trials on GPUs are traced, each cell once, unless a suite decides otherwise: what a report there says of the peak needs it."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments.spec.load import list_suites, load_suite, profile_names
from experiments.spec.matrix import expand
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
        ({"conditions": [{"when": {"device": "cuda"}, "set": {"profile_steps": 1}}]}, (1, None)),
    ],
)
def test_a_suite_or_option_that_names_the_traced_steps_decides(how: dict[str, Any], expected: tuple[int, int | None]) -> None:
    plain = load_suite("bert", profile="cuda", pools=load_pools())
    told = plain.model_dump()
    for name, value in how.items():
        told[name] = [*told[name], *value] if isinstance(value, list) else {**told[name], **value}
    assert {found[2:] for found in traces(Suite.model_validate(told))} == {expected}


@pytest.mark.parametrize("name", [found.name for found in list_suites()])
def test_every_profile_for_gpus_says_where_the_peak_goes(name: str) -> None:
    for profile in profile_names(name):
        suite = load_suite(name, profile=profile, pools=load_pools())
        cells = [cell for cell in with_traces(expand(suite), suite) if cell.device == "cuda" and not cell.reference]
        traced = [cell for cell in cells if cell.parameters["profile_steps"]]
        assert not traced if (name, profile) in _UNTRACED else bool(traced) == bool(cells), profile
