from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.stats.estimate import t_value
from experiments.stats.spread import Spread
from tasks.analysis.spread_history import UNKNOWN, KnownSpread, KnownSpreads, Place, learn, replications
from tasks.analysis.spread_store import PastSweeps, PastTrial, read_spreads
from tests.tasks.spread_support import DEVICE, WORKLOAD, past_trial, write_history

PLACE = Place("cpu", DEVICE, WORKLOAD, "throughput")


def past(sweeps: Mapping[str, Sequence[PastTrial]]) -> PastSweeps:
    return PastSweeps(dict(sweeps))


def test_nothing_is_known_at_first() -> None:
    assert learn(past({}), PLACE) == UNKNOWN
    assert KnownSpreads({}).at(PLACE) == UNKNOWN


def test_the_components_are_those_of_the_history(tmp_path: Path) -> None:
    write_history(tmp_path, sweeps=40, trial_sd=0.01, sweep_sd=0.02)
    known = learn(read_spreads(tmp_path), PLACE)
    assert known.trial is not None and known.trial.sd == pytest.approx(0.01, rel=0.1)
    assert known.sweep is not None and known.sweep.sd == pytest.approx(0.02, rel=0.25)
    assert known.host is None, "one host"
    assert (known.trials, known.sweeps, known.hosts) == (360, 40, 0)


def test_sweeps_on_several_hosts_are_compared_on_each_and_hosts_by_their_means(tmp_path: Path) -> None:
    write_history(tmp_path, sweeps=60, trial_sd=0.001, sweep_sd=0.005, host_sd=0.05, hosts=["a", "b", "c", "d", "e", "f"])
    known = learn(read_spreads(tmp_path), PLACE)
    assert known.sweep is not None and known.sweep.sd == pytest.approx(0.005, rel=0.3), "hosts are no part of it"
    assert known.host is not None
    assert 1.96 * 0.03 < t_value(0.95, known.host.df) * known.host.sd < 5 * 1.96 * 0.05, "six hosts say little of cells"
    assert (known.sweeps, known.hosts) == (60, 6)


def test_other_pools_count_for_hosts_alone(tmp_path: Path) -> None:
    write_history(tmp_path, sweeps=5, hosts=["a"])
    write_history(tmp_path, sweeps=5, pool="gpu", hosts=["b"], seed=1)
    write_history(tmp_path, sweeps=5, pool="third", hosts=["c"], seed=2)
    known = learn(read_spreads(tmp_path), PLACE)
    assert (known.trials, known.sweeps, known.hosts) == (45, 5, 3)
    assert known.host is not None


def test_another_version_is_another_cell() -> None:
    """Code that became 10 % slower half-way: no spread between sweeps."""
    sweeps = {
        f"s{number}": [past_trial("c", 100.0 if number < 4 else 90.0, version="v1" if number < 4 else "v2") for _ in range(2)]
        for number in range(8)
    }
    known = learn(past(sweeps), PLACE)
    assert known.sweep is not None and known.sweep.sd < 1e-6
    mixed = {name: [trial.model_copy(update={"version": "v"}) for trial in trials] for name, trials in sweeps.items()}
    wide = learn(past(mixed), PLACE)
    assert wide.sweep is not None and wide.sweep.sd == pytest.approx(math.log(100 / 90) / 2, rel=0.4)


def test_other_devices_metrics_and_values_without_a_logarithm_are_left_out() -> None:
    repeats = [past_trial(cell, value) for cell in "abcde" for value in (99.0, 100.0, 101.0)]
    others = [past_trial("a", 1.0, device="another"), past_trial("a", 1.0, metric="step_time_median_s"), past_trial("a", 0.0)]
    known = learn(past({"s": [*repeats, *others]}), PLACE)
    assert known == learn(past({"s": repeats}), PLACE)
    assert known.trial is not None and known.trials == 15
    four = learn(past({"s": repeats[:12]}), PLACE)
    assert (four.trial, four.trials) == (None, 12), "too few cells to say how cells differ"
    alone = learn(past({"s": [*repeats, past_trial("f", 100.0)], "t": [past_trial("a", 100.0)]}), PLACE)
    assert (alone.trial, alone.trials) == (known.trial, 15), "a cell's only trial in a sweep says nothing of how far trials lie apart"


def test_a_metric_on_the_linear_scale_keeps_its_unit() -> None:
    place = PLACE._replace(metric="data_wait_share")
    trials = [past_trial(cell, value, metric="data_wait_share") for cell in "abcde" for value in (0.0, 0.1, 0.2)]
    known = learn(past({"s": trials}), place)
    assert known.trial is not None and known.trial.sd == pytest.approx(0.1, rel=0.6)


def test_where_another_host_lands() -> None:
    """Three hosts, this sweep's among them; a cell that no other host has measured gets nothing."""
    sweeps = {host: [past_trial("c", value, host=host)] for host, value in (("a", 100.0), ("b", 101.0))}
    own = {
        "here": [past_trial("c", 99.0, host="z")],
        "alone": [past_trial("d", 5.0, host="z")],
        "other code": [past_trial("c", 9.0, version="v2")],
    }
    found = replications(past(sweeps), own, "throughput")
    assert set(found) == {"here"} and found["here"].hosts == 3
    assert found["here"].low < 99 and found["here"].high > 101
    assert math.sqrt(found["here"].low * found["here"].high) == pytest.approx((99 * 100 * 101) ** (1 / 3))
    assert replications(past({"a": sweeps["a"]}), own, "throughput") == {}, "two hosts, and no other cell of them"


def test_two_hosts_are_enough_where_other_cells_know_more() -> None:
    """Five hosts that one other cell ran on are four degrees of freedom; of four hosts they are three."""
    own = {"here": [past_trial("c", 101.0, host="a")]}
    beside = {f"on {host}": [past_trial("d", 50.0 + at, host=host)] for at, host in enumerate("abcde")}
    before = {"c": [past_trial("c", 99.0, host="b")]}
    found = replications(past({**before, **beside}), own, "throughput")["here"]
    assert found.hosts == 2 and found.low < 99 and found.high > 101
    del beside["on e"]
    assert replications(past({**before, **beside}), own, "throughput") == {}
    assert replications(past(beside), own, "throughput") == {}, "of one host nothing is known"


def test_repeats_on_two_hosts_are_not_how_far_trials_lie_apart() -> None:
    """Ten sweeps of three cells that went on on another host, 5 % faster; trials lie 0.5 % apart."""
    sweeps = {
        f"sweep {number}": [
            past_trial(f"cell {cell}", (100.0 if host == "a" else 105.0) * math.exp(0.005 * sign), host=host)
            for cell in range(3)
            for host in "ab"
            for sign in (-1, 1)
        ]
        for number in range(10)
    }
    known = learn(past(sweeps), PLACE)
    assert known.trial is not None and known.trial.sd == pytest.approx(0.005 * math.sqrt(2), rel=0.1)
    assert known.sweep is None or known.sweep.sd < 0.01, "nor how far sweeps do"


def test_one_workloads_noise_is_no_other_ones(tmp_path: Path) -> None:
    """One whose trials lie 10 % apart, and one with 0.3 %, on one pool and device."""
    write_history(tmp_path / "quiet", trial_sd=0.003, sweep_sd=0.002)
    alone = learn(read_spreads(tmp_path / "quiet"), PLACE)
    for workload, sd in ((WORKLOAD, 0.003), ("flava", 0.1)):
        write_history(tmp_path / "both", workload=workload, trial_sd=sd, sweep_sd=0.002)
    both = read_spreads(tmp_path / "both")
    quiet, noisy = (learn(both, PLACE._replace(workload=workload)) for workload in (WORKLOAD, "flava"))
    assert (quiet.trial, quiet.sweep, quiet.trials, quiet.sweeps) == (alone.trial, alone.sweep, alone.trials, alone.sweeps)
    assert quiet.trial is not None and quiet.trial.sd == pytest.approx(0.003, rel=0.2)
    assert noisy.trial is not None and noisy.trial.sd == pytest.approx(0.1, rel=0.2)
    assert learn(both, PLACE._replace(workload="bert")).trial is None, "two others have some"


@pytest.mark.parametrize("workload", ["flava", None])
def test_hosts_lie_apart_by_what_all_workloads_show(tmp_path: Path, workload: str | None) -> None:
    """Also by those of files that do not say of what workload their trials are."""
    write_history(tmp_path, sweeps=8, host_sd=0.05, hosts=["a", "b", "c", "d"])
    one = read_spreads(tmp_path)
    other = {"workload": workload}
    two = {
        sweep: [trial if trial.host in ("a", "b") else trial.model_copy(update=other) for trial in trials]
        for sweep, trials in one.trials.items()
    }
    all_, some, none = learn(one, PLACE), learn(past(two), PLACE), learn(past(two), PLACE._replace(workload="t5"))
    assert all_.host is not None and (some.host, some.hosts) == (none.host, none.hosts) == (all_.host, 4)
    assert (all_.sweeps, some.sweeps, none.sweeps) == (8, 4, 0) and (all_.trials, some.trials, none.trials) == (72, 36, 0)


def test_of_what_was_learned_from_all_workloads_together_the_spread_between_hosts_alone_counts() -> None:
    early = KnownSpread(trial=Spread(0.02, 8), sweep=Spread(0.01, 4), host=Spread(0.03, 3), trials=27, sweeps=4, hosts=4)
    known = KnownSpreads({PLACE._replace(workload=None): early})
    assert known.at(PLACE) == known.at(PLACE._replace(workload="flava")) == replace(early, trial=None, sweep=None) and known.has(PLACE)
    assert known.trial("cpu", DEVICE, "flava", "throughput") is None
    assert not known.has(PLACE._replace(pool="gpu"))
    own = KnownSpreads({PLACE: early})
    assert own.at(PLACE) == early and not own.has(PLACE._replace(workload="flava"))
