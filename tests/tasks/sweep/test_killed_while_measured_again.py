"""A flow was killed while it measured a disturbed trial again: that attempt is followed as any other that a dead flow left."""

from __future__ import annotations

import pytest

from cluster import launchers
from cluster.journal.journal import JournalWriter
from cluster.launchers import Launch, LaunchError
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.plan import states
from tasks.sweep.result_file import read_result
from tasks.sweep.what_is_left import what_is_left
from tests.tasks.fake_cluster import KEY, Cluster, cluster, runner, trial
from tests.tasks.plan_support import make_plan, make_result, saved
from tests.tasks.plan_support import make_trial as made_up

__all__ = ["cluster"]  # a fixture

BUSY = "other processes used 38 % of the CPU (limit 5 %)"
ENDS = (Outcome.OK, Outcome.CRASHED)


def killed(cluster: Cluster, state: str = "RUNNING") -> Trial:
    """Its flow died while the second attempt ran; `state` of that by now."""
    made, folder = trial(cluster), cluster.store.trial_dir(KEY)
    cluster.finish(1, Outcome.OK, BUSY)
    launch = cluster.start(made, folder, 2)
    launchers.save(launch.model_copy(update={"replaces": cluster.store.result(KEY)}), folder)
    cluster.jobs[launch.id] = state
    cluster.started = []
    return made


def launch(cluster: Cluster) -> Launch:
    found = launchers.load(cluster.store.trial_dir(KEY))
    assert found is not None
    return found


def ends(cluster: Cluster, outcome: Outcome, reason: str | None = None) -> None:
    """The second attempt does, when it is next asked about."""
    cluster.on_ask = lambda cluster: cluster.finish(2, outcome, reason) if cluster.jobs[f"{KEY}-a2"] == "RUNNING" else None


def test_what_it_measured_is_the_result(cluster: Cluster) -> None:
    made = killed(cluster)
    ends(cluster, Outcome.OK)
    result = runner(cluster, retries=0).run(made)
    assert (result.outcome, result.attempt, result.disturbed, cluster.started) == (Outcome.OK, 2, None, [])
    assert cluster.store.result(KEY) == result


def test_disturbed_once_more_it_has_spent_its_budget(cluster: Cluster) -> None:
    made = killed(cluster)
    ends(cluster, Outcome.OK, BUSY)
    result = runner(cluster, retries=0, disturbed=1).run(made)
    assert (result.attempt, result.disturbed, cluster.started) == (2, BUSY, [])


@pytest.mark.parametrize(("budget", "more"), [(2, 0), (3, 1), (4, 2)])
def test_what_was_measured_before_the_flow_died_is_part_of_the_budget(cluster: Cluster, budget: int, more: int) -> None:
    """Attempt 1 was lost, 2 and 3 were disturbed, and 4 was running when the flow died."""
    made, folder = trial(cluster), cluster.store.trial_dir(KEY)
    for number, outcome in enumerate((Outcome.INFRA, Outcome.OK, Outcome.OK), 1):
        with JournalWriter(folder / "journal.jsonl", number, trial=KEY) as journal:
            journal.append("end", outcome=str(outcome), reason=None)
    with JournalWriter(folder / "journal.jsonl", 3, trial=KEY) as journal:  # as for an attempt that was counted after its end
        journal.append("end", outcome="ok", reason=None)
    cluster.finish(3, Outcome.OK, BUSY)
    before = cluster.start(made, folder, 4)
    launchers.save(before.model_copy(update={"replaces": read_result(folder)}), folder)
    cluster.started = []

    def end(cluster: Cluster) -> None:
        for name, state in list(cluster.jobs.items()):
            if state == "RUNNING":
                cluster.finish(int(name[-1]), Outcome.OK, BUSY)

    cluster.on_ask = end
    result = runner(cluster, retries=0, disturbed=budget).run(made)
    assert (result.disturbed, result.attempt, len(cluster.started)) == (BUSY, 4 + more, more)


def test_where_it_comes_to_nothing_the_disturbed_measurement_stays_and_is_done(cluster: Cluster) -> None:
    made = killed(cluster)
    ends(cluster, Outcome.CRASHED)
    result = runner(cluster, retries=0).run(made)
    assert (result.attempt, result.disturbed, cluster.started) == (1, BUSY, []) and cluster.store.result(KEY) == result
    assert (launch(cluster).attempt, launch(cluster).replaces) == (2, None)
    asked = cluster.asked
    assert runner(cluster, retries=0).run(made) == result and cluster.asked == asked, "the next flow leaves it"


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.DOES_NOT_FIT])
def test_one_that_came_to_nothing_while_no_flow_followed_it_leaves_the_disturbed_measurement(cluster: Cluster, outcome: Outcome) -> None:
    """Its process wrote result.json, over the measurement's."""
    made, before = killed(cluster), cluster.store.result(KEY)
    cluster.finish(2, outcome)
    assert before is not None and before.disturbed == BUSY and cluster.store.result(KEY) == before
    left = what_is_left(cluster.store, make_plan([made]))
    assert (left.begun, left.done) == ([made], [])
    assert runner(cluster, retries=0).run(made) == before and cluster.started == []
    assert (launch(cluster).replaces, cluster.store.result(KEY)) == (None, before)
    assert what_is_left(cluster.store, make_plan([made])).done == [(made, before)]


def test_one_that_measured_while_no_flow_followed_it_is_the_result(cluster: Cluster) -> None:
    made = killed(cluster)
    cluster.finish(2)
    result = runner(cluster, retries=0).run(made)
    assert (result.attempt, result.disturbed, cluster.started) == (2, None, [])


def test_one_that_the_infrastructure_ended_while_no_flow_followed_it_is_measured_again(cluster: Cluster) -> None:
    made = killed(cluster)
    cluster.finish(2, Outcome.INFRA)
    cluster.on_ask = lambda cluster: cluster.finish(3) if cluster.started and cluster.jobs[cluster.started[0]] == "RUNNING" else None
    result = runner(cluster, retries=1).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 3, [f"{KEY}-a3"])


def test_one_that_is_gone_is_no_retry_and_is_measured_again(cluster: Cluster) -> None:
    made = killed(cluster, "FAILED")
    cluster.on_ask = lambda cluster: cluster.finish(3) if cluster.started and cluster.jobs[cluster.started[0]] == "RUNNING" else None
    result = runner(cluster, retries=1).run(made)
    assert (result.outcome, result.attempt, cluster.started) == (Outcome.OK, 3, [f"{KEY}-a3"])


def test_one_that_cannot_be_asked_for_is_left_to_the_next_flow(cluster: Cluster) -> None:
    made = killed(cluster)
    cluster.down = LaunchError("no answer")
    result = runner(cluster, retries=0, lost_after_s=5.0, wait_s=5.0).run(made)
    assert (result.attempt, result.disturbed, launch(cluster).replaces) == (1, BUSY, result)
    cluster.down = None
    ends(cluster, Outcome.OK)
    result = runner(cluster, retries=0).run(made)
    assert (result.attempt, result.disturbed, cluster.started) == (2, None, [])


def test_only_an_attempt_that_measures_again_says_so_and_only_until_it_is_over(cluster: Cluster) -> None:
    said: list[tuple[int, bool]] = []

    def end(cluster: Cluster) -> None:
        if cluster.started and cluster.jobs[cluster.started[-1]] == "RUNNING":
            found = launch(cluster)
            said.append((found.attempt, found.replaces is not None))
            cluster.finish(found.attempt, *((Outcome.OK, BUSY) if found.attempt == 1 else (Outcome.CRASHED, "made up")))

    cluster.on_ask = end
    assert runner(cluster, retries=0).run(trial(cluster)).attempt == 1
    assert said == [(1, False), (2, True)] and launch(cluster).replaces is None


@pytest.mark.parametrize(("again", "attempt", "is_begun"), [(True, 2, True), (False, 2, False), (True, 1, False)])
def test_a_resume_takes_it_for_begun_before_anything_else_takes_its_slots(again: bool, attempt: int, is_begun: bool) -> None:
    plan = make_plan([made_up(1), made_up(2)])
    store, key = saved(plan), plan.trials[0].key
    result = TrialResult.model_validate({**make_result(plan.trials[0], Outcome.OK).model_dump(), "disturbed": BUSY})
    store.save_result(result)
    launch = Launch(launcher="local", key=key, attempt=attempt, id="1", replaces=result if again else None)
    launchers.save(launch, store.trial_dir(key))
    left = what_is_left(store, plan)
    assert left.rest == [plan.trials[1]]
    assert (left.begun, left.done) == (([plan.trials[0]], []) if is_begun else ([], [(plan.trials[0], result)]))
    assert states(plan)[0].state == ("to do" if is_begun else "done")
