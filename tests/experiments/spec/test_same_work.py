"""What of a suite changes the work: named where it is unknown, and refused in a baseline."""

from __future__ import annotations

import pytest

from tests.experiments.spec.suite_helpers import SUITE, WORKLOAD, Workshop, workshop

__all__ = ["workshop"]


def test_same_work_is_the_workloads_and_the_suites(workshop: Workshop) -> None:
    assert workshop.load(SUITE).same_work == ["model"]
    assert workshop.load(SUITE + "same_work: [precision]\n").same_work == ["model", "precision"]
    by_condition = "conditions: [{when: {precision: bf16}, set: {shards: 2}}]\nsame_work: [shards]\n"
    assert workshop.load(SUITE + by_condition).same_work == ["model", "shards"]


@pytest.mark.parametrize(
    ("names", "key", "problem", "hint"),
    [
        ("[precison]", "same_work[0]", "'precison' is not an axis, and no condition sets it", "did you mean 'precision'?"),
        ("[precision, shards]", "same_work[1]", "'shards' is not an axis", "known: precision, dataloader_workers"),
        ("[pool]", "same_work[0]", "'pool' says where a cell runs", "cells of several pools do the same work"),
        ("[precision, precision]", "same_work[1]", "'precision' is named twice", "name each axis once"),
    ],
)
def test_a_wrong_name_in_same_work_is_refused(workshop: Workshop, names: str, key: str, problem: str, hint: str) -> None:
    error = workshop.refused(SUITE + f"same_work: {names}\n")
    assert (error.key, error.line) == (key, SUITE.count("\n") + 1)
    assert problem in error.problem and hint in error.hint


def test_a_profile_inherits_a_name_of_which_it_has_one_value(workshop: Workshop) -> None:
    text = SUITE + "same_work: [precision]\nprofiles:\n  one:\n    axes: {pool: [cpu], dataloader_workers: [0, 1]}\n"
    assert workshop.load(text, profile="one").same_work == ["model", "precision"]
    assert workshop.refused(text + "    same_work: [precision]\n").key == "profiles.one.same_work[0]"


@pytest.mark.parametrize(
    ("name", "value", "other", "who"), [("model", "tiny", "large", "the workload toy"), ("shards", "1", "2", "the suite's same_work")]
)
def test_a_baseline_that_names_what_changes_the_work_is_refused(workshop: Workshop, name: str, value: str, other: str, who: str) -> None:
    axis = f"{name}: [{value}, {other}]"
    own = "same_work: [shards]\n" if name == "shards" else ""
    text = SUITE.replace("axes:\n", f"axes:\n  {axis}\n").replace("baseline: {", f"baseline: {{{name}: {value}, ") + own
    error = workshop.refused(text)
    assert error.key == f"baseline.{name}" and error.problem.startswith(f"changes the work, says {who}: ")
    assert error.hint.startswith(f"leave {name} out: each cell is then compared at its own {name}; ")
    assert workshop.load(text.replace(f"{axis}\n", f"{name}: [{value}]\n")).baseline[name], "of one value nothing is left out"


def test_a_baseline_of_one_batch_is_refused_for_what_is_timed_by_batch(workshop: Workshop) -> None:
    text = SUITE.replace("  dataloader_workers: [0, 1]\n", "  batch_size: [1, 8]\n").replace("dataloader_workers: 0", "batch_size: 1")
    assert workshop.load(text).baseline == {"batch_size": 1}
    error = workshop.refused(text + "report: {rows: [pool, precision], columns: batch_size, metric: latency_p50_s}\n")
    assert (error.key, error.problem) == (
        "baseline.batch_size",
        "changes what latency_p50_s measures: other batch sizes cannot be compared with it",
    )


def test_a_workload_that_names_no_parameter_in_same_work_is_refused(workshop: Workshop) -> None:
    (workshop.root / "workloads" / "toy.py").write_text(WORKLOAD.replace('("model",)', '("modle",)'))
    error = workshop.refused(SUITE)
    assert (error.key, error.problem) == ("same_work", "'modle' is not a parameter") and "did you mean 'model'?" in error.hint
