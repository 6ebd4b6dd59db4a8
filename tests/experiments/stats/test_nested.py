from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.stats.nested import _between_sweeps, host_law, independent_df, sweep_law, trial_law
from experiments.stats.variances import VarianceLaw


def nested(sweeps: int, cells: int, trials: int, *, trial_sd: float, sweep_sd: float, seed: int = 0) -> list[dict[str, list[float]]]:
    """Cells by sweep; the sweep's effect is common to its cells."""
    rng = np.random.default_rng(seed)
    days = rng.normal(0, sweep_sd, sweeps)
    return [{f"s{k}": (c + days[k] + rng.normal(0, trial_sd, trials)).tolist() for k in range(sweeps)} for c in range(cells)]


def test_trials_are_unknown_below_five_cells_with_repeats() -> None:
    three = [0.0, 0.1, 0.2]
    assert trial_law([[0.0, 0.1, 0.2, 0.1, 0.0, 0.1]]) is None, "one cell says nothing of how cells differ"
    assert trial_law([three] * 4) is None
    assert trial_law([*[three] * 4, [0.0]]) is None, "one trial is no group of repeats"
    law = trial_law([three] * 5)
    assert law is not None and law.spread().sd == pytest.approx(0.1, rel=0.3)
    law = trial_law([[0.0, 0.1]] * 5)
    assert law is not None and law.spread().sd == pytest.approx(0.1 / math.sqrt(2), rel=0.3)


def test_sweeps_without_trials_spread() -> None:
    cells = nested(40, 4, 3, trial_sd=0.01, sweep_sd=0.02)
    trials = trial_law(values for cell in cells for values in cell.values())
    law = sweep_law(cells, trials)
    assert trials is not None and law is not None
    assert trials.spread().sd == pytest.approx(0.01, rel=0.1)
    assert math.sqrt(law.expected()) == pytest.approx(0.02, rel=0.25)


def test_days_that_do_not_differ_leave_little() -> None:
    cells = nested(40, 4, 3, trial_sd=0.01, sweep_sd=0.0)
    law = sweep_law(cells, trial_law(values for cell in cells for values in cell.values()))
    assert law is not None and math.sqrt(law.expected()) < 0.004
    untouched = sweep_law(cells, None)
    assert untouched is not None and math.sqrt(untouched.expected()) == pytest.approx(0.01 / math.sqrt(3), rel=0.35), "nothing is taken off"


def test_a_sweep_of_single_trials_takes_the_pools_spread_off() -> None:
    cells = nested(60, 1, 1, trial_sd=0.01, sweep_sd=0.02)
    trials = trial_law(np.random.default_rng(1).normal(0, 0.01, (40, 3)).tolist())
    law = sweep_law(cells, trials)
    assert law is not None and math.sqrt(law.expected()) == pytest.approx(0.02, rel=0.25)


def test_a_sweep_of_few_trials_counts_for_more_of_what_trials_explain() -> None:
    """Their share of the variance between sweeps of 1 and 4 trials is 1e-4 (1 + 1/4) / 2."""
    law = VarianceLaw(np.array([1e-4]), np.array([math.inf]), np.ones(1))
    assert _between_sweeps({"a": [0.0], "b": [0.1] * 4}, law).offset == pytest.approx(6.25e-5)


@pytest.mark.parametrize(("sweeps", "known"), [(3, False), (4, True)])
def test_sweeps_are_unknown_below_three_degrees_of_freedom(sweeps: int, known: bool) -> None:
    """However many cells they have: cells of a sweep share its day."""
    assert (sweep_law(nested(sweeps, 10, 2, trial_sd=0.01, sweep_sd=0.01), None) is not None) is known


def test_independent_degrees_of_freedom() -> None:
    def cell(*sweeps: str) -> dict[str, list[float]]:
        return {sweep: [0.0] for sweep in sweeps}

    assert independent_df([]) == 0
    assert independent_df([cell("a", "b")]) == 1
    assert independent_df([cell("a", "b")] * 8) == 1, "the same two sweeps"
    assert independent_df([cell("a", "b"), cell("c", "d")]) == 2, "two pairs without a common sweep"
    assert independent_df([cell("a", "b"), cell("b", "c")]) == 2, "a chain of three"
    assert independent_df([cell("a", "b"), cell("c", "d"), cell("b", "c")]) == 3


def test_hosts_need_three_or_two_pairs() -> None:
    means = {"a": [0.0], "b": [0.03], "c": [-0.03]}
    assert host_law([{"a": [0.0], "b": [0.03]}]) is None
    law = host_law([means])
    assert law is not None and 0.015 < law.spread().sd < 0.06
    assert host_law([{"a": [0.0], "b": [0.03]}, {"c": [0.0], "d": [0.03]}]) is not None


def test_a_host_counts_by_its_mean() -> None:
    once = host_law([{"a": [0.0], "b": [0.03], "c": [-0.03]}])
    often = host_law([{"a": [0.01, -0.01], "b": [0.03] * 5, "c": [-0.03]}])
    assert once is not None and often is not None and once.spread() == often.spread()
