"""Spikes on made-up series: what counts, what is merged, what explains, and what a coincidence would give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from experiments.stats.loss_spikes import (
    Event,
    Rule,
    accident,
    all_judged,
    by_chance,
    explained,
    find_spikes,
    loss_spikes,
    rise,
    rms_spikes,
)
from experiments.summary import summarise

RULE = Rule(after=1000)
STEPS = np.arange(1, 2001)
QUIET = 1 + 0.01 * np.random.default_rng(0).normal(size=2000).clip(-2.5, 2.5)


def series(base: Any, **changes: float) -> Any:
    """`base` with other values at some steps: s1200=3.0."""
    values = np.array(base, float)
    for name, value in changes.items():
        values[int(name[1:]) - 1] = value
    return values


def test_rms_spikes_are_merged_within_ten_steps_and_the_start_is_left_out() -> None:
    rms = series(np.ones(2000), s900=9.0, s1000=9.0, s1001=2.3, s1011=5.0, s1022=2.31, s1500=2.29)
    assert rms_spikes(STEPS, rms, RULE) == [Event(1001, 1011, 2), Event(1022, 1022, 1)]
    assert rms_spikes(STEPS, series(rms, s1001=math.nan), RULE)[0] == Event(1011, 1011, 1)


def test_a_loss_spike_takes_several_deviations_near_each_other() -> None:
    alone = series(QUIET, s1200=1.5)
    assert loss_spikes(STEPS, alone, RULE) == [], "one deviating step is noise"
    assert loss_spikes(STEPS, series(alone, s1211=2.5), RULE) == [], "eleven steps on is another event"
    assert loss_spikes(STEPS, series(alone, s1210=2.5), RULE) == [Event(1200, 1210, 2)]
    assert loss_spikes(STEPS, series(QUIET, s990=1.5, s992=1.6, s993=1.7), RULE) == []
    assert loss_spikes(STEPS, QUIET, RULE) == []


def test_the_running_figures_are_of_the_steps_before() -> None:
    """A loss that is 3.1 deviations up does not deviate, one of 3.3 does; a higher level becomes the norm."""
    before = np.tile([0.9, 1.1], 1000)  # mean 1, standard deviation 0.1
    for height, expected in ((1.31, 0), (1.33, 1)):
        found = loss_spikes(STEPS, series(before, s1500=height, s1501=height + 0.2), RULE)
        assert len(found) == expected, height
    raised = np.where(STEPS > 1400, before + 1, before)
    assert [event.first for event in loss_spikes(STEPS, raised, RULE)] == [1401]


def test_a_loss_spike_is_explained_one_to_eight_steps_after_an_rms_spike_began() -> None:
    loss = [Event(step, step + 1, 2) for step in (1100, 1200, 1300, 1400, 1500)]
    rms = [Event(step, step, 1) for step in (1099, 1192, 1291, 1400, 1501)]
    assert [event.first for event in explained(loss, rms, RULE)] == [1100, 1200]


def test_coincidence() -> None:
    assert by_chance(STEPS, [Event(1100, 1100, 1), Event(1104, 1104, 1)], RULE) == pytest.approx(12 / 1000)
    assert by_chance(STEPS, [], RULE) == by_chance(STEPS[:500], [Event(1100, 1100, 1)], RULE) == 0
    assert accident(3, 3, 0.1) == pytest.approx(1e-3)
    assert accident(2, 1, 0.1) == pytest.approx(0.19)
    assert accident(2, 0, 0.1) == 1
    assert accident(0, 0, 0.1) is None


def test_a_trial_is_judged_as_a_whole_by_its_steps() -> None:
    losses = series(QUIET, s1505=2.0, s1506=3.0, s1800=2.0, s1801=2.0)
    rms = series(np.ones(2000), s1500=4.0, s1600=2.5)
    found = find_spikes(STEPS, losses, {"patch": rms, "other": np.ones(2000)}, RULE)
    assert ([event.first for event in found.loss], [event.first for event in found.explained("patch")]) == ([1505, 1800], [1505])
    assert found.accident("patch") == pytest.approx(1 - (1 - 0.016) ** 2)
    assert found.explained("other") == [] and found.accident("other") == 1
    part = {"data_wait_s": 0.0, "h2d_s": 0.0, "forward_backward_s": 0.1, "optimizer_s": 0.0, "total_s": 0.1, "samples": 8, "measured": True}
    steps = [
        {**part, "step": int(at), "loss": float(loss), "rms.patch": float(value), "rms.other": None}
        for at, loss, value in zip(STEPS, losses, rms, strict=True)
    ]
    window = {"wall_s": 200.0, "samples": 16000, "spikes_after": 1000}
    summary = summarise(steps, window)
    assert [summary[name] for name in ("loss_spikes", "rms_spikes", "loss_spikes_explained")] == [2, 2, 1]
    assert summarise(steps, {**window, "spikes_after": None})["loss_spikes"] is None, "a trial that does not look for them"
    bare = summarise([{name: value for name, value in step.items() if "rms" not in name} for step in steps], window)
    assert (bare["loss_spikes"], bare["rms_spikes"]) == (2, None)


def test_no_series_is_an_error_and_a_short_one_has_no_spikes() -> None:
    with pytest.raises(ValueError, match="no series"):
        rms_spikes([1, 2], [1.0], RULE)
    assert loss_spikes(STEPS[:50], QUIET[:50], Rule(after=0)) == []


def test_the_limit_is_the_mean_and_deviation_of_the_steps_before_only() -> None:
    """Of ten steps: nine at 1 and one at 2 have mean 1.1 and standard deviation 0.3, so a median of 1 or n - 1 tells another limit."""
    rule = Rule(after=0, running=10, deviations=3.0, several=1)
    for height, expected in ((1.99, 0), (2.01, 1)):
        losses = [1.0] * 4 + [2.0] + [1.0] * 5 + [height]
        assert len(loss_spikes(range(1, 12), losses, rule)) == expected, height


def test_a_value_at_a_limit() -> None:
    rule = Rule(after=4, running=4, deviations=2.0, several=1, merge=1)
    losses = np.array([1.0, 3.0, 1.0, 3.0, 4.0])  # mean 2, deviation 1: the limit is 4
    assert loss_spikes(range(1, 6), losses, rule) == []
    assert loss_spikes(range(1, 6), np.append(losses[:4], 4.01), rule) == [Event(5, 5, 1)]
    assert loss_spikes(range(1, 6), np.append(losses[:4], 13), Rule(after=5, running=4, several=1)) == [], "the last step not judged"
    assert loss_spikes(range(1, 5), [1, 1, 1, 9], rule) == [], "four steps have none with four before it"
    assert rms_spikes(range(1, 7), [0, 0, 0, 9, 2.3, 2.2999], rule) == [Event(5, 5, 1)]
    assert Rule().lead == (1, 8)
    assert (Rule().after, Rule().rms, Rule().deviations, Rule().running, Rule().merge, Rule().several) == (1000, 2.3, 3.2, 100, 10, 2)


@pytest.mark.parametrize("unknown", [math.nan, math.inf, -math.inf])
def test_the_running_figures_are_of_the_losses_that_are_known(unknown: float) -> None:
    """Mean 2 and deviation 1 of the two that are left of four: the limit is 4. With one left there is none."""
    rule = Rule(after=0, running=4, deviations=2.0, several=1)
    for height, expected in ((4.0, []), (4.01, [Event(5, 5, 1)])):
        losses = [1.0, unknown, unknown, 3.0, height]
        assert loss_spikes(range(1, 6), losses, rule) == expected and all_judged(range(1, 6), losses, rule)
    losses = [1.0, unknown, unknown, unknown, 9.0]
    assert loss_spikes(range(1, 6), losses, rule) == [] and not all_judged(range(1, 6), losses, rule)
    assert all_judged(range(1, 6), losses, Rule(after=5, running=4)), "the last step not judged"
    assert all_judged(range(1, 5), losses[:4], rule), "four steps have none with four before it"


def test_one_unknown_loss_hides_no_spike() -> None:
    spike = series(QUIET, s1550=3.0, s1551=3.0, s1552=3.0)
    assert loss_spikes(STEPS, spike, RULE) == [Event(1550, 1552, 3)]
    unknown = series(spike, s1500=math.nan)
    assert loss_spikes(STEPS, unknown, RULE) == [Event(1550, 1552, 3)] and all_judged(STEPS, unknown, RULE)
    known = np.delete(spike[1449:1549], 1499 - 1449)  # of the 100 steps before
    assert rise(STEPS, unknown, Event(1550, 1552, 3), RULE) == 3.0 - known.mean()


def test_an_infinite_loss_deviates() -> None:
    """Also where too few losses before it are known, as in a training that diverged; and it is no part of the mean."""
    diverged = np.where(STEPS >= 1550, math.inf, QUIET)
    assert loss_spikes(STEPS, diverged, RULE) == [Event(1550, 2000, 451)] and all_judged(STEPS, diverged, RULE)
    assert loss_spikes(STEPS, series(QUIET, s1550=math.inf), RULE) == [], "one alone is noise"
    back = series(QUIET, s1550=math.inf, s1551=math.inf, s1580=3.0, s1581=3.0)
    assert loss_spikes(STEPS, back, RULE) == [Event(1550, 1551, 2), Event(1580, 1581, 2)]
    assert rise(STEPS, back, Event(1550, 1551, 2), RULE) == math.inf
    assert rise(STEPS, back, Event(1580, 1581, 2), RULE) == 3.0 - np.delete(back[1479:1579], [70, 71]).mean()
    assert loss_spikes(STEPS, np.where(STEPS >= 1550, -math.inf, QUIET), RULE) == []
    assert rms_spikes(STEPS, series(np.ones(2000), s1500=math.inf), RULE) == []


def test_too_few_known_losses_leave_the_number_unknown() -> None:
    for known, judged in ((50, True), (49, False)):  # of the 100 before step 1100, and more before every other
        losses = series(QUIET, s1500=3.0, s1501=3.0)
        losses[999 : 1099 - known] = math.nan
        found = find_spikes(STEPS, losses, {"patch": np.ones(2000)}, RULE)
        assert (found.loss, found.judged) == ([Event(1500, 1501, 2)], judged), known
        assert found.accident("patch") == (1.0 if judged else None), "none explained: certain, if all of them are known"
    part = {"data_wait_s": 0.0, "h2d_s": 0.0, "forward_backward_s": 0.1, "optimizer_s": 0.0, "total_s": 0.1, "samples": 8, "measured": True}
    window = {"wall_s": 200.0, "samples": 16000, "spikes_after": 1000}
    for lost, counts in (
        ({"loss": None}, [None, 0, None]),
        ({"loss": None, "loss_text": "nan"}, [1, 0, 0]),
        ({"loss": math.nan}, [1, 0, 0]),
    ):
        steps = [{**part, "step": int(at), "loss": 1.0, "rms.patch": 1.0, **(lost if at > 1300 else {})} for at in STEPS]
        summary = summarise(steps, window)
        assert [summary[name] for name in ("loss_spikes", "rms_spikes", "loss_spikes_explained")] == counts, lost


def test_an_event_ends_where_the_next_step_is_too_far() -> None:
    rule = Rule(after=0, merge=3)
    rms = np.zeros(20)
    rms[[0, 3, 6, 10, 19]] = 3.0  # steps 1, 4, 7, 11, 20
    assert rms_spikes(range(1, 21), rms, rule) == [Event(1, 7, 3), Event(11, 11, 1), Event(20, 20, 1)]
    assert rms_spikes(range(1, 21), np.zeros(20), rule) == []
    with pytest.raises(ValueError, match="no series"):
        rms_spikes([[1, 2]], [[1.0, 3.0]], rule)


def test_the_rise_is_from_the_mean_before_to_the_highest_of_the_event() -> None:
    rule = Rule(after=0, running=4)
    steps = np.arange(101, 113)
    losses = [9.0, 1.0, 1.0, 1.0, 3.0, 5.0, 7.0, math.nan, 6.0, 8.0, 1.0, 1.0]
    assert rise(steps, losses, Event(106, 109, 3), rule) == 7.0 - 1.5
    assert rise(steps, losses, Event(106, 110, 3), rule) == 8.0 - 1.5
    assert rise(steps, losses, Event(105, 105, 1), rule) == 3.0 - 3.0


def test_leads_at_their_ends() -> None:
    rule = Rule(after=0, lead=(2, 4))
    rms = [Event(100, 108, 5)]
    found = [event.first for event in explained([Event(step, step, 2) for step in range(99, 112)], rms, rule)]
    assert found == [102, 103, 104]
    steps = range(1, 201)
    assert by_chance(steps, rms, rule) == pytest.approx(3 / 200)
    assert by_chance(steps, [Event(2, 2, 1), Event(199, 199, 1)], Rule(after=4, lead=(2, 4))) == pytest.approx(2 / 196)  # 5 and 6
    assert by_chance(range(1, 5), rms, Rule(after=4)) == 0
    assert by_chance(range(1, 6), [Event(1, 1, 1)], Rule(after=4)) == 1


def test_chance_of_an_accident_is_binomial() -> None:
    assert accident(5, 2, 0.3) == pytest.approx(1 - 0.7**5 - 5 * 0.3 * 0.7**4)
    assert accident(5, 5, 0.3) == pytest.approx(0.3**5)
    assert accident(4, 1, 0.0) == 0
