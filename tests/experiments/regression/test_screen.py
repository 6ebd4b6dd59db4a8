"""What a night measures again in pairs."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.regression.effect import NightEffect
from experiments.regression.screen import BETTER, NOTHING, WORSE, looks_changed

EDGE = 0.5 * np.log(1.03)


def effect(relative: list[float], raw: list[float]) -> NightEffect:
    same = np.full(len(raw), 0.01)
    return NightEffect(np.array(relative), same, same, np.array(raw), same, same, same)


@pytest.mark.parametrize("sign", [-1, 1])
def test_half_of_what_matters_is_measured_again_and_less_is_not(sign: int) -> None:
    found = looks_changed(effect([sign * EDGE * 1.001, sign * EDGE * 0.999, 0.0], [0.0, 0.0, sign * EDGE * 1.001]), 0.03)
    assert found.tolist() == [sign, NOTHING, sign]
    assert (WORSE, BETTER) == (-1, 1)


def test_each_cell_has_its_own_smallest_change() -> None:
    assert looks_changed(effect([-0.02, -0.02], [-0.02, -0.02]), np.array([0.03, 0.05])).tolist() == [WORSE, NOTHING]


def test_the_larger_of_raw_and_relative_says_the_direction() -> None:
    assert looks_changed(effect([-0.02, -0.04], [0.03, 0.03]), 0.03).tolist() == [BETTER, WORSE]


def test_a_cell_without_a_baseline_is_not_screened() -> None:
    assert looks_changed(effect([np.nan], [np.nan]), 0.03).tolist() == [NOTHING]
