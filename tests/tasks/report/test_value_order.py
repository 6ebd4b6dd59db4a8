"""The order of an axis' values: numbers, then models named for their size, then words."""

from __future__ import annotations

import pytest

from tasks.report.value_order import ordered_values, parameters_named
from tests.tasks.cell_support import repeats, row, settings, table_of, workers


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("350m", 3.5e8),
        ("6.5b", 6.5e9),
        ("10B", 1e10),
        ("8k", 8e3),
        ("1t", 1e12),
        ("large", None),
        ("b32", None),
        ("6.b", None),
        (8, None),
        (None, None),
    ],
)
def test_a_name_that_is_a_number_of_parameters(name: str | int | None, count: float | None) -> None:
    assert parameters_named(name) == count


def test_numbers_then_sizes_then_words_as_they_came() -> None:
    values = ["tiny", 4, "10b", None, "350m", 1, True, "6.5b", "6b", "mini", 2.5, 4]
    assert ordered_values(values) == [1, 2.5, 4, "350m", "6b", "6.5b", "10b", "tiny", None, True, "mini"]


def test_the_tables_rows_stand_in_that_order_whatever_the_plans() -> None:
    sizes = ("6b", "28b", "5.6b", "350m", "10b")
    made = table_of([row(workers(0, model=size)) for size in sizes], settings(rows=("model",)))
    assert [names for names, _ in made.rows] == [["350m"], ["5.6b"], ["6b"], ["10b"], ["28b"]]
    rows = [one for devices, pool in ((4, "b"), (1, "b"), (2, "a")) for one in repeats(workers(0, pool, devices=devices), 1.0)]
    by_pool = table_of(rows, settings(rows=("pool", "devices")))
    assert [list(names) for names, _ in by_pool.rows] == [["b", "1"], ["b", "4"], ["a", "2"]], (
        "by the first axis, words as the plan has them"
    )
