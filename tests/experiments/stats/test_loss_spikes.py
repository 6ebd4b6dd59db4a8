"""Spikes on made-up series: what counts, what is merged, what explains, and what a coincidence would give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from experiments.stats.loss_spikes import Event, Rule, accident, by_chance, explained, find_spikes, loss_spikes, rms_spikes
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
