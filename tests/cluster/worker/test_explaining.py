"""Which of several terminations explains a trial: one order, for exceptions of one process and for ranks that ended differently."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from cluster.worker.outcome import Cancelled, Diverged, Termination, classify, explaining
from cluster.worker.ranks import _explain, write_rank_failure
from experiments.trial import Outcome, TrialResult

ORDER = ["cancelled", "does_not_fit", "unsupported", "diverged", "hang", "infra", "crashed", "ok"]


def result(folder: Path, outcome: Outcome, reason: str | None, attempt: int = 1) -> None:
    one = TrialResult(key="0" * 16, attempt=attempt, outcome=outcome, reason=reason, started_at=1.0, finished_at=2.0)
    (folder / "result.json").write_text(one.model_dump_json())


def test_every_outcome_has_its_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(Outcome)


@pytest.mark.parametrize(("more", "less"), list(pairwise(ORDER)))
def test_the_order_wherever_the_terminations_stand(more: str, less: str) -> None:
    explains, explained = Termination(Outcome(more), "more"), Termination(Outcome(less), "less")
    assert explaining([explains, explained]) is explaining([explained, explains]) is explains


def test_a_preemption_explains_other_failures_of_infrastructure_and_the_first_wins_among_equals() -> None:
    lost, disk, preempted = (Termination(Outcome.INFRA, f"{kind}: x") for kind in ("worker_lost", "disk_full", "preempted"))
    assert explaining([lost, disk, preempted]) is preempted
    assert explaining([disk, lost]) is disk


def test_a_process_that_was_told_to_end_was_cancelled_whatever_it_raised() -> None:
    error = Diverged(3, float("nan"))
    error.__cause__ = Cancelled("told to end")
    assert classify(error).outcome is Outcome.CANCELLED


def test_a_rank_that_its_supervisor_told_to_end_explains_nothing(tmp_path: Path) -> None:
    result(tmp_path, Outcome.CANCELLED, "told to end (SIGTERM)")
    write_rank_failure(tmp_path, 1, 1, Termination(Outcome.CRASHED, "ValueError: a bug"))
    assert _explain(tmp_path, 1, {1: 1}) == Termination(Outcome.CRASHED, "rank 1: ValueError: a bug")


def test_a_rank_that_lost_its_connection_to_another_explains_nothing_that_the_other_says(tmp_path: Path) -> None:
    gone = classify(RuntimeError("[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4"))
    write_rank_failure(tmp_path, 1, 1, gone)
    assert _explain(tmp_path, 1, {1: 1}) == Termination(Outcome.INFRA, f"rank 1: {gone.reason}")
    assert _explain(tmp_path, 1, {0: -9, 1: 1}) == Termination(Outcome.INFRA, "worker_lost: rank 0 was killed by SIGKILL")
    write_rank_failure(tmp_path, 1, 2, Termination(Outcome.CRASHED, "ValueError: a bug"))
    assert _explain(tmp_path, 1, {1: 1}) == Termination(Outcome.CRASHED, "rank 2: ValueError: a bug")
    result(tmp_path, Outcome.OK, None)
    (tmp_path / "ranks" / "rank-2.json").unlink()
    assert _explain(tmp_path, 1, {1: 1}).reason == f"rank 1: {gone.reason}", "a rank that ended ok explains no failure"


def test_ranks_that_were_all_told_to_end_were_cancelled(tmp_path: Path) -> None:
    result(tmp_path, Outcome.CANCELLED, "told to end (SIGTERM)")
    write_rank_failure(tmp_path, 1, 1, Termination(Outcome.CANCELLED, "told to end (SIGTERM)"))
    assert _explain(tmp_path, 1, {1: 1}).outcome is Outcome.CANCELLED


def test_a_rank_out_of_memory_explains_the_one_that_was_killed_and_the_result_that_was_ok(tmp_path: Path) -> None:
    result(tmp_path, Outcome.OK, None)
    write_rank_failure(tmp_path, 1, 2, Termination(Outcome.DOES_NOT_FIT, "CUDA out of memory"))
    assert _explain(tmp_path, 1, {1: -9}) == Termination(Outcome.DOES_NOT_FIT, "rank 2: CUDA out of memory")


def test_a_killed_rank_is_a_lost_worker_and_words_of_an_earlier_attempt_do_not_count(tmp_path: Path) -> None:
    result(tmp_path, Outcome.DIVERGED, "nan", attempt=1)
    write_rank_failure(tmp_path, 1, 1, Termination(Outcome.DOES_NOT_FIT, "CUDA out of memory"))
    assert json.loads((tmp_path / "ranks" / "rank-1.json").read_text())["attempt"] == 1
    assert _explain(tmp_path, 2, {1: -9}) == Termination(Outcome.INFRA, "worker_lost: rank 1 was killed by SIGKILL")


def test_ranks_that_left_no_word_crashed(tmp_path: Path) -> None:
    assert _explain(tmp_path, 1, {1: 3}) == Termination(Outcome.CRASHED, "ranks failed without giving a reason: {1: 3}")
