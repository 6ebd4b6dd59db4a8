"""Section: the race."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tasks.report.comparison_table import TextTable
from tasks.report.sections.race import section
from tests.tasks.race_support import made_race, race_rows

EVERYONE = (0, 1, 2, 3)


def tables(rates: list[float]) -> list[TextTable]:
    source: Any = SimpleNamespace(race=made_race(race_rows(rates, [EVERYONE] * 3, sd=0.01)))
    found = section(source)
    assert found is not None
    return [block for block in found.blocks if isinstance(block, TextTable)]


def test_who_dropped_out_has_a_table_and_where_nobody_did_there_is_none() -> None:
    rounds, dropouts = tables([100, 99, 50, 40])
    assert dropouts.header[0] == "setting" and len(dropouts.rows) == 2
    (rounds,) = tables([100, 100, 100, 100])
    assert rounds.header[0] == "round" and len(rounds.rows) == 3


def test_without_a_race_there_is_no_section() -> None:
    source: Any = SimpleNamespace(race=None)
    assert section(source) is None
