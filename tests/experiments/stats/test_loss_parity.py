"""The loss-parity gate's band, in numbers worked out by hand. Simulated curves are in test_summary."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from experiments.stats.loss_parity import loss_parity

QUARTILE = 0.6744897502  # 75 % of the normal distribution
Z_10 = 3.290526731  # two-sided 1 % over ten windows: 1 - 0.01 / 20


def saw(n: int, step: float = 0.2) -> np.ndarray:
    """Losses about 2 that change by `step` every time, so that the noise seen in the differences is known."""
    return 2 + step / 2 * np.where(np.arange(n) % 2, -1, 1)


def test_the_band_is_z_noise_and_the_root_of_two_over_the_window() -> None:
    found = loss_parity(saw(50), saw(50))
    noise = 0.2 / (math.sqrt(2) * QUARTILE)
    assert found.half_width == pytest.approx(np.full(10, Z_10 * noise * math.sqrt(2 / 5)))
    assert found.steps.tolist() == [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]
    assert found.reference == pytest.approx([2.02, 1.98] * 5)  # three of five steps up, then two
    longer = loss_parity(saw(205), saw(205))
    assert longer.steps.tolist() == list(range(20, 201, 20)), "a tenth of the curve to a window; what is left over is not judged"
    assert longer.half_width == pytest.approx(np.full(10, Z_10 * noise * math.sqrt(2 / 20)))
    few = loss_parity(saw(12), saw(12))
    assert few.half_width == pytest.approx(np.full(2, stats.norm.isf(0.01 / 4) * noise * math.sqrt(2 / 5)))


def test_a_spike_does_not_widen_the_band() -> None:
    spiked = saw(50)
    spiked[[7, 22]] = 9.0
    assert loss_parity(spiked, spiked).half_width == pytest.approx(loss_parity(saw(50), saw(50)).half_width)
    gap = saw(50)
    gap[3] = math.nan
    found = loss_parity(gap, saw(50))
    assert found.half_width[1:] == pytest.approx(loss_parity(saw(50), saw(50)).half_width[1:])


@pytest.mark.parametrize("sign", [-1, 1])
def test_half_a_percent_of_the_loss_is_always_allowed(sign: int) -> None:
    level = np.full(50, 4.0)
    found = loss_parity(level, level + sign * 0.0199)
    assert found.half_width == pytest.approx(np.full(10, 0.02))
    assert (found.inside, found.left_at, found.worst) == (True, None, pytest.approx(0.995))
    out = loss_parity(level, level + sign * 0.0201)
    assert (out.inside, out.left_at, out.worst) == (False, 1, pytest.approx(1.005))
    assert loss_parity(-level, -level).half_width == pytest.approx(np.full(10, 0.02))


def test_a_curve_on_the_bands_edge_is_inside() -> None:
    found = loss_parity(np.full(5, 3.125), np.full(5, 3.125 + 0.005 * 3.125))  # a value at which nothing is rounded away
    assert (found.worst, found.inside) == (1.0, True)


def test_the_first_step_outside_is_told_and_the_worst_window() -> None:
    level = np.full(200, 4.0)
    left = level + np.where(np.arange(200) >= 59, 0.5, 0) + np.where(np.arange(200) >= 100, -0.9, 0)
    found = loss_parity(level, left)
    assert found.left_at == 41  # the third window's mean is up by a twentieth of 0.5
    assert found.worst == pytest.approx(0.5 / 0.02)
    assert loss_parity(level, np.where(np.arange(200) == 199, math.inf, level)).left_at == 181


def test_repeats_of_the_reference_widen_the_band_to_their_spread() -> None:
    level = np.full(50, 2.0)
    one = loss_parity(level, level, others=[level + 0.1])
    assert one.half_width == pytest.approx(np.full(10, Z_10 * 0.1))  # sd 0.1 / sqrt(2), of a difference 0.1
    two = loss_parity(level, level, others=[level + 0.1, level - 0.3])
    assert two.half_width == pytest.approx(np.full(10, Z_10 * math.sqrt((0.1**2 + 0.3**2) / 2)))
    noisy = loss_parity(saw(50), saw(50), others=[saw(50) + 0.01])
    assert noisy.half_width == pytest.approx(loss_parity(saw(50), saw(50)).half_width), "the larger of the two"


def test_a_repeat_that_ended_early_says_nothing_and_one_as_long_does() -> None:
    level = np.full(50, 2.0)
    assert loss_parity(level, level, others=[level[:49] + 0.1]).half_width == pytest.approx(np.full(10, 0.01))
    assert loss_parity(level, level[:40], others=[level[:40] + 0.1]).half_width[0] > 0.1


def test_only_steps_in_common_are_judged() -> None:
    level = np.full(50, 4.0)
    for reference, curve in ((level, level[:9]), (level[:9], level)):
        found = loss_parity(reference, curve)
        assert (found.steps.tolist(), found.reference.tolist()) == ([5], [4.0])
    assert loss_parity(level[:5], level[:5]).inside
    for reference, curve in ((level, level[:4]), (level[:4], level)):
        with pytest.raises(ValueError, match="4 steps in common"):
            loss_parity(reference, curve)
