"""Section: one line for each trial, and the command that runs its cell again."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.report.html import render_html
from tasks.report.markdown import render_markdown
from tasks.report.section import Bullets, TrialTable
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


@pytest.mark.parametrize(
    ("short", "which"),
    [
        ((1,), "cpu · MP-1 · #1"),
        ((0, 1, 3), "all trials but cpu · MP-2 · #1"),
        ((0, 1, 2, 3), "every trial"),
        ((), None),
    ],
)
def test_which_windows_were_too_short_is_said_once(short: tuple[int, ...], which: str | None) -> None:
    """A trial without a rate is none of them."""
    low = {number: None if number in short else 99.0 for number in range(4)}
    rows = [row(workers(number), summary={"measured_steps": 20, "throughput_low": low[number]}) for number in low]
    section = report_of([*rows, row(workers(4), None, outcome=Outcome.DOES_NOT_FIT)]).section("trials")
    assert [line.value for line in section.block(TrialTable).lines] == ["100.0 samples/s"] * 4 + ["–"]
    said = [line for block in section.blocks if isinstance(block, Bullets) for line in block.lines]
    sentence = "No interval of the rate within a trial: the window was too short to tell how sure it is, in"
    assert said == ([] if which is None else [f"{sentence} {which}."])


@pytest.mark.parametrize("command", ["sweep run made_up", "sweep nightly h200"])
def test_the_column_of_commands_is_there_where_a_command_runs_one_cell(command: str) -> None:
    report = report_of([row(workers(0)), row(workers(0), repeat=2)], command=command)
    head = "| trial | outcome | throughput | loss |"
    table = [line for line in render_markdown(report).splitlines() if line.startswith(("| trial |", "| cpu · MP-0 · "))]
    assert table == (
        [
            f"{head} run its cell again |",
            "| cpu · MP-0 · \\#1 | ok | 100.0 samples/s | – | `sweep run made_up --only pool=cpu --only dataloader_workers=0` |",
            "| cpu · MP-0 · \\#2 | ok | 100.0 samples/s | – |  |",
        ]
        if command == "sweep run made_up"
        else [head, "| cpu · MP-0 · \\#1 | ok | 100.0 samples/s | – |", "| cpu · MP-0 · \\#2 | ok | 100.0 samples/s | – |"]
    )
    page = render_html(report)
    assert [text in page for text in ("run its cell again</th>", "The command stands at")] == [command == "sweep run made_up"] * 2


def test_of_very_many_trials_the_first_are_shown_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST", 2)
    report = report_of([row(workers(number)) for number in range(5)])
    table = report.section("trials").block(TrialTable)
    assert ([line.name for line in table.lines], table.rest) == (["cpu · MP-0 · #1", "cpu · MP-1 · #1"], 3)
    assert "\n\n3 more are left out here; results.parquet has all.\n" in render_markdown(report)
    assert '<p class="dim">3 more are left out here; results.parquet has all.</p>' in render_html(report)
    assert report_of([row(workers(number)) for number in range(2)]).section("trials").block(TrialTable).rest == 0
