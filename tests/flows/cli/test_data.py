"""`sweep data check`: what is there, what is guessed and what is missing, and how the command ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from experiments.config.paths import runs_root
from flows.cli.commands import app
from tests.own_data_support import captioned, classes


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


def check(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "check", *map(str, arguments)])


def test_a_folder_that_can_be_read_and_the_command_that_reads_it(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 60)
    done = check(folder, "--workload", "bridgetower")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        f"{folder}: images with metadata.csv, for workload bridgetower",
        "  found   training rows: all 60 rows, of which no split is named",
        "  found   image column: image",
        "  guessed caption column: text, the only column of texts (--set caption_column=text)",
        "  made    held-out rows: 16 of 60 rows are cut off, always the same; 44 are left to train on",
        "  made    tokenizer: trained on the training rows' text, at most 1024 tokens (--set tokenizer=FOLDER takes another)",
        "  found   images: 60 of the first 60 can be decoded",
        f"ready: sweep run bridgetower --set dataset={folder}",
    ]
    assert not runs_root().exists(), "nothing is made"


def test_what_is_missing_is_listed_and_ends_with_status_1(tmp_path: Path) -> None:
    folder = classes(tmp_path / "d", 60)
    for row in range(0, 60, 3):
        (folder / "cat" / f"{row:03}.png").write_bytes(b"")
    done = check(folder, "-w", "vit", "--set", "batch_size=100")
    assert done.exit_code == 1
    assert "  missing training rows: 44 are fewer than a batch of 100 on 1 device; give more rows (--set batch_size=44)\n" in done.output
    assert "  missing images: 40 of the first 60 can be decoded\n            cat/000.png: only the name" in done.output
    assert "            and 10 more\nnot ready: give what is missing\n" in done.output


def test_json_has_all_of_it(tmp_path: Path) -> None:
    done = check(captioned(tmp_path / "d", 60), "-w", "clip", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["ready"], found["splits"], found["images_looked_at"]) == (0, True, {"": 60}, 60)
    assert found["findings"][2] == {
        "state": "guessed",
        "what": "caption column",
        "text": "text, the only column of texts",
        "give": "--set caption_column=text",
    }


def test_a_workload_without_a_suite_of_its_name_gets_one_that_runs_it(tmp_path: Path) -> None:
    done = check(captioned(tmp_path / "d", 60), "-w", "clip", "--set", "batch_size=4")
    assert done.output.splitlines()[-1] == f"ready: sweep run clip_precision --set dataset={tmp_path}/d --set batch_size=4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "-w", "vit"], "dataset nowhere does not exist; give a folder with Parquet files"),
        ([".", "-w", "vitt"], "unknown workload; did you mean 'vit'?"),
        ([".", "-w", "synthetic"], "--workload: synthetic: reads no data set of your choice; these do: bert, bert_inference, bridgetower"),
        (["s3://b/d", "-w", "vit"], "dataset s3://b/d is not on this machine: `sweep data check` looks into a folder"),
        ([".", "-w", "vit", "--set", "stepz=3"], "--set: stepz: the workload has no such parameter; did you mean 'steps'?"),
        ([".", "-w", "vit", "--set", "steps=0"], "--set: steps: is 0; should be at least 2"),
        ([".", "-w", "vit", "--set", "steps"], "--set: steps: is not KEY=VALUE"),
        ([".", "-w", "nope"], "--workload: nope: unknown workload"),
        ([".", "-w", "flava", "--set", "compile_mode=reduce-overhead"], "compile_mode reduce-overhead: nothing is compiled"),
    ],
)
def test_what_is_wrong_with_the_command_is_said(arguments: list[str], message: str) -> None:
    done = check(*arguments)
    assert done.exit_code == 1 and message in " ".join(done.output.split()), done.output
