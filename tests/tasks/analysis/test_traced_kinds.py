"""Of which kinds traced steps were, of workloads with several, and what is left out where they are not the mix of all."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from experiments.workloads.flava.batches import kinds
from tasks.analysis.traced_kinds import NOT_RECORDED, with_kinds
from tasks.analysis.trial_row import LEFT_OUT
from tasks.analysis.waterfall import traced, waterfall_of, why_left_out
from tests.tasks.cell_support import made, row

TOLD = {"ranks": [{"rank": 0}], "products": [], "not_measured": {}}
SEED = 5  # of which the fifth round does not begin with what the one before it ends with
LAST = 12  # the window's last step, the end of a round


def steps_of(names: list[str | None]) -> list[dict[str, Any]]:
    return [{"step": number, **({"step_kind": name} if name else {})} for number, name in enumerate(names, 1)]


def found(names: list[str | None], profile: dict[str, Any], workload: str = "flava", **parameters: Any) -> dict[str, Any]:
    """Of a trial whose steps up to the window's last were of these kinds."""
    trial = row({"pool": "cuda"}, workload=workload, parameters={"seed": SEED, "kinds": "balanced", **parameters}).trial
    return with_kinds({"where": "device", "steps": 4, **TOLD, **profile}, trial, {"last_measured_step": len(names)}, steps_of(names))


@pytest.mark.parametrize("names", [[None] * 6, ["a"] * 6])
def test_of_steps_of_one_kind_all_is_told(names: list[str | None]) -> None:
    assert found(names, {}) == {"where": "device", "steps": 4, **TOLD}


@pytest.mark.parametrize(
    ("told", "whole"), [("aabc", True), ("abca", True), ("abab", False), ("aabb", False), ("abcabca", True), ("abcab", False), ("a", False)]
)
def test_of_several_kinds_what_was_reached_is_told_where_each_was_traced_as_often(told: str, whole: bool) -> None:
    """The first does not count, unless it is all that was traced."""
    profile = found([*"abcbca"], {"step_kinds": list(told)})
    assert profile["step_kinds"] == list(told) and (profile.keys() >= TOLD.keys()) == whole
    counted = ", ".join(told[1:] or told)
    why = f"not shown, since the traced steps that count ({counted}) are not as many of each kind of step (a, b, c), and FLOPs are of the "
    assert profile.get(LEFT_OUT) == (None if whole else f"{why}mix of all")


def test_of_two_kinds_and_of_micro_batches_these_count() -> None:
    assert LEFT_OUT not in found([*"abba"], {"step_kinds": [*"aba"]})
    assert LEFT_OUT in found([*"abba"], {"step_kinds": [*"aab", "b"]})
    assert LEFT_OUT not in found(["a+b", "a+b"], {"step_kinds": ["a+b"] * 2}, accumulation_steps=2)
    assert LEFT_OUT in found(["a+b", "a"], {"step_kinds": ["a", "a+b", "a"]}, accumulation_steps=2)


def order(seed: int = SEED, *, balanced: bool = True) -> list[str]:
    return list(islice(kinds(seed, balanced=balanced), 40))


@pytest.mark.parametrize("last", range(3, 34))
@pytest.mark.parametrize("balanced", [True, False])
def test_flavas_early_workers_traced_what_follows_the_window_in_the_seeds_order(last: int, balanced: bool) -> None:
    all_kinds = order(balanced=balanced)
    profile = found([*all_kinds[:last]], {}, kinds="balanced" if balanced else "drawn")
    after = all_kinds[last : last + 4]
    assert profile["step_kinds"] == after
    assert (LEFT_OUT in profile) == (sorted(after[1:]) != ["image", "pair", "text"]) == ("ranks" not in profile)


def test_after_a_rounds_end_the_three_that_count_are_a_round_only_where_the_next_begins_with_the_first() -> None:
    all_kinds = order()
    for last in range(3, 34, 3):
        assert (LEFT_OUT in found([*all_kinds[:last]], {})) == (all_kinds[last] != all_kinds[last + 3])


@pytest.mark.parametrize("other", [{"workload": "mine"}, {"seed": SEED + 1}, {"accumulation_steps": 2}, {"kinds": "drawn"}])
def test_where_the_kinds_cannot_be_known_nothing_is_told(other: dict[str, Any]) -> None:
    profile = found([*order()[:LAST]], {}, **other)
    assert profile == {"where": "device", "steps": 4, "step_kinds": [], LEFT_OUT: NOT_RECORDED}


def test_a_trace_of_the_host_has_nothing_to_leave_out() -> None:
    assert LEFT_OUT not in found([*"abcbca"], {"where": "host", "step_kinds": [*"aabb"]})


def test_a_cell_says_why_unless_another_repeat_tells() -> None:
    left, told = {LEFT_OUT: "not shown"}, {"ranks": [{"rank": 0}]}
    first, second = (row({"pool": "cpu"}, repeat=number, profile=one) for number, one in ((1, left), (2, told)))
    [cell], [alone], [untraced] = made([first, second]), made([first]), made([row({"pool": "cpu"})])
    assert traced(cell) is second and why_left_out(cell) is None
    assert waterfall_of(alone) is None and why_left_out(alone) == "not shown"
    assert why_left_out(untraced) is None
