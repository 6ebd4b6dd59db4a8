"""Section: one line for each trial, and the command that runs its cell again."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.report.html import render_html
from tasks.report.markdown import render_markdown
from tasks.report.section import TrialTable
from tasks.report.sections import trials
from tests.tasks.cell_support import report_of, row, workers


def test_a_trials_line() -> None:
    rows = [
        row(workers(0), summary={"first_loss": 5.25, "final_loss": 2.5}),
        row(workers(1), summary={"first_loss": 5.25, "final_loss": None}),
        row(workers(2), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB"),
        row(workers(3), emulated=True),
        row(workers(4), summary={"first_loss": 0.25, "final_loss": 0.5, "latency_p50_s": 0.01}),
    ]
    links = {rows[0].trial.key: "https://host/run", rows[1].trial.key: "javascript:x", rows[2].trial.key: "http://host/run"}
    lines = report_of(rows, mlflow_links=links).section("trials").block(TrialTable).lines
    assert [(line.name, line.outcome, line.reason, line.value, line.loss, line.link, line.emulated) for line in lines] == [
        ("cpu · MP-0 · #1", "ok", "", "100.0 samples/s", "5.250 → 2.500", "https://host/run", False),
        ("cpu · MP-1 · #1", "ok", "", "100.0 samples/s", "–", None, False),
        ("cpu · MP-2 · #1", "does not fit", "80 GiB", "–", "–", "http://host/run", False),
        ("cpu · MP-3 · #1", "ok", "", "–", "–", None, True),
        ("cpu · MP-4 · #1", "ok", "", "100.0 samples/s", "–", None, False),  # a stand-in for its output, and no loss that falls
    ]
    assert lines[0].command == "sweep run made_up --only pool=cpu --only dataloader_workers=0"
    [shown] = report_of(rows, emulated=True).section("trials").block(TrialTable).lines
    assert (shown.name, shown.value) == ("cpu · MP-3 · #1", "100.0 samples/s")


def test_a_rate_without_an_interval_says_why() -> None:
    rows = [row(workers(0), summary={"measured_steps": 20, "throughput_low": low, "throughput_high": low}) for low in (None, 99.0)]
    lines = report_of(rows).section("trials").block(TrialTable).lines
    assert [line.value for line in lines] == [
        "100.0 samples/s (no interval: its window was too short to tell how sure that is)",
        "100.0 samples/s",
    ]


def test_of_very_many_trials_the_first_are_shown_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST", 2)
    report = report_of([row(workers(number)) for number in range(5)])
    table = report.section("trials").block(TrialTable)
    assert ([line.name for line in table.lines], table.rest) == (["cpu · MP-0 · #1", "cpu · MP-1 · #1"], 3)
    assert "\n\n3 more are left out here; results.parquet has all.\n" in render_markdown(report)
    assert '<p class="dim">3 more are left out here; results.parquet has all.</p>' in render_html(report)
    assert report_of([row(workers(number)) for number in range(2)]).section("trials").block(TrialTable).rest == 0
