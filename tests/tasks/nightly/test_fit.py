"""What a cell without history is expected to take, and which cells then do not fit."""

from __future__ import annotations

import pytest

from experiments.regression.definition import NightFile
from tasks.nightly.fit import drop
from tasks.nightly.plan import round_seconds
from tasks.nightly.store import NightCell
from tests.tasks.nightly.night_support import DEFINITION, cell


def cells(known_s: float) -> list[NightCell]:
    """One that takes so long, s, and is worth twice as much as the other, without history."""
    return [cell("known").model_copy(update={"expected_s": known_s, "value": 2.0}), cell("new")]


@pytest.mark.parametrize(
    ("window_s", "known_s", "budget_s", "fits"), [(50.0, 2.0, 156.0, True), (50.0, 2.0, 155.0, False), (1.0, 20.0, 119.0, False)]
)
def test_a_cell_without_history_takes_its_window_or_as_long_as_the_others(
    window_s: float, known_s: float, budget_s: float, fits: bool
) -> None:
    """Three trials of each: 3 x 2 s and 3 x 50 s; 3 x 20 s twice, although the window is short."""
    dropped = drop(cells(known_s), [0.0, window_s], three_repeats(), budget_s)
    assert [entry.name for entry in dropped] == ([] if fits else ["new"])


def test_a_long_window_of_a_cell_without_history_is_told() -> None:
    [entry] = drop(cells(2.0), [0.0, 50.0], three_repeats(), 60.0)
    assert (entry.name, entry.why) == (
        "new",
        "value 1, 150 s without history, as the pool's other cells: does not fit the budget of 60 s",
    )


@pytest.mark.parametrize(("budget_s", "left_out"), [(6.0, []), (5.9, ["one"])])
def test_where_nothing_is_known_a_trial_takes_a_second_at_least(budget_s: float, left_out: list[str]) -> None:
    both = [cell("one"), cell("two").model_copy(update={"value": 2.0})]
    dropped = drop(both, [0.0, 0.5], three_repeats(), budget_s)
    assert [entry.name for entry in dropped] == left_out
    assert all(entry.why.startswith("value 1, 3 s at least, without history: ") for entry in dropped)


@pytest.mark.parametrize(("pool", "fits"), [("cuda", False), ("a100", True)])
def test_pools_of_one_machine_share_the_budget(pool: str, fits: bool) -> None:
    """Three trials of 20 s on each of two pools, in 119 s."""
    both = [cell("one"), cell("two").model_copy(update={"pool": pool, "value": 2.0})]
    both = [each.model_copy(update={"expected_s": 20.0}) for each in both]
    assert [entry.name for entry in drop(both, [0.0, 0.0], three_repeats(), 119.0)] == ([] if fits else ["one"])
    assert drop(both, [0.0, 0.0], three_repeats(), 120.0) == []
    assert round_seconds(both) == (20.0 if fits else 40.0)


def three_repeats() -> NightFile:
    return DEFINITION.model_copy(update={"repeats": 3})
