"""The layout of cells and rounds against numbers worked out by hand or by scipy, and its edges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from experiments.stats import layout as layout_module
from experiments.stats.estimate import exponential
from experiments.stats.layout import Layout
from experiments.stats.spread import Spread
from experiments.stats.verdict import Verdict, verdict
from tests.experiments.stats.layout_support import in_rounds, random_rows


@pytest.mark.parametrize("rounds", [2, 3, 5, 6])
def test_two_cells_are_compared_by_the_paired_t_test(rounds: int) -> None:
    a, b = random_rows(rounds, 2, rounds)
    found = in_rounds([a, b]).difference(0, 1)
    paired = stats.ttest_rel(a, b)
    low, high = paired.confidence_interval(0.95)
    assert (found.low, found.high, found.p_value) == pytest.approx((low, high, paired.pvalue))
    assert (found.df, found.n, found.linear) == (pytest.approx(rounds - 1), rounds, True)
    other = in_rounds([a, b]).difference(1, 0)
    assert (other.value, other.se) == pytest.approx((-found.value, found.se))


def test_a_slope_is_fitted_where_five_degrees_of_freedom_are_left_after_it() -> None:
    """Of two cells in seven rounds: 14 trials less 2 cells, 6 rounds and the slope. With six rounds it is left out: see above."""
    assert in_rounds(random_rows(7, 2, 7)).difference(0, 1).df == pytest.approx(5)


def test_the_error_of_equal_spreads_is_the_residual_of_the_two_way_layout() -> None:
    """Rounds have no effect here, so residuals are the values: squares of 2 a cell, over the trace of its block 2 x (1 - 1/3)."""
    found = in_rounds([[1.0, 0.0, -1.0], [-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]], forward=True).difference(0, 2)
    assert found.se == pytest.approx(math.sqrt(2 * 1.5 / 3))
    # covariance of residuals over v: 2/3 in a cell, -1/3 between two; over 2/3 that is 1 and -1/2, so 2 x 2 ** 2 / (1 + 1 + 2 / 4)
    assert found.df == pytest.approx(3.2)
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert found.half_width == pytest.approx(stats.t.ppf(0.975, 3.2))


def test_error_and_degrees_of_freedom_are_those_of_whole_matrices() -> None:
    """Least squares of cells and rounds, without what makes it fast: variances by HC2, their sum's degrees of freedom by Satterthwaite."""
    rows = random_rows(3, 3, 4)
    found = in_rounds(rows, forward=True).difference(0, 2)
    y, cell, number = np.ravel(rows), np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3)
    design = np.hstack([np.eye(3)[cell], np.eye(4)[number][:, 1:]])
    inverse = np.linalg.inv(design.T @ design)
    maker = np.eye(12) - design @ inverse @ design.T
    coefficients = design @ inverse @ np.array([1.0, 0, -1, 0, 0, 0])
    own = [np.diag((cell == one).astype(float)) for one in range(3)]
    traces = [float(np.trace(maker @ one)) for one in own]
    residuals = maker @ y
    variances = np.array([residuals @ one @ residuals / trace for one, trace in zip(own, traces, strict=True)])
    assert variances.max() < 2 * np.median(variances), "no cell counts less than another"
    weights = sum(coefficients @ one @ coefficients / trace * one for one, trace in zip(own, traces, strict=True))
    form = maker @ weights @ maker @ np.diag(variances[cell])  # the variance of the difference is residuals' weights residuals
    assert (found.value, found.se) == pytest.approx((coefficients @ y, math.sqrt(residuals @ weights @ residuals)))
    assert found.df == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))
    assert found.se**2 != pytest.approx(np.trace(form), rel=0.01), "the fitted variances do not reproduce themselves"


def test_of_many_cells_with_equal_spreads_degrees_of_freedom_tend_to_welchs() -> None:
    pattern = [[1.0, 0.0, -1.0], [-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]]
    rows = [pattern[number % 3] for number in range(30)]
    found = in_rounds(rows, forward=True).difference(0, 1)
    assert found.se == pytest.approx(math.sqrt(2 / 3), rel=0.02), "each variance is 1"
    assert found.df == pytest.approx(4.0, rel=0.02), "of two times two"


def test_what_a_round_does_to_all_cells_cancels() -> None:
    rows = random_rows(1, 5, 3, 0.01)
    shifted = [[value + shift for value, shift in zip(row, (0.0, 0.5, -0.3), strict=True)] for row in rows]
    quiet, moved = (in_rounds(values).difference(0, 3) for values in (rows, shifted))
    assert (moved.value, moved.se, moved.df) == pytest.approx((quiet.value, quiet.se, quiet.df))


@pytest.mark.parametrize(("cells", "rounds"), [(2, 2), (3, 2), (5, 2), (2, 4), (4, 4), (5, 3), (4, 3), (12, 3), (7, 5)])
def test_a_steady_drift_cancels(cells: int, rounds: int) -> None:
    """Over an even number of reversed rounds by the order alone; over an odd number by the slope, where it is fitted."""
    rows = [[float(cell)] * rounds for cell in range(cells)]
    for cell in range(cells):
        for repeat in range(rounds):
            rows[cell][repeat] -= 0.05 * (repeat * cells + (cells - 1 - cell if repeat % 2 else cell))
    found = in_rounds(rows).difference(cells - 1, 0)
    assert found.value == pytest.approx(cells - 1)


def test_without_reversing_the_same_drift_is_a_bias_of_its_place() -> None:
    rows = [[-0.05 * (repeat * 2 + cell) for repeat in range(2)] for cell in range(2)]
    assert in_rounds(rows, forward=True).difference(1, 0).value == pytest.approx(-0.05)


def test_a_noisy_cell_keeps_its_noise_and_leaves_the_others_theirs() -> None:
    """A baseline with 5 % among twelve cells with 0.5 %: a spread pooled over them would be 1.5 %."""
    pattern = [[0.005, 0.0, -0.005], [-0.005, 0.005, 0.0], [0.0, -0.005, 0.005]]
    layout = in_rounds([[-0.05, 0.0, 0.05], *(pattern[number % 3] for number in range(12))], forward=True)
    against_noisy, quiet = layout.difference(1, 0), layout.difference(1, 2)
    assert against_noisy.se == pytest.approx(0.055 / math.sqrt(3)), "of pairs: 0.055, 0 and -0.055 apart"
    assert against_noisy.df == pytest.approx(2)
    assert quiet.se == pytest.approx(0.005 * math.sqrt(2 / 3), rel=0.1)
    assert quiet.df == pytest.approx(4, rel=0.1)


@pytest.mark.parametrize(("cells", "solved"), [(2, 1), (4, 6)])
def test_a_fit_is_made_again_only_while_weights_change(monkeypatch: pytest.MonkeyPatch, cells: int, solved: int) -> None:
    """Of two cells the variances are equal, so the weights stay; a noisy cell's move with each of the passes."""
    rows = random_rows(1, cells, 3)
    rows[0] = [-0.5, 0.0, 0.55]
    found, inverse = list[object](), layout_module._inverse
    monkeypatch.setattr(layout_module, "_inverse", lambda normal: found.append(normal) or inverse(normal))
    count = 3 * cells
    numbers = [cell for cell in range(cells) for _ in range(3)]
    layout = Layout([value for row in rows for value in row], numbers, [0, 1, 2] * cells, np.zeros(count))
    assert np.isfinite(layout._fit.effects).all() and len(found) == solved


def test_cells_whose_spreads_differ_are_compared_in_pairs() -> None:
    rows = random_rows(3, 6, 3, 0.005)
    rows[0] = [-0.05, 0.0, 0.05]
    layout = in_rounds(rows)
    assert layout.spreads_differ(0, 1) and layout.spreads_differ(1, 0)
    found, paired = layout.difference(1, 0), stats.ttest_rel(rows[1], rows[0])
    assert (found.p_value, found.df) == (pytest.approx(paired.pvalue), pytest.approx(2))


def test_pairs_without_an_interval_leave_cells_of_different_spreads_to_the_whole_layout() -> None:
    """Two cells with one round in common: a pair alone has no error."""
    values = [0.0, 0.1, -0.12, 0.001, 0.0, 0.0005, 0.0, 0.001, 0.0005, 0.0002, 0.0]
    layout = Layout(values, [0] * 3 + [1] * 3 + [2] * 5, [0, 1, 2, 2, 3, 4, 0, 1, 2, 3, 4], np.zeros(11))
    assert layout.spreads_differ(0, 1) and not layout.rounds_differ
    assert layout.difference(0, 1).se == pytest.approx(0.06151185, rel=1e-5)


@pytest.mark.parametrize(("ratio", "expected"), [(4.9, False), (5.3, True)])
def test_two_trials_spreads_differ_from_a_factor_of_five_on(ratio: float, expected: bool) -> None:
    """F with 1 and 1 degrees of freedom exceeds 5.03 squared with a chance of 1 in 8. Rounds have no effect, as cells come in opposites."""
    rows = [[1.0, -1.0], [-1.0, 1.0], [ratio, -ratio], [-ratio, ratio]] + [[1.0, -1.0], [-1.0, 1.0]] * 20
    cells = [cell for cell in range(len(rows)) for _ in range(2)]
    assert Layout(np.ravel(rows), cells, [1, 2] * len(rows), np.zeros(len(cells))).spreads_differ(0, 2) is expected


def test_spreads_that_are_not_known_do_not_differ() -> None:
    layout = in_rounds([[0.0, None], [1.0, -1.0], [2.0, 5.0]])  # type: ignore[list-item]
    assert not layout.spreads_differ(0, 1)
    assert not in_rounds([[1.0, -1.0], [90.0, -3.0]]).spreads_differ(0, 1), "of two cells alone they cannot be told apart"


def test_a_missing_trial_leaves_its_round_out_of_the_cells_mean() -> None:
    """Cell 0 did not run in round 3, in which all others were faster by 1: the difference is that of the rounds it has."""
    rows: list[list[float | None]] = [[0.0, 0.1, None], [1.0, 1.1, 2.05], [1.0, 1.1, 2.05], [1.0, 1.1, 2.05]]
    found = in_rounds(rows).difference(1, 0)  # type: ignore[arg-type]
    assert found.value == pytest.approx(1.0)
    assert found.n == 2


def test_cells_without_a_round_in_common_are_compared_without_rounds() -> None:
    layout = Layout([1.0, 1.2, 3.0, 3.4], [0, 0, 1, 1], [1, 2, 3, 4], [0, 1, 2, 3])
    found = layout.difference(1, 0)
    welch = stats.ttest_ind([3.0, 3.4], [1.0, 1.2], equal_var=False)
    assert found.value == pytest.approx(2.1)
    assert (found.p_value, found.df) == (pytest.approx(welch.pvalue), pytest.approx(welch.df))


def test_a_single_trial_is_unbounded_unless_its_spread_is_known() -> None:
    rows: list[list[float | None]] = [[0.0, None], [0.5, 0.52], [0.5, 0.48], [0.6, 0.6]]
    unknown = in_rounds(rows).difference(1, 0)  # type: ignore[arg-type]
    assert (unknown.low, unknown.high, unknown.se, unknown.n) == (-math.inf, math.inf, math.inf, 1)
    known = in_rounds(rows, known={0: Spread(0.03, 8)}).difference(1, 0)  # type: ignore[arg-type]
    assert known.se > 0.03 and known.df > 8, "its own error besides that of the other side"
    bare = in_rounds([[0.0], [0.5]], known={0: Spread(0.03, 8), 1: Spread(0.03, 8)}).difference(1, 0)
    assert (bare.se, bare.df) == (pytest.approx(0.03 * math.sqrt(2)), pytest.approx(8))


def test_single_trials_of_two_spreads_each_bring_their_own() -> None:
    found = in_rounds([[0.0], [0.5], [0.7]], known={0: Spread(0.03, 8), 1: Spread(0.04, 5)})
    apart = found.difference(1, 0)
    assert (apart.se, apart.df) == (pytest.approx(0.05), pytest.approx(0.05**4 / (0.03**4 / 8 + 0.04**4 / 5)))
    assert math.isinf(found.difference(2, 0).se), "of the third nothing is known"


def test_what_the_steps_show_is_a_floor() -> None:
    rows = [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    assert in_rounds(rows).difference(1, 0).se == 0
    found = in_rounds(rows, errors=[0.03] * 3 + [0.04] * 2 + [math.inf]).difference(1, 0)
    assert found.se == pytest.approx(math.sqrt(3 * 0.03**2 + 2 * 0.04**2) / 3), "steps that say nothing add nothing"


def test_a_third_repeat_narrows_intervals() -> None:
    """Medians of 80 layouts of five cells: t with 1 to 2 degrees of freedom becomes t with 2 to 4."""
    widths = {}
    for rounds in (2, 3, 5):
        layouts = [in_rounds(random_rows(seed, 5, rounds)) for seed in range(80)]
        widths[rounds] = float(np.median([layout.difference(1, 0).half_width for layout in layouts]))
    assert widths[2] / widths[3] > 1.8
    assert 1.3 < widths[3] / widths[5] < 2.2


@pytest.mark.parametrize("noise", ["equal", "noisy baseline", "rounds"])
def test_intervals_hold_the_truth_in_95_of_100(noise: str) -> None:
    random, held, draws = np.random.default_rng(7), 0, 200
    for _ in range(draws):
        values = 0.01 * random.normal(size=(5, 3))
        values[0] *= 10 if noise == "noisy baseline" else 1
        values += (0.05 if noise == "rounds" else 0.0) * random.normal(size=(1, 3))
        found = in_rounds([list(row) for row in values]).difference(4, 0)
        held += found.low <= 0 <= found.high
    assert 0.90 <= held / draws <= 0.98  # 0.015 is one standard deviation


def test_what_is_no_layout() -> None:
    for values, cells in (([], []), ([1.0], [0, 1]), ([math.nan], [0])):
        with pytest.raises(ValueError, match="finite values"):
            Layout(values, cells, [1] * len(cells), [0] * len(cells))
    with pytest.raises(KeyError):
        in_rounds([[1.0], [2.0]]).difference(0, 5)


def test_the_floor_adds_up_what_each_trial_contributes() -> None:
    """Without noise the error is that of the trials alone, each with its coefficient in the fit of cells and rounds, holes included."""
    rows: list[list[float | None]] = [[0.0, 0.0, 0.0], [0.0, None, 0.0], [0.0, 0.0, 0.0], [None, 0.0, 0.0]]
    trials = [(cell, round_) for cell, row in enumerate(rows) for round_, value in enumerate(row) if value is not None]
    errors = np.random.default_rng(3).uniform(0.5, 2.0, len(trials))
    design = np.array([[*(cell == c for c in range(4)), *(round_ == r for r in (1, 2))] for cell, round_ in trials], float)
    coefficients = np.linalg.pinv(design).T @ np.array([1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
    cells, rounds = zip(*trials, strict=True)
    found = Layout(np.zeros(len(trials)), cells, rounds, [0.0] * len(trials), errors=errors).difference(0, 1)
    assert found.se == pytest.approx(math.sqrt(float(coefficients**2 @ errors**2)))


HOST = 0.03  # by how much the second host is faster, of the logarithm


def on_hosts(hosts: Sequence[str], *, noise: Sequence[Sequence[float]] | None = None, **more: object) -> Layout:
    """Equal cells, one for each word of `hosts`, whose letters are the hosts of its repeats: b is faster than a; `-` is a missing trial."""
    trials = [
        (
            (HOST if host == "b" else 0.0) + (noise[cell][repeat] if noise else 0.0),
            cell,
            repeat,
            repeat * len(hosts) + cell,
            "ab".index(host),
        )
        for cell, word in enumerate(hosts)
        for repeat, host in enumerate(word)
        if host != "-"
    ]
    values, cells, rounds, places, stretches = zip(*trials, strict=True)
    return Layout(values, cells, rounds, places, stretches=stretches, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("hosts", [("aab", "abb"), ("aaab", "aabb", "abbb"), ("aaa", "aba", "abb", "bbb"), ("ab", "ba", "aa")])
def test_what_a_host_does_to_its_trials_cancels_however_cells_are_spread_over_hosts(hosts: Sequence[str]) -> None:
    layout = on_hosts(hosts)
    for cell in range(1, len(hosts)):
        assert layout.difference(cell, 0).value == pytest.approx(0.0, abs=1e-12), "and not a share of the 3 %"
        assert not layout.apart(cell, 0)
    assert len({round(layout.level(cell), 12) for cell in range(len(hosts))}) == 1, "so none is ranked before another"


def test_a_round_that_two_hosts_share_leaves_the_pairs_of_the_others() -> None:
    """Round 3 has one cell on each host: nothing is beside either trial, so what is left is the paired t of two rounds."""
    noise = random_rows(3, 2, 3, 0.001)
    found = on_hosts(["aaa", "aab"], noise=noise).difference(1, 0)
    pairs = in_rounds([row[:2] for row in noise]).difference(1, 0)
    assert (found.value, found.se, found.df) == pytest.approx((pairs.value, pairs.se, pairs.df))
    assert on_hosts(["aaa", "aab"]).trials(1, 0) == (2, 2)


@pytest.mark.parametrize(
    ("hosts", "counted"),
    [
        (("aaa", "bbb"), (0, 0)),
        (("aaa", "aaa", "bbb"), (0, 0)),
        (("abb", "bba", "b--"), (3, 1)),
        (("aab", "aaa"), (2, 2)),
        (("ab", "aa"), (1, 1)),
        (("aaa", "aaa"), (3, 3)),
    ],
)
def test_trials_that_nothing_is_beside_do_not_count(hosts: Sequence[str], counted: tuple[int, int]) -> None:
    """Between the first cell and the last one."""
    layout = on_hosts(hosts, noise=random_rows(5, len(hosts), 3, 0.001))
    assert layout.trials(0, len(hosts) - 1) == counted
    assert layout.apart(0, len(hosts) - 1) is (counted == (0, 0))


def test_a_trial_that_is_alone_in_its_round_does_not_count() -> None:
    """Two cells of which one lost its first trial and the other its last have one pair, though two trials each."""
    values = [0.0, 0.001, 0.1, 0.101]
    assert Layout(values, [0, 0, 1, 1], [1, 2, 2, 3], range(4)).trials(0, 1) == (1, 1)
    assert Layout([*values, 0.05, 0.05], [0, 0, 1, 1, 2, 2], [1, 2, 2, 3, 1, 3], range(6)).trials(0, 1) == (2, 2), "a third beside them"
    assert Layout(values, [0, 0, 1, 1], [1, 2, 3, 4], range(4)).trials(0, 1) == (2, 2), "no round in common: rounds are left out"


def test_trials_are_counted_in_what_the_difference_is_made_of() -> None:
    """Six cells of which every second one is hit by the rounds: then two are compared by their common rounds alone, here by one, and the
    others' trials in further rounds are beside none of theirs."""
    draw, missing = np.random.default_rng(0), {(0, 3), (0, 4), (0, 5), (1, 0), (1, 1)}
    effects = draw.normal(scale=0.05, size=6)
    rows = [[None if (c, r) in missing else draw.normal(scale=0.003) + effects[r] * (c % 2) for r in range(6)] for c in range(6)]
    layout = in_rounds(rows, known=dict.fromkeys((0, 1), Spread(0.003, 30)))
    assert layout.rounds_differ and layout.difference(0, 1).se == pytest.approx(math.sqrt(2) * 0.003), "a pair with a known spread"
    assert layout.trials(0, 1) == (1, 1) and layout.trials(2, 3) == (6, 6)


def test_cells_of_two_hosts_are_not_compared() -> None:
    layout = on_hosts(["aaa", "bbb"], noise=random_rows(7, 2, 3, 0.0005), known=dict.fromkeys((0, 1), Spread(0.001, 20)))
    found = layout.difference(1, 0)
    assert (found.low, found.high, found.se) == (-math.inf, math.inf, math.inf)
    assert found.value == pytest.approx(HOST, abs=0.002), "the plain difference, which says nothing"


def test_a_third_cell_connects_two_that_no_host_has_both_of() -> None:
    found = on_hosts(["aaaa", "aabb", "bbbb"]).difference(2, 0)
    assert found.value == pytest.approx(0.0, abs=1e-12)


def test_equal_cells_spread_unevenly_over_two_hosts_are_seldom_told_apart() -> None:
    """500 sweeps of three equal cells, trials 0.3 % apart, hosts 3 % apart: 1 % of verdicts is what is promised."""
    random, told = np.random.default_rng(11), 0
    for _ in range(500):
        words = ["".join(random.choice(list("ab"), 5)) for _ in range(3)]
        layout = on_hosts(words, noise=(0.003 * random.normal(size=(3, 5))).tolist())
        told += any(verdict(exponential(layout.difference(cell, 0)), minimum=0.005) in (Verdict.FASTER, Verdict.SLOWER) for cell in (1, 2))
    assert told <= 10, "of 500 pairs of comparisons; 5 are expected at most"
