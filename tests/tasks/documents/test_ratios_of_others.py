"""Which page's cells stand beside a ratio that others published. All numbers are made up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.literature.reader import LiteratureValue
from tasks.documents import ratios_of_others
from tasks.documents.ratios_of_others import HEADER, ratios_table
from tasks.report.published_beside import Beside

RATIO = LiteratureValue(
    "vit", "h16", "a100-40", 8, "fp16", 70, None, "", "speedup", 1.5, "x", "A document", (("rung", "last"),), (("rung", "baseline"),)
)
VALUE = LiteratureValue("vit", "h16", "a100-40", 8, "fp16", 70, None, "", "throughput", 90.0, "samples/s", "A document")
SIZES = LiteratureValue(
    "vit", "", "a100-40", 8, "fp16", None, None, "", "model_size_ratio", 3.0, "x", "A document", (), (("strategy", "ddp"),)
)


def line(ours: str, entry: LiteratureValue = RATIO, trials: int = 3, differs: int = 1, gap: float = 1.0, **more: Any) -> Beside:
    return Beside(
        entry, f"x{entry.value:g}", ours, "last over baseline", [f"fact {number}" for number in range(differs)], gap, trials, **more
    )


@pytest.fixture(autouse=True)
def _lines_are_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ratios_of_others, "published_beside", lambda cells: cells)


def table(*pages: list[Beside], kind: str = "") -> list[list[str]]:
    """The rows of the table of pages a, b and so on, each of one sweep with these lines."""
    sweeps = [SimpleNamespace(folder=Path(str(number)), kind=kind) for number in range(len(pages))]
    named: Any = [SimpleNamespace(name="abc"[number], sweeps=[sweep]) for number, sweep in enumerate(sweeps)]
    heads: Any = {sweep.folder: SimpleNamespace(cells=lines) for sweep, lines in zip(sweeps, pages, strict=True)}
    head, _, *rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in ratios_table(named, heads).splitlines()]
    assert head == HEADER
    return rows


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        (line("ours", trials=3, differs=4, gap=9.0), line("not", trials=2, differs=0, gap=0.0)),
        (line("ours", differs=3, gap=9.0), line("not", differs=0, gap=0.0, stand_in=True)),
        (line("ours", differs=1, gap=9.0), line("not", differs=2, gap=0.0)),
        (line("ours", gap=1.0), line("not", gap=1.5, better=9.0)),
        (line("ours", better=1.1), line("not", better=1.2, ours_with=["sdpa"])),
        (line("ours", better=1.2), line("not", better=1.1)),
        (line("ours", trials=3, gap=1.0), line("not", trials=9, gap=1.5)),
    ],
    ids=["three trials", "its precision", "least differs", "nearest", "plainest", "largest", "more than three trials are no more"],
)
def test_of_several_pages_the_nearest_with_enough_trials_is_shown(nearer: Beside, farther: Beside) -> None:
    for pages, name in (([[nearer], [farther]], "a"), ([[farther], [nearer]], "b")):
        [row] = table(*pages)
        assert row[3].startswith("ours; ") and row[6] == f"[{name}]({name}/README.md)"


def test_a_row_says_what_differs_and_the_source() -> None:
    [row] = table([line("x1.2 (1.1–1.3), undecided", ours_with=["sdpa"])])
    assert row == [
        "a100-40",
        "vit: h16, 8 devices, fp16, batch 70",
        "x1.5",
        "x1.2 (1.1–1.3), undecided; 3 trials",
        "last over baseline",
        "fact 0; ours with sdpa",
        "[a](a/README.md)",
        "A document",
    ]


def test_of_what_fits_one_trial_is_enough() -> None:
    [row] = table([line("two", SIZES, trials=3, differs=2)], [line("one", SIZES, trials=1, differs=1)])
    assert row[3] == "one; 1 trial"


def test_only_ratios_are_told_each_once() -> None:
    """Two lines of one source differ in their value, such as 13 and 25 %, the ends of a range."""
    other = LiteratureValue(**{**vars(RATIO), "value": 1.25})
    rows = table([line("ours"), line("none", VALUE), line("ours", other)], [line("ours", differs=2)])
    assert [row[2] for row in rows] == ["x1.25", "x1.5"]


def test_sweeps_of_another_kind_and_those_without_a_report_are_left_out() -> None:
    """Of an A/A sweep and a night no ratio is told."""
    assert table([line("ours")], kind="A/A") == []
    page: Any = SimpleNamespace(name="a", sweeps=[SimpleNamespace(folder=Path("0"), kind="")])
    assert ratios_table([page], {Path("0"): None}).count("\n") <= 2
