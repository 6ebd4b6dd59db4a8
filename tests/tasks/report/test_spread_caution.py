from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.analysis.results import load_sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.model import make_report
from tasks.report.write import write_report
from tests.tasks.cell_support import report_of, row, workers
from tests.tasks.fake_sweep import Fake, make_sweep
from tests.tasks.spread_support import write_history

ONCE = {"pool": "cpu", "dataloader_workers": 0}
UNKNOWN = (
    "A cell that ran once on pool cpu (Made-up CPU) has no interval either: the spread between trials of bridgetower there is not known."
)

KNOWN = (
    "A cell that ran once on pool cpu (Made-up CPU) has its interval from other settings' trials in past sweeps of bridgetower there, "
    "whose standard "
)


def said(root: Path, *fakes: Fake) -> list[str]:
    report = make_report(load_sweep(make_sweep(root, list(fakes))))
    return [line for line in report.cautions if line.startswith("A cell that ran once on")]


def test_single_trials_of_an_unknown_pool_say_what_is_missing(tmp_path: Path) -> None:
    assert said(tmp_path / "once", Fake(ONCE), Fake({**ONCE, "dataloader_workers": 1})) == [UNKNOWN]
    assert said(tmp_path / "some", Fake(ONCE), Fake({**ONCE, "dataloader_workers": 1}, repeats=2)) == [UNKNOWN]
    assert said(tmp_path / "twice", Fake(ONCE, repeats=2)) == []
    assert said(tmp_path / "pools", Fake(ONCE), Fake({**ONCE, "pool": "b"}, environment={"device_name": None})) == [
        UNKNOWN,
        UNKNOWN.replace("cpu (Made-up CPU)", "b"),
    ]


def test_a_known_spread_gives_an_interval_and_its_source(tmp_path: Path) -> None:
    """Twelve past sweeps of three cells whose trials lie 1 % apart."""
    write_history(tmp_path, trial_sd=0.01)
    [line] = said(tmp_path, Fake(ONCE))
    assert deviation(line, KNOWN) == pytest.approx(1.0, abs=0.2)
    estimate = make_report(load_sweep(tmp_path / "made-up-20260101-000000-0000")).cells[0].estimate
    assert estimate is not None and estimate.relative == pytest.approx(0.0196, rel=0.2)


def test_each_workload_of_a_pool_has_its_own_say(tmp_path: Path) -> None:
    for root in (tmp_path / "some", tmp_path / "more"):
        write_history(root, trial_sd=0.01)
    fakes = [Fake({**ONCE, "suite": workload}, workload=workload) for workload in ("bridgetower", "flava", "bert")]
    unknown, known = said(tmp_path / "some", *fakes)
    assert unknown == UNKNOWN.replace("bridgetower", "flava and bert") and deviation(known, KNOWN) == pytest.approx(1.0, abs=0.2)
    write_history(tmp_path / "more", trial_sd=0.1, workload="flava")
    unknown, again, noisy = said(tmp_path / "more", *fakes)
    assert (unknown, again) == (UNKNOWN.replace("bridgetower", "bert"), known), "the noisy workload changes nothing of the quiet one"
    assert deviation(noisy, KNOWN.replace("bridgetower", "flava")) == pytest.approx(10.0, abs=2.0)


def deviation(line: str, start: str) -> float:
    """The standard deviation, %, that the caution tells."""
    found = re.fullmatch(rf"{re.escape(start)}deviation was ([\d.]+) % \(`sweep spread`\)\.", line)
    assert found, line
    return float(found[1])


def test_a_report_without_any_interval_is_written(tmp_path: Path) -> None:
    """No ± beside a value, in the table, on the page and in the figures."""
    paths = write_report(make_sweep(tmp_path, [Fake(ONCE), Fake({**ONCE, "dataloader_workers": 1}, rate=150)]))
    text = paths.markdown.read_text()
    assert "±" not in "".join(line for line in text.split("\n") if line.startswith("|"))
    assert "x1.50 (interval unknown) undecided" in text and UNKNOWN in text
    for path in (paths.markdown, paths.html):
        assert not re.search(r"\b(inf|nan)\b", re.sub(r"<svg.*?</svg>", "", path.read_text(), flags=re.DOTALL))
    assert paths.figures


def far(*rows: TrialRow) -> list[str]:
    return [line for line in report_of(list(rows)).cautions if line.startswith("Trials of a cell lie far apart")]


def trials(count: int, *values: float, **more: Any) -> list[TrialRow]:
    return [row(workers(count), value, repeat=repeat, **more) for repeat, value in enumerate(values, 1)]


def test_trials_that_lie_further_apart_than_a_tenth_are_named_with_their_ends() -> None:
    assert far(*trials(0, 100.0, 90.1), *trials(1, 100.0, 95.0)) == [], "9.9 %"
    assert far(*trials(0, 89.9, 95.0, 100.0), *trials(1, 290.1, 420.5)) == [
        "Trials of a cell lie far apart, the lowest below the highest by 31.0 % in MP-1 (290.1 samples/s and 420.5 samples/s) "
        "and 10.1 % in MP-0 (89.90 samples/s and 100.0 samples/s)."
    ], "the farthest first"
    assert far(*trials(0, 50.0), *trials(1, 100.0)) == [], "of cells, not between them"


def test_of_many_cells_whose_trials_lie_far_apart_three_are_named() -> None:
    (line,) = far(*(one for count in range(6) for one in trials(count, 100.0, 80.0 - count)))
    assert "25.0 % in MP-5 (" in line and "23.0 % in MP-3 (" in line and line.endswith(") and 3 more.") and "MP-2" not in line


def test_a_disturbed_trial_lies_apart_from_none() -> None:
    third = row(workers(0), 50.0, repeat=3)
    assert third.result is not None
    disturbed = replace(third, result=third.result.model_copy(update={"disturbed": "another process was on the device"}))
    assert far(*trials(0, 100.0, 99.0), disturbed) == [] and far(*trials(0, 100.0, 99.0), third) != []
