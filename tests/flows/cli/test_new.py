"""`sweep new`: skeletons that fit their schema and can be planned, and names that are refused."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from experiments import workloads
from experiments.config.yaml_document import load
from flows.cli.commands import app
from flows.cli.skeleton import Data, target_folder, write_suite, write_workload
from tasks.sweep.plan import make_plan
from tasks.sweep.store import Request

BUILT_IN = workloads.names()


def new(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["new", *map(str, arguments)], env={"COLUMNS": "300"})


@pytest.mark.parametrize("data", list(Data))
def test_a_workload_and_its_suite_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Data) -> None:
    name = f"new_{data}"
    done = new("workload", name, "--data", data, "--to", tmp_path / "bench")
    assert done.exit_code == 0, done.output
    bench = tmp_path / "bench"
    assert done.output.splitlines() == [
        *(f"wrote {bench}/{file}" for file in (f"workloads/{name}.py", f"suites/{name}.yaml", "schemas/suite.json", "schemas/pools.json")),
        "next:",
        f"    export SWEEPBENCH_EXTRA={bench}",
        f"    sweep run {name} --profile smoke",
    ]
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(bench))
    smoke, _ = make_plan(Request(suite=name, profile="smoke"))
    assert [(trial.pool, trial.parameters["precision"]) for trial in smoke.trials] == [("cpu", "fp32"), ("cpu", "bf16")]
    full, _ = make_plan(Request(suite=name, profile="full"))
    assert len(full.trials) == (10 if data is Data.NONE else 20)  # what is made in memory has no loader to ask about
    assert {trial.pool for trial in full.trials} == {"cuda"}
    schema = json.loads((bench / "schemas" / "suite.json").read_text())
    assert f"fixed.{name}" in schema["$defs"]
    assert list(Draft202012Validator(schema).iter_errors(load(bench / "suites" / f"{name}.yaml").data)) == []


@pytest.mark.parametrize("data", list(Data))
def test_what_is_written_is_code_of_our_own_style(tmp_path: Path, data: Data) -> None:
    write_workload("new_one", data, tmp_path)
    file = tmp_path / "workloads" / "new_one.py"
    tree = ast.parse(file.read_text())
    assert "NewOne" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--config", "pyproject.toml", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--config", "pyproject.toml", "--check", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workload", BUILT_IN)
def test_a_suite_of_every_workload_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str) -> None:
    write_suite("of-it", workload, tmp_path)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    plan, suite = make_plan(Request(suite="of-it", profile="smoke"))
    assert len(plan.trials) == 2 and suite.workload == workload
    told = "# dataset: /path/to/your/folder" in (tmp_path / "suites" / "of-it.yaml").read_text()
    assert told is hasattr(workloads.load(workload).Parameters, "columns")


def test_a_second_skeleton_goes_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    done = new("suite", "2nd-suite", "--workload", "synthetic")
    assert done.exit_code == 0 and "export" not in done.output and (tmp_path / "suites" / "2nd-suite.yaml").is_file()
    elsewhere = new("suite", "third", "--workload", "synthetic", "--to", tmp_path / "a b")
    assert f"    export SWEEPBENCH_EXTRA='{tmp_path}/a b':$SWEEPBENCH_EXTRA\n" in elsewhere.output


@pytest.mark.parametrize("told", [True, False])
def test_a_folder_that_the_variable_names_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    bench = tmp_path / "my" / "bench"
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(bench))
    done = new("workload", "first_one", *(["--to", bench] if told else []))
    assert done.exit_code == 0, done.output
    assert (bench / "workloads" / "first_one.py").exists() and "export" not in done.output
    monkeypatch.setenv("SWEEPBENCH_EXTRA", f"{bench}:{tmp_path / 'absent'}")
    done = new("workload", "second", "--to", bench)
    assert done.exit_code == 1 and f"SWEEPBENCH_EXTRA: {tmp_path / 'absent'} is not a folder" in done.output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    suite = tmp_path / "suites" / "mine.yaml"
    suite.parent.mkdir()
    suite.write_text("mine")
    done = new("workload", "mine", "--to", tmp_path)
    assert done.exit_code == 1 and f"NAME: {suite} exists; nothing was written" in done.output
    assert suite.read_text() == "mine" and sorted(path.name for path in tmp_path.iterdir()) == ["suites"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workload", "Mine"], "NAME: Mine: cannot be the name of a workload; use a-z, 0-9 and _"),
        (["workload", "../mine"], "NAME: ../mine: cannot be the name of a workload"),
        (["workload", "class"], "NAME: class: cannot be the name of a workload"),
        (["workload", "m" * 65], "cannot be the name of a workload"),
        (["workload", "bert"], "NAME: bert: is a workload already"),
        (["workload", "clip_precision"], "NAME: clip_precision: is a suite already"),
        (["suite", "-x", "-w", "bert"], ""),
        (["suite", "a/b", "-w", "bert"], "NAME: a/b: cannot be the name of a suite"),
        (["suite", "bert", "-w", "bert"], "NAME: bert: is a suite already"),
        (["suite", "mine", "-w", "birt"], "--workload: birt: unknown workload; did you mean 'bert'?"),
    ],
)
def test_names_are_checked_before_anything_is_written(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = new(*arguments, "--to", tmp_path / "bench")
    assert done.exit_code in (1, 2) and message in " ".join(done.output.split()), done.output
    assert not (tmp_path / "bench").exists()


def test_a_folder_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--to: is needed, since $SWEEPBENCH_EXTRA is not set; give --to FOLDER" in new("workload", "mine").output
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SWEEPBENCH_EXTRA", f"{tmp_path}/a:{tmp_path}/b")
    assert f"$SWEEPBENCH_EXTRA names several folders ({tmp_path}/a, {tmp_path}/b)" in new("workload", "mine").output
    assert target_folder(tmp_path / "b") == tmp_path / "b"
    (tmp_path / "file").write_text("")
    assert "--to: " in new("workload", "mine", "--to", tmp_path / "file").output
