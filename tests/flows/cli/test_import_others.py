"""`sweep import`, and what the other commands say of an import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flows.cli import options
from flows.cli.commands import app
from tests.tasks.imports.others import mlperf, pytest_json, written
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_trial, saved


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.out, "width", 300)  # whatever terminal the tests began in


def sweep(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def imported(tmp_path: Path, runs: Path) -> str:
    assert sweep("import", written(tmp_path, "bench.json", pytest_json())).exit_code == 0
    return next(path.parent.name for path in runs.glob("*/imported.json"))


def test_it_prints_what_it_read_and_whose_it_is(tmp_path: Path, runs: Path) -> None:
    done = sweep("import", *(written(tmp_path, f"result_{n}.txt", mlperf(minutes=n)) for n in (5, 6)))
    assert done.exit_code == 0, done.output
    assert "2 results of MLPerf logs, measured by others on" in done.stdout and "time_to_train" in done.stdout
    assert "takes part in no comparison" in done.stdout
    (page,) = runs.glob("mlperf-*/report.html")
    assert f"report: {page}" in done.stdout and page.with_name("report.md").exists()


def test_list_show_and_report_have_it(imported: str) -> None:
    saved(make_plan([make_trial(1)]))
    listed = sweep("list")
    assert f"{imported}" in listed.stdout and "of others" in listed.stdout and "2 of pytest-benchmark" in listed.stdout
    rows = json.loads(sweep("list", "--json").stdout)
    assert [(row["sweep_id"], row.get("measured_by")) for row in rows] == [(imported, "others"), (SWEEP_ID, None)]
    shown = sweep("show", imported)
    assert shown.exit_code == 0 and "bench/test_x.py::test_b" in shown.stdout
    told = json.loads(sweep("show", imported, "--json").stdout)
    assert (told["measured_by"], told["origin"], len(told["results"])) == ("others", "pytest-benchmark", 2)
    assert sweep("report", imported).exit_code == 0
    assert SWEEP_ID in sweep("show", "last").output or sweep("show", "last").exit_code == 0, "last is the newest of ours"


@pytest.mark.parametrize("command", [("resume",), ("stop",), ("export", "--format", "csv", "--out", "x"), ("plan", "--sweep")])
def test_commands_that_need_a_sweep_say_what_it_is(imported: str, command: tuple[str, ...]) -> None:
    words = (*command, imported) if command == ("plan", "--sweep") else (command[0], imported, *command[1:])
    done = sweep(*words)
    assert done.exit_code == 1 and f"error: {imported} was imported: others measured it" in done.stderr


def test_compare_refuses_it_and_says_why(imported: str) -> None:
    saved(make_plan([make_trial(1)]))
    for sides in ((imported, SWEEP_ID), (SWEEP_ID, imported)):
        done = sweep("compare", *sides)
        assert (
            done.exit_code == 1 and f"{imported} was imported: others measured it, under conditions that nobody here knows" in done.stderr
        )


def test_damage_is_listed_and_hides_no_other(imported: str, runs: Path) -> None:
    (runs / imported / "imported.json").write_text("{")
    done = sweep("list")
    assert done.exit_code == 0 and "unreadable" in done.stdout and "is not JSON" in done.stdout


def test_what_is_no_result_is_refused_with_file_and_line(tmp_path: Path) -> None:
    done = sweep("import", written(tmp_path, "cut.json", '{"benchmarks": [\n'))
    assert done.exit_code == 1 and "cut.json:2: is not JSON" in done.stderr


def test_mlflow_that_does_not_take_it_is_said_and_the_import_stays(tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise ConnectionError("refused")

    monkeypatch.setattr("tasks.imports.tracking.publish_imported", fail)
    done = sweep("import", written(tmp_path, "result_0.txt", mlperf()), "--mlflow")
    assert done.exit_code == 1 and "MLflow did not take it: refused" in done.stderr and list(runs.glob("*/imported.json"))
    monkeypatch.setattr("tasks.imports.tracking.publish_imported", lambda *_: "#/experiments/1")
    assert "MLflow: #/experiments/1" in sweep("import", written(tmp_path, "result_1.txt", mlperf(minutes=7)), "--mlflow").stdout
