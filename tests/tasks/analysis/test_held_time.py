"""Where the time goes that a pool is held: every piece in one part, and the parts add up."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.analysis.held_time import PARTS, AttemptMarks, Ended, HeldTime, HeldTrial, account, attempt_marks, ended_with
from tasks.sweep.slot_log import Hold
from tests.tasks.held_support import hold, journal

WHOLE = {  # of journal(10.0), held from 8 to 23
    "launch": 2.0,
    "imports": 1.0,
    "set_up": 1.0,
    "data": 1.0,
    "build": 1.0,
    "first_step": 1.0,
    "warmup": 1.0,
    "measured": 4.0,
    "evaluation": 0.75,
    "beside": 0.5 + 0.25 + 0.5,
    "teardown": 1.0,
}


def marks(*journals: tuple[int, list[object]]) -> dict[int, AttemptMarks]:
    return {number: attempt_marks(records) for number, records in journals}  # type: ignore[arg-type]


def held(*holds: Hold, attempts: dict[str, dict[int, AttemptMarks]], **more: object) -> HeldTime:
    ended = {one.trial: Ended(1) for one in holds}
    return account(holds, lambda key: attempts.get(key, {}), **{"ended": ended, **more})  # type: ignore[arg-type]


def test_the_whole_adds_up_its_trials_and_leaves_out_parts_of_other_versions() -> None:
    trials = [HeldTrial("a", "cpu", {"measured": 0.5, "imports": 1.0}), HeldTrial("b", "cpu", {"measured": 0.25, "of later": 8.0})]
    found = HeldTime(trials)
    assert (list(found.parts.items()), found.measured_share) == ([("imports", 1.0), ("measured", 0.75)], 0.75 / 1.75)


def test_each_piece_of_a_trial_is_in_the_part_that_its_marks_say() -> None:
    found = held(hold(8.0, 23.0), attempts={"a": marks((1, journal(10.0)))})
    assert found.parts == {part: WHOLE[part] for part in PARTS if part in WHOLE}
    assert found.seconds == 15.0 and found.measured_share == pytest.approx(4 / 15)


def test_a_step_of_the_window_in_which_torch_compiled_is_no_measuring() -> None:
    """The window of 4 s has a step of 1 s, two of 1 and 1.5 s that compiled, the second of which began a little early, and one of 0.5 s."""
    steps = [(17.5, 1.0, 2), (18.5, 1.0, 3), (20.0, 1.501, 4), (20.5, 0.5, 5)]
    records = [one for one in journal(10.0) if not (one["kind"] == "step" and one["measured"])]
    records[8:8] = [{"kind": "step", "t": at, "measured": True, "step": number, "total_s": took} for at, took, number in steps]
    compiled = [{**one, "left_out_steps": [3, 4]} if one["kind"] == "window" else one for one in records]
    found = [held(hold(8.0, 23.0), attempts={"a": marks((1, each))}).parts for each in (records, compiled)]
    assert [(parts["measured"], parts["warmup"]) for parts in found] == [(4.0, 1.0), (1.5, 3.5)]


def test_time_between_trials_and_the_wait_for_a_slot_count_and_the_time_between_flows_does_not() -> None:
    attempts = {"a": marks((1, journal(10.0))), "b": marks((1, journal(31.0))), "c": marks((1, journal(1001.0)))}
    holds = hold(8.0, 23.0), hold(29.0, 44.0, "b", asked=25.0), hold(999.0, 1014.0, "c", flow="g", asked=500.0)
    found = held(*holds, attempts=attempts)
    assert (found.parts["between"], found.parts["waiting"]) == (2.0, 4.0)
    assert found.seconds == (44.0 - 8.0) + (1014.0 - 999.0)
    assert [one.trial for one in found.trials] == ["a", "b", "c"] and [one.seconds for one in found.trials] == [15.0, 21.0, 15.0]
    assert found.runs == 2, "c is of another flow"


def test_what_asked_before_the_slot_was_free_waited_from_then_on() -> None:
    found = held(hold(0.0, 10.0), hold(10.5, 11.0, "b", asked=1.0), attempts={})
    assert found.trials[1].parts["waiting"] == 0.5 and "between" not in found.parts


def test_a_clock_that_is_set_back_makes_no_part_negative() -> None:
    found = held(hold(5.0, 10.0, starts=[(4.0, 1)]), hold(9.0, 8.0, "b"), attempts={"a": marks((1, journal(-20.0)))})
    assert found.parts == {"teardown": 5.0} and found.trials[1].seconds == 0.0


def test_an_attempt_that_is_not_the_result_is_discarded_whole() -> None:
    attempts = {"a": marks((1, journal(10.0)), (2, journal(25.0)))}
    again = hold(8.0, 38.0, starts=[(9.0, 1), (23.0, 2)])
    second = held(again, attempts=attempts, ended={"a": Ended(2)})
    assert second.parts == {**{part: WHOLE[part] for part in PARTS if part in WHOLE}, "discarded": 15.0}
    first = held(again, attempts=attempts, ended={"a": Ended(1)})  # the second was lost: the disturbed first stays the result
    assert (first.parts["measured"], first.parts["discarded"], first.seconds) == (4.0, 15.0, 30.0)
    superseded = held(again, attempts=attempts, ended={"a": None})
    assert superseded.parts == {"discarded": 30.0} and superseded.measured_share == 0.0


@pytest.mark.parametrize(
    ("outcome", "part"),
    [
        (Outcome.DOES_NOT_FIT, "no_rate"),
        (Outcome.UNSUPPORTED, "no_rate"),
        (Outcome.DIVERGED, "failed"),
        (Outcome.HANG, "failed"),
        (Outcome.CRASHED, "failed"),
        (Outcome.INFRA, "failed"),
        (Outcome.CANCELLED, "failed"),
    ],
)
def test_a_trial_that_ended_without_a_rate_is_discarded_as_far_as_it_was_repeated(outcome: Outcome, part: str) -> None:
    once = held(hold(8.0, 23.0), attempts={"a": marks((1, journal(10.0)))}, ended={"a": ended_with(1, outcome)})
    assert once.parts == {part: 15.0} and once.measured_share == 0.0
    again = hold(8.0, 38.0, starts=[(9.0, 1), (23.0, 2)])
    attempts = {"a": marks((1, journal(10.0)), (2, journal(25.0)))}
    assert held(again, attempts=attempts, ended={"a": ended_with(2, outcome)}).parts == {part: 15.0, "discarded": 15.0}
    assert held(hold(8.0, 9.0, starts=[]), attempts={}, ended={"a": ended_with(1, outcome)}).parts == {part: 1.0}
    assert ended_with(2, Outcome.OK) == Ended(2)


def test_early_journals_leave_not_recorded_what_they_do_not_tell() -> None:
    phases = {"start": 1, "measure": 6}
    found = held(hold(8.0, 23.0), attempts={"a": marks((1, journal(10.0, phases)))})
    assert (found.parts["not_recorded"], found.parts["set_up"], found.parts["measured"]) == (3.0, 5.0, 4.0)
    assert "launch" not in found.parts and found.seconds == 15.0


def test_a_search_for_the_largest_batch_is_a_part_of_its_own() -> None:
    search = [{"kind": "attempt", "t": 11.0, "attempt": 1}, {"kind": "phase", "t": 11.0, "name": "max_batch"}]
    phases = {"imports": -11.0, "start": 1.0, "measure": 6.0}  # of the process, which then searched until its session began
    found = held(hold(8.0, 40.0), attempts={"a": marks((1, [*search, *journal(20.0, phases)]))})
    assert (found.parts["launch"], found.parts["imports"], found.parts["batch_search"]) == (1.0, 2.0, 10.0)
    ranks = held(hold(8.0, 40.0), attempts={"a": marks((1, [*search, *journal(20.0)]))})  # whose processes begin after it
    assert (ranks.parts["batch_search"], ranks.parts["imports"], ranks.seconds) == (9.0, 1.0, 32.0)


def test_marks_outside_of_the_hold_count_as_at_its_end() -> None:
    """A process that began before the hold, as on a node that is kept warm, and another flow's hold of the same attempt."""
    attempts = {"a": marks((1, journal(10.0)))}
    first, second = hold(8.0, None, flow="f"), hold(18.0, 23.0, flow="g", starts=[])
    found = held(first, second, attempts=attempts)
    assert found.trials[0].parts["measured"] == 1.5 and found.trials[1].parts["measured"] == 2.5
    assert found.seconds == 15.0, "nobody gave the first back: it lasts until the next one took it"


def test_a_hold_that_nobody_ended_lasts_until_the_last_record_of_its_trial() -> None:
    assert held(hold(8.0, None), attempts={"a": marks((1, journal(10.0)))}).seconds == 22.0 - 8.0
    assert held(hold(8.0, None, starts=[(9.0, 1)]), attempts={}).parts == {"launch": 1.0}
    assert held(hold(8.0, None, starts=[]), attempts={}).seconds == 0.0
    earlier = held(hold(8.0, None, starts=[(7.0, 1)]), hold(20.0, 21.0, "b"), attempts={})
    assert (earlier.trials[0].seconds, earlier.trials[1].parts["between"]) == (0.0, 12.0), "by a clock that was set back: no time, not less"


def test_an_attempt_that_began_in_a_later_hold_does_not_make_the_earlier_one_longer() -> None:
    """The flow was killed before its launcher had started anything."""
    killed, later = hold(1.0, None, starts=[]), hold(8.0, 23.0, flow="g")
    found = held(killed, later, attempts={"a": marks((1, journal(10.0)))})
    assert [trial.seconds for trial in found.trials] == [0.0, 15.0]
    before = hold(8.0, None, starts=[])
    assert [trial.seconds for trial in held(before, hold(12.0, 23.0, flow="g"), attempts={"a": marks((1, journal(10.0)))}).trials] == [
        4.0,
        11.0,
    ]


def test_a_trial_that_still_runs_counts_what_it_measured_so_far() -> None:
    records = [record for record in journal(10.0) if record["t"] <= 20.5 and record["kind"] != "window"]
    found = held(hold(8.0, None), attempts={"a": marks((1, records))}, ended={})
    assert found.parts["measured"] == 4.5, "from the phase on: how long the window was is recorded later"
    assert held(hold(8.0, 9.0), attempts={}, ended={}).parts == {"launch": 1.0}


def test_slots_side_by_side_add_up_to_slot_seconds() -> None:
    wide = hold(8.0, 23.0, slots=("s", "t"))
    found = held(wide, hold(25.0, 26.0, "b", slots=("t",)), attempts={"a": marks((1, journal(10.0)))})
    assert found.slots == 2 and found.seconds == 2 * 15.0 + 2.0 + 1.0
    assert (found.parts["measured"], found.parts["between"]) == (8.0, 2.0)


def test_nothing_held_has_no_share() -> None:
    empty = account([], lambda key: {}, {})
    assert (empty.seconds, empty.measured_share, empty.parts) == (0, None, {})


def test_a_trial_that_waited_for_its_flow_says_so() -> None:
    phases = {"imports": 0, "hold": 1, "start": 4, "warmup": 5, "measure": 6}
    found = held(hold(8.0, 23.0), attempts={"a": marks((1, journal(10.0, phases=phases)))})
    assert (found.parts["imports"], found.parts["hold"], found.parts["set_up"]) == (1.0, 3.0, 1.0)
    assert found.seconds == 15.0
