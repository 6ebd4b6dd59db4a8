"""Levels of repeated looks: what they spend, and how often they err."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from experiments.stats.interim_levels import interim_levels, look_levels, next_look
from experiments.stats.interim_looks import Look


def test_interim_levels_spend_the_whole_alpha_and_nearly_all_of_it_at_the_end() -> None:
    levels = interim_levels([3, 5, 8], 0.01)
    assert sum(levels) == pytest.approx(0.01)
    assert levels == sorted(levels) and levels[0] < 1e-4 and levels[-1] > 0.008
    assert interim_levels([4], 0.01) == pytest.approx([0.01])
    for wrong in ([], [3, 3], [5, 3], [0, 2]):
        with pytest.raises(ValueError, match="rising numbers of repeats"):
            interim_levels(wrong, 0.01)


def test_interim_levels_by_hand() -> None:
    # what O'Brien and Fleming have spent by a share s of the repeats: 2 * (1 - Phi(z / sqrt(s))), z = 2.5758 for 0.01
    spent = [2 * stats.norm.sf(2.5758293035 / np.sqrt(count / 8)) for count in (3, 5)] + [0.01]
    assert spent[:2] == pytest.approx([2.5981e-5, 0.0011218], rel=1e-3)
    assert interim_levels([3, 5, 8], 0.01) == pytest.approx([spent[0], spent[1] - spent[0], spent[2] - spent[1]])
    assert interim_levels([1, 4], 0.05) == pytest.approx([8.8575e-5, 0.05 - 8.8575e-5], rel=1e-4)
    with pytest.raises(ValueError, match="rising numbers of repeats"):
        interim_levels([1, 4, 4], 0.01)


def planned(rounds: range, last: int, before: list[Look] | None = None) -> list[Look]:
    looks = list(before or [])
    for at in rounds:
        looks.append(next_look(looks, at, last))
    return looks


def test_a_budget_spends_three_quarters_and_a_larger_one_of_what_is_left() -> None:
    looks = planned(range(3, 9), 8)
    assert [look.spent for look in looks] == pytest.approx([0.75 * (at / 8) ** 2 for at in range(3, 9)])
    more = planned(range(9, 13), 12, looks)
    assert [look.spent for look in more[6:]] == pytest.approx([0.75 + 0.1875 * (place / 4) ** 2 for place in (1, 2, 3, 4)])
    assert next_look(more, 13, 13).spent == pytest.approx(1 - 0.25**3)
    for at in range(14, 60):
        more.append(next_look(more, at, at))
    assert more[-1].spent <= 1.0


def test_what_fits_may_change_from_look_to_look() -> None:
    looks = [next_look([], 3, 8)]
    assert next_look(looks, 4, 4).spent == 0.75, "no other round fits: the rest of the stage"
    assert next_look(looks, 4, 20).spent == looks[0].spent, "nothing is taken back"
    for at, last in ((3, 8), (2, 8), (5, 4)):
        with pytest.raises(ValueError, match="does not follow"):
            next_look(looks, at, last)


def test_one_look_has_the_share_that_it_may_spend() -> None:
    assert look_levels([Look(round=3, spent=0.75)], 0.005) == pytest.approx([0.00375])
    assert look_levels([], 0.05) == []
    same = look_levels([Look(round=3, spent=0.5), Look(round=4, spent=0.5)], 0.05)
    assert same[0] == pytest.approx(0.025) and same[1] == 0.0


def test_levels_by_pocock_and_by_hand() -> None:
    # Jennison & Turnbull 2000, table 2.1: five equal looks at 5 % are held to |z| > 2.413, that is to 0.0158 each
    level, total, looks = 0.01582, 0.0, list[Look]()
    random = np.random.default_rng(1)
    sums = np.cumsum(random.normal(size=(100_000, 5)), axis=1) / np.sqrt(np.arange(1, 6))
    crossed = np.maximum.accumulate(np.abs(sums) > 2.413, axis=1).mean(axis=0)
    for at, share in enumerate(crossed, 1):
        looks.append(Look(round=at, spent=float(share) / 0.05))
        total = float(share)
    assert total == pytest.approx(0.05, abs=0.002)
    assert look_levels(looks, 0.05) == pytest.approx([level] * 5, rel=0.05)


def test_the_level_of_a_second_look_is_that_of_the_integral() -> None:
    """P(|Z1| < z1 and |Z2| > z2) with Z2 = (Z1 + a normal of its own) / sqrt(2) is what the second look may spend: 1 %."""
    first, second, *_ = look_levels([Look(round=at, spent=at / 5) for at in range(1, 6)], 0.05)
    z1, z2 = stats.norm.isf(first / 2), stats.norm.isf(second / 2)

    def errs(x: float) -> float:
        edge = z2 * np.sqrt(2)
        return float(stats.norm.pdf(x) * (stats.norm.sf(edge - x) + stats.norm.cdf(-edge - x)))

    assert first == pytest.approx(0.01)
    assert integrate.quad(errs, -z1, z1)[0] == pytest.approx(0.01, rel=1e-4)


def test_looks_err_as_often_as_they_may_and_no_more() -> None:
    looks = planned(range(3, 9), 8)
    sums = np.cumsum(np.random.default_rng(2).normal(size=(100_000, 8)), axis=1)[:, 2:] / np.sqrt(np.arange(3, 9))
    p = 2 * stats.norm.sf(np.abs(sums))
    erred = np.maximum.accumulate(p < look_levels(looks, 0.05), axis=1).mean(axis=0)
    assert erred == pytest.approx([0.05 * look.spent for look in looks], abs=0.002)
