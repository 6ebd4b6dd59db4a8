"""Two quiet cells among noisy ones: what the noisy ones make of the rounds is not theirs, so their own rounds compare them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from tests.experiments.stats.layout_support import in_rounds

QUIET, NOISY = 0.003, 0.15


def drawn(seed: int, sds: Sequence[float], rounds: int = 3) -> list[list[float]]:
    random = np.random.default_rng(seed)
    return [list(sd * random.normal(size=rounds)) for sd in sds]


def test_quiet_cells_among_noisy_ones_are_compared_by_the_paired_t_test() -> None:
    rows = [[0.612, 0.615, 0.610], [0.0, 0.001, 0.001], [0.1, -0.12, 0.15], [0.2, 0.05, -0.1], [-0.05, 0.2, 0.1], [0.0, 0.3, 0.05]]
    layout = in_rounds(rows)
    assert not layout.rounds_differ and not layout.spreads_differ(0, 1)
    found, paired = layout.difference(0, 1), stats.ttest_rel(rows[0], rows[1])
    assert (found.p_value, found.df) == (pytest.approx(paired.pvalue), pytest.approx(2))
    assert layout.difference(1, 0).se == pytest.approx(found.se)
    assert found.half_width < 0.03


def test_cells_that_are_as_noisy_as_the_others_borrow_from_them() -> None:
    rows = drawn(3, [QUIET] * 6)
    found, pairs = in_rounds(rows).difference(0, 1), in_rounds(rows[:2]).difference(0, 1)
    assert found.df > 2.5 and found.half_width < 0.8 * pairs.half_width


def test_pairs_that_tie_are_no_smaller_error() -> None:
    """As counts do: three equal differences of two cells do not say that they never vary."""
    rows = [[1.0, 2.0, 1.0], [2.0, 3.0, 2.0], [4.0, 1.0, 3.0], [2.0, 5.0, 4.0], [1.0, 1.0, 4.0]]
    layout = in_rounds(rows)
    assert not layout.rounds_differ and not layout.spreads_differ(0, 1)
    assert layout.difference(1, 0).se > 0.1


@pytest.mark.parametrize("rounds", [3, 5])
@pytest.mark.parametrize(("quiet", "noisy"), [(2, 2), (2, 4), (4, 4), (6, 0)])
def test_intervals_hold_the_truth_and_are_as_narrow_as_pairs(rounds: int, quiet: int, noisy: int) -> None:
    held, widths, draws = 0, [], 200
    for seed in range(draws):
        rows = drawn(seed, [QUIET] * quiet + [NOISY] * noisy, rounds)
        found, pairs = in_rounds(rows).difference(0, 1), in_rounds(rows[:2]).difference(0, 1)
        held += found.low <= 0 <= found.high
        widths.append((found.half_width, pairs.half_width))
    assert 0.90 <= held / draws <= 0.99  # 0.015 is one standard deviation
    ours, of_pairs = np.median(np.array(widths), axis=0)
    assert ours < (1.35 if noisy else 0.95) * of_pairs
