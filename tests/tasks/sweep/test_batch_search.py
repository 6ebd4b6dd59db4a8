"""By when a search for the largest batch is over: decided on a launcher without a cluster and a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cluster.journal.journal import JournalWriter
from experiments.trial import Outcome, Trial
from tasks.sweep.batch_search import BatchSearch, SearchLimit, known_text
from tests.contracts import make_trial
from tests.tasks.fake_cluster import KEY, Cluster, at, cluster, left_by_a_dead_flow, runner
from tests.tasks.plan_support import make_trial as made_up

__all__ = ["cluster"]  # a fixture

BUDGET_S = 100.0
WINDOW_S = 30.0
REASON = (
    "batch_size max: the search was cut off, since no time was left for what it was to measure (57 fits, 140 does not); "
    "a later attempt on the same node goes on from there"
)


def trial(cluster: Cluster) -> Trial:
    return make_trial(cluster.store.trial_dir(KEY), KEY, batch_size="max", measure_s=WINDOW_S)


def search(cluster: Cluster, attempt: int = 1, *, answers: bool = True, over: bool = False) -> None:
    """The worker's search has written its journal so far. `answers`: there are some. `over`: its section is closed."""
    journal = JournalWriter(cluster.store.trial_dir(KEY) / "journal.jsonl", attempt, trial=KEY)
    journal.append("phase", name="max_batch")
    if answers:
        journal.append("note", text="batch size 57 fits", batch_search={"fits": 57, "too_large": 140})
    journal.flush()
    if over:
        journal.close()
    else:
        cluster.open = journal  # type: ignore[attr-defined]


def limited(cluster: Cluster) -> Any:
    run = runner(cluster, hang_timeout_s=1000)
    return replace(run, searches=SearchLimit(lambda: BUDGET_S - cluster.clock.passed))


def test_a_search_ends_once_no_time_is_left_for_the_window(cluster: Cluster) -> None:
    run = limited(cluster)
    cluster.on_ask = at(2, search)
    result = run.run(trial(cluster))
    assert (result.outcome, result.reason, result.attempt) == (Outcome.CANCELLED, REASON, 1)
    assert cluster.clock.passed == pytest.approx(BUDGET_S - WINDOW_S, abs=0.5)
    assert cluster.jobs == {f"{KEY}-a1": "STOPPED"} and run.searches.cut == {KEY}
    cluster.open.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("state", [lambda cluster: search(cluster, answers=False), lambda cluster: search(cluster, over=True)])
def test_neither_a_search_without_an_answer_nor_what_follows_it_is_cut_off(cluster: Cluster, state: Callable[[Cluster], None]) -> None:
    """So each attempt comes further; and a trial that is about to measure goes on to its end."""

    def later(cluster: Cluster) -> None:
        if cluster.clock.passed > 2 * BUDGET_S:
            cluster.finish(1)

    def begin(cluster: Cluster) -> None:
        state(cluster)
        cluster.on_ask = later

    run = limited(cluster)
    cluster.on_ask = at(2, begin)
    assert run.run(trial(cluster)).outcome is Outcome.OK and run.searches.cut == set()
    assert cluster.clock.passed > 2 * BUDGET_S


def test_a_search_that_has_its_result_is_not_cut_off(cluster: Cluster) -> None:
    """It ended at the last moment, and its process has not left yet."""

    def end(cluster: Cluster) -> None:
        search(cluster)
        cluster.finish(1, Outcome.DOES_NOT_FIT)
        cluster.jobs[f"{KEY}-a1"] = "RUNNING"
        cluster.clock.now += BUDGET_S

    run, cluster.on_ask = limited(cluster), at(2, end)
    assert run.run(trial(cluster)).outcome is Outcome.DOES_NOT_FIT and run.searches.cut == set()
    cluster.open.close()  # type: ignore[attr-defined]


def test_what_an_earlier_attempt_answered_does_not_cut_off_one_that_has_answered_nothing(cluster: Cluster) -> None:
    """It was killed in its search. The next one, which is slow to start, would else be cut off before it came any further."""
    left_by_a_dead_flow(cluster, "FAILED")
    journal = cluster.store.trial_dir(KEY) / "journal.jsonl"
    search(cluster)
    killed = journal.read_bytes()
    cluster.open.close()  # type: ignore[attr-defined]
    journal.write_bytes(killed)  # its section was never closed
    cluster.clock.now += BUDGET_S

    def begin(cluster: Cluster) -> None:
        if cluster.clock.passed > BUDGET_S + 20:
            cluster.on_ask = lambda cluster: None
            search(cluster, 2)

    run, cluster.on_ask = limited(cluster), begin
    result = run.run(trial(cluster))
    assert (result.outcome, result.reason, result.attempt) == (Outcome.CANCELLED, REASON, 2)
    assert cluster.clock.passed > BUDGET_S + 20, "once it had an answer of its own"
    cluster.open.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("left_s", "is_cut"), [(31.0, False), (30.0, False), (29.9, True), (-5.0, True)])
def test_the_window_and_the_warm_up_are_what_has_to_fit(left_s: float, is_cut: bool) -> None:
    limit, one, found = SearchLimit(lambda: left_s), made_up(1, parameters={"measure_s": 20.0, "warmup_s": 10.0}), BatchSearch()
    assert limit.cut_off(one, found) is None, "it has not begun"
    found.add({"kind": "note", "t": 1.0, "batch_search": {"fits": 57, "too_large": 140}})
    assert limit.cut_off(one, found) == (REASON if is_cut else None)
    assert limit.cut == ({one.key} if is_cut else set())


def test_a_sweep_whose_time_is_not_limited_cuts_none_off() -> None:
    found = BatchSearch()
    found.add({"kind": "note", "t": 1.0, "batch_search": {"fits": 57, "too_large": None}})
    assert SearchLimit().cut_off(made_up(1), found) is None


def test_a_search_is_over_with_its_section_of_the_journal() -> None:
    found = BatchSearch()
    for kind in ("close", "attempt"):
        found.add({"kind": "note", "t": 1.0, "batch_search": {"fits": 57, "too_large": None}})
        found.add({"kind": "note", "t": 1.0, "text": "of something else"})
        assert found.known == {"fits": 57, "too_large": None}
        found.add({"kind": kind, "t": 2.0})
        assert found.known is None


@pytest.mark.parametrize(
    ("fits", "too_large", "text"), [(57, None, "57 fits"), (57, 140, "57 fits, 140 does not"), (None, 1, "1 does not fit")]
)
def test_what_it_knows_in_words(fits: int | None, too_large: int | None, text: str) -> None:
    assert known_text({"fits": fits, "too_large": too_large}) == text
