"""Other projects' rules in numbers worked out by hand or with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks.rules import RULES, _p, laplace_interval

BY_NAME = {rule.name: rule for rule in RULES}


@pytest.mark.parametrize("samples", [[1.0, 1.3, 1.9], [1.0, 1.02, 1.05, 1.5], [3.0, 3.1, 3.15, 3.2, 3.4, 9.0]])
def test_asvs_interval_of_few_samples_is_that_of_the_posterior_under_laplace_noise(samples: list[float]) -> None:
    y = np.array(samples)
    low, high = (float(side) for side in laplace_interval(y))

    def density(place: float) -> float:
        return float(np.abs(y - place).sum() / y.std()) ** -y.size

    inner = integrate.quad(density, y[0], y[-1], points=y[1:-1], limit=200)[0]
    below, above = integrate.quad(density, -np.inf, y[0])[0], integrate.quad(density, y[-1], np.inf)[0]
    whole = inner + below + above
    tails = (integrate.quad(density, -np.inf, low)[0] / whole, integrate.quad(density, high, np.inf)[0] / whole)
    for tail, side, end, edge in zip(tails, (below, above), (low, high), (y[0], y[-1]), strict=True):
        if side / whole > 0.005:
            assert tail == pytest.approx(0.005, rel=1e-4)
        else:
            assert end == edge, "at least the samples' range"


def test_otavas_p_is_students_with_population_deviations() -> None:
    series = np.array([1.0, 1.2, 0.9, 1.1, 2.0, 2.2, 2.1])
    left, right = series[:4], series[4:]
    expected = stats.ttest_ind_from_stats(left.mean(), left.std(), 4, right.mean(), right.std(), 3).pvalue
    assert _p(series, [4], 4) == pytest.approx(expected)
    assert _p(np.array([1.0, 2.0]), [1], 1) == 1.0
    assert (_p(np.ones(6), [3], 3), _p(np.array([1.0, 1, 1, 2, 2, 2]), [3], 3)) == (1.0, 0.0)


@pytest.mark.parametrize(("name", "edge"), [("TorchBench 7 %", 0.07), ("conbench 5 %", 0.05)])
def test_thresholds_on_the_change_since_the_night_before(name: str, edge: float) -> None:
    past = np.zeros((2, 4))
    for change, alarm in ((edge + 0.001, True), (edge - 0.001, False)):
        now = np.full(4, -np.log1p(change)) if name.startswith("Torch") else np.full(4, np.log1p(-change))
        assert bool(BY_NAME[name].score(past, now) > BY_NAME[name].stock) is alarm


def test_asv_wants_a_tenth_and_a_difference() -> None:
    past = np.tile(np.linspace(-0.01, 0.01, 7), (2, 1))
    rule = BY_NAME["asv"]
    assert rule.score(past, past[0] - np.log(1.101)) > rule.stock > rule.score(past, past[0] - np.log(1.099))
    few, apart = past[:, :3], np.array([-0.5, -0.15, -0.12])
    assert rule.score(few, few[0] - np.log(1.5)) > rule.stock and rule.score(few, apart) == 0, "three samples far apart say nothing"


def test_conbenchs_z_is_of_tonights_mean_among_the_past() -> None:
    past = np.log(np.repeat([[1.0], [1.1], [0.9], [1.0]], 3, axis=1))
    means = np.array([1.0, 1.1, 0.9, 1.0])
    assert float(BY_NAME["conbench z"].score(past, np.log(np.full(3, 0.8)))) == pytest.approx(0.2 / means.std(ddof=1))


def test_otava_sees_a_step_at_tonight_and_none_in_noise() -> None:
    random = np.random.default_rng(3)
    past = 0.002 * random.normal(size=(49, 3))
    rule = BY_NAME["Otava"]
    assert float(rule.score(past[None], (past[-1] - 0.1)[None])[0]) > rule.stock > float(rule.score(past[None, :-1], past[None, -1])[0])
