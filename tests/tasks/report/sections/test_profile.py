"""Section: what ran in the traced steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.report.model import make_report
from tasks.report.sections.profile import ABOUT, profile
from tasks.report.write import write_report
from tests.tasks.cell_support import column, made, report_of, row, workers
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep

PROFILE = {
    "where": "device",
    "steps": 2,
    "span_s": 0.2,
    "idle_s": 0.02,
    "groups": [{"group": "matrix products", "seconds": 0.1, "calls": 12.0, "top": "nvjet|<b>"}],
}


def test_the_traced_steps_stand_in_both_reports(tmp_path: Path) -> None:
    fakes = [Fake({"pool": "cpu", "precision": "fp32", "devices": 1}, window={"profile": PROFILE}), Fake({"pool": "cpu", "devices": 4})]
    folder = make_sweep(tmp_path, fakes, suite={**SUITE, "baseline": {"devices": 1}})
    table = make_report(load_sweep(folder)).section("profile").table
    assert table.rows == [
        ["fp32 · devices 1", "matrix products", "100 ms", "50.0 %", "12.0", "nvjet|<b>"],
        ["fp32 · devices 1", "nothing (device idle)", "20.0 ms", "10.0 %", "–", "–"],
    ]
    paths = write_report(folder)
    assert "## What ran in the traced steps" in paths.markdown.read_text() and r"nvjet\|\<b\>" in paths.markdown.read_text()
    assert "What ran in the traced steps" in paths.html.read_text() and "nvjet|&lt;b&gt;" in paths.html.read_text()


def test_the_kinds_of_the_traced_steps_are_told_where_steps_have_kinds() -> None:
    kinds = [
        PROFILE,
        {**PROFILE, "step_kinds": ["text", "image"]},
        {**PROFILE, "step_kinds": ["pair", "text"]},
        {**PROFILE, "step_kinds": []},
    ]
    rows = [row(workers(number), profile=one) for number, one in enumerate(kinds)]
    assert report_of(rows).section("profile").text == (
        f"{ABOUT} The kinds of step that were traced, in their order: MP-1 text, image; MP-2 pair, text."
    )
    assert report_of(rows[:1]).section("profile").text == ABOUT


def test_the_profile_is_of_the_first_repeat_that_ended_ok_with_one() -> None:
    def traced(span: float) -> dict[str, Any]:
        return {**PROFILE, "span_s": span}

    axes = {"pool": "cpu"}
    rows = [
        row(axes, None, outcome=Outcome.CRASHED, profile=traced(9.0)),
        row(axes, repeat=2),
        row(axes, repeat=3, profile=traced(0.4)),
        row(axes, repeat=4, profile=traced(0.2)),
    ]
    table = profile(made(rows))
    assert column(table, "share") == ["25.0 %", "5.0 %"] and table.names == 2
    assert profile(made(rows[:2])).rows == []
