"""When the first failures of a sweep stop it."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.first_failures import ENOUGH, FirstFailures
from tests.tasks.plan_support import make_result, make_trial

SAID = "DataError: train.parquet: column 'image' holds int64"


def failed(trial: Trial, outcome: Outcome = Outcome.CRASHED, reason: str = SAID) -> TrialResult:
    return make_result(trial, outcome).model_copy(update={"reason": reason})


def noted(watch: FirstFailures, *results: tuple[Trial, TrialResult]) -> list[str | None]:
    return [watch.note(trial, result) for trial, result in results]


def cells(count: int, pool: str = "cpu") -> list[Trial]:
    return [make_trial(number, pool=pool) for number in range(1, count + 1)]


def test_three_cells_that_fail_alike_stop_it_once_and_the_message_says_what_to_do() -> None:
    watch = FirstFailures({"cpu"})
    said = noted(watch, *((trial, failed(trial)) for trial in cells(ENOUGH + 1)))
    assert said[: ENOUGH - 1] == [None] * (ENOUGH - 1) and said[ENOUGH] is None
    assert said[ENOUGH - 1] == watch.why
    assert watch.why == f"stopped: the first 3 trials, of 3 cells, all ended as crashed ({SAID}); mend that and resume the sweep"


def test_repeats_of_one_cell_are_one_cell() -> None:
    watch = FirstFailures({"cpu"})
    trials = [make_trial(1, repeat=repeat) for repeat in range(1, 9)]
    assert noted(watch, *((trial, failed(trial)) for trial in trials)) == [None] * 8


def test_of_one_or_two_cells_all_must_fail_and_their_repeats_count() -> None:
    one, other = cells(2)
    again = make_trial(1, repeat=2)
    watch = FirstFailures({"cpu"}, 2)
    said = noted(watch, (one, failed(one)), (other, failed(other)), (again, failed(again)))
    assert said[:2] == [None, None]
    assert said[2] == f"stopped: the first 3 trials, of 2 cells, all ended as crashed ({SAID}); mend that and resume the sweep"
    repeats = [make_trial(1, repeat=repeat) for repeat in range(1, 4)]
    assert noted(FirstFailures({"cpu"}, 2), *((trial, failed(trial)) for trial in repeats)) == [None] * 3, "the other may do better"
    alone = noted(FirstFailures({"cpu"}, 1), *((trial, failed(trial)) for trial in repeats))
    assert alone[:2] == [None, None] and alone[2] is not None and "3 trials, of 1 cell, all" in alone[2]


def test_what_differs_in_numbers_and_keys_alone_is_the_same() -> None:
    watch = FirstFailures({"cpu"})
    reasons = ["step 3 of 0123456789abcdef", "step 17 of fedcba9876543210", "step 4 of 00000000ffffffff"]
    said = noted(watch, *((trial, failed(trial, reason=reason)) for trial, reason in zip(cells(3), reasons, strict=True)))
    assert said[-1] is not None


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.OK, None),
        (Outcome.UNSUPPORTED, "fp8"),
        (Outcome.DOES_NOT_FIT, "CUDA out of memory"),
        (Outcome.INFRA, "worker lost: exit status 137"),
        (Outcome.CRASHED, "ValueError: another"),
    ],
)
def test_one_trial_that_ended_otherwise_lets_the_sweep_go_on_for_good(outcome: Outcome, reason: str | None) -> None:
    watch = FirstFailures({"cpu"})
    one, other, *rest = cells(9)
    ends = [(one, failed(one)), (other, make_result(other, outcome).model_copy(update={"reason": reason}))]
    assert noted(watch, *ends, *((trial, failed(trial)) for trial in rest)) == [None] * 9


@pytest.mark.parametrize("full", ["disk_full: no space left", "disk_lost: Read-only file system", "data_lost: Input/output error"])
def test_a_disk_counts_and_a_cancelled_trial_says_nothing(full: str) -> None:
    watch = FirstFailures({"cpu"})
    one, two, three, four = cells(4)
    ends = [(one, failed(one, Outcome.INFRA, full)), (two, failed(two, Outcome.CANCELLED, "stopped"))]
    assert noted(watch, *ends, (three, failed(three, Outcome.INFRA, full))) == [None] * 3
    assert watch.note(four, failed(four, Outcome.INFRA, full)) is not None


def test_one_pool_that_fails_says_nothing_of_another() -> None:
    watch = FirstFailures({"cpu", "cuda"})
    assert noted(watch, *((trial, failed(trial)) for trial in cells(5))) == [None] * 5
    there = make_trial(1, pool="cuda")
    assert watch.note(there, failed(there)) is not None
