"""What a night measures again in pairs."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.regression.effect import NightEffect
from experiments.regression.screen import BETTER, MOVED, NOTHING, UNSURE, WORSE, looks_changed

EDGE = 0.5 * np.log(1.03)


def effect(relative: list[float], raw: list[float], share: float = 0.0) -> NightEffect:
    same = np.full(len(raw), 0.01)
    return NightEffect(np.array(relative), same, same, np.array(raw), np.full(len(raw), share), same, same)


@pytest.mark.parametrize("sign", [-1, 1])
def test_half_of_what_matters_is_measured_again_and_less_is_not(sign: int) -> None:
    found = looks_changed(effect([sign * EDGE * 1.001, sign * EDGE * 0.999, 0.0], [0.0, 0.0, sign * EDGE * 1.001]), 0.03)
    assert found.tolist() == [sign, NOTHING, sign]
    assert (WORSE, BETTER) == (-1, 1)
    assert looks_changed(effect([sign * 0.5 * np.log1p(0.03)], [0.0]), 0.03).tolist() == [sign], "exactly half"


def test_each_cell_has_its_own_smallest_change() -> None:
    assert looks_changed(effect([-0.02, -0.02], [-0.02, -0.02]), np.array([0.03, 0.05])).tolist() == [WORSE, NOTHING]


def test_raw_and_relative_that_point_to_different_sides_leave_the_direction_open() -> None:
    assert looks_changed(effect([-0.02, -0.04, -0.02], [0.03, -0.03, 0.01]), 0.03).tolist() == [UNSURE, WORSE, WORSE]


def test_a_canary_that_clearly_moved_makes_what_both_may_hide_worth_pairs() -> None:
    small = EDGE / 2
    assert MOVED == 0.75, "1 - (2 / 4)^2: the canary moved by four of its standard errors"
    assert looks_changed(effect([small * 1.01], [-small], MOVED), 0.03).tolist() == [UNSURE]
    assert looks_changed(effect([small * 0.99], [-small], MOVED), 0.03).tolist() == [NOTHING]
    assert looks_changed(effect([small * 1.01], [-small], MOVED - 0.01), 0.03).tolist() == [NOTHING]
    assert looks_changed(effect([-0.02, 0.0], [-0.06, -0.02], MOVED), 0.03).tolist() == [WORSE, UNSURE], "both say worse; only one does"


def test_a_cell_without_a_baseline_is_not_screened() -> None:
    assert looks_changed(effect([np.nan], [np.nan]), 0.03).tolist() == [NOTHING]
