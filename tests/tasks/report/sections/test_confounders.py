"""Section: what differs between compared cells and is not an axis."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tests.tasks.cell_support import made, report_of, row, workers


def test_confounders_are_of_the_cells_that_measured() -> None:
    rows = [
        row(workers(0), environment={"torch": "1"}),
        row(workers(1), environment={"torch": "2"}),
        row(workers(2), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB", parameters={"seed": 1}),  # ended without a rate to compare
    ]
    assert report_of(rows).section("confounders").table.rows == [["torch", "1", "MP-0"], ["torch", "2", "MP-1"]]
    assert "confounders" not in report_of(rows[:1]).section_names


def test_confounders_name_their_cells_in_as_few_words_as_can_be() -> None:
    def who(versions: dict[tuple[str, int], str]) -> dict[str, str]:
        rows = [row(workers(count, pool), environment={"torch": version}) for (pool, count), version in versions.items()]
        return {value: cells for _, value, cells in report_of(rows).section("confounders").table.rows}

    assert who({("a", 0): "1", ("a", 1): "1", ("b", 0): "2", ("b", 1): "2"}) == {"1": "all cells of pool a", "2": "all cells of pool b"}
    assert who({("a", 0): "1", ("b", 0): "2"}) == {"1": "a", "2": "b"}, "a single cell by its own name"
    five = {("a", count): "1" for count in range(5)}
    assert who({**five, ("a", 9): "2"}) == {"1": "the other 5 cells", "2": "MP-9"}
    four = {("a", count): "1" for count in range(4)}
    assert who({**four, ("a", 9): "2"})["1"] == "MP-0, MP-1, MP-2 and MP-3"
    ten = {("a", count): str(count // 5) for count in range(10)}
    assert who(ten)["0"].startswith("MP-0, MP-1,"), "neither half is the other"
    mixed = [row(workers(0), repeat=place, environment={"torch": str(place)}) for place in (1, 2)]
    assert [line[2] for line in report_of(mixed).section("confounders").table.rows] == ["every cell, in some of its repeats"] * 2


def test_cold_and_cached_starts_are_named_where_cells_differ_in_them() -> None:
    def named(*cells: tuple[str, ...]) -> list[tuple[str, str]]:
        rows = [
            row(workers(count), repeat=repeat, environment={"compilation": how})
            for count, repeats in enumerate(cells)
            for repeat, how in enumerate(repeats, 1)
        ]
        names = report_of(rows).section_names
        return [tuple(line[:2]) for line in report_of(rows).section("confounders").table.rows] if "confounders" in names else []

    assert named(("cold",), ("cached",)) == [("compilation", "cold"), ("compilation", "cached")]
    assert named(("cold", "cached"), ("cached", "cached")) == [("compilation", "cold"), ("compilation", "cached")]
    assert named(("cold", "cached"), ("cold", "cached")) == [], "as many of each were cold"
    assert named(("none",), ("cached",)) == [], "the parameter `compile` tells it"
    assert named(("none", "none"), ("cold", "cached")) == [], "one cell that compiles has no other to differ from"
    assert named(("none",), ("cached",), ("cold",)) == [("compilation", "cached"), ("compilation", "cold")]


def test_what_is_done_after_the_window_is_no_difference() -> None:
    later = {"profile_steps": 4, "profile_repeats": 1, "communication_steps": 0}
    rows = [row(workers(0)), row(workers(1), parameters={**later, "prefetch_factor": 4})]
    assert [line[0] for line in report_of(rows).section("confounders").table.rows] == ["prefetch_factor", "prefetch_factor"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"git_commit": "c", "tree": "t"}, []),
        ({"git_commit": "d", "tree": "t"}, ["git_commit", "git_checked"]),
        ({"git_commit": "c", "tree": "u"}, ["tree", "git_checked"]),
        ({"git_commit": "c"}, ["tree", "git_checked"]),
    ],
)
def test_who_told_the_commit_is_no_confounder_of_one_code(facts: dict[str, str], expected: list[str]) -> None:
    told = [{"git_commit": "c", "tree": "t", "git_checked": True}, {**facts, "git_checked": False}]
    assert made([row(workers(place), environment=one) for place, one in enumerate(told)])[1].differs == expected
