"""What is said of an import, in the terminal and on its pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.imports.model import Imported, OthersResult, Value
from tasks.imports.pages import write_pages
from tasks.imports.store import import_files
from tasks.imports.text import NOT_OURS, headline, results_table
from tests.tasks.imports.others import mlperf, optimum, pytest_json, written


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_the_headline_says_whose_they_are(tmp_path: Path) -> None:
    imported = import_files([written(tmp_path, "bench.json", pytest_json())])
    assert headline(imported) == "2 results of pytest-benchmark, measured by others on 2026-11-20"
    imported = import_files([written(tmp_path, "benchmark.json", optimum())])
    assert headline(imported) == "2 results of optimum-benchmark, measured by others"


def test_the_table_is_as_narrow_as_it_can_be(tmp_path: Path) -> None:
    few = results_table(import_files([written(tmp_path, "result_0.txt", mlperf())]))
    assert few.header == ["figure", "llama2_70b_lora"]
    assert [list(row) for row in few.rows] == [
        ["outcome", "success"],
        ["time_to_train", "1,200 s"],
        ["throughput_median", "120"],
        ["eval_accuracy_last", "0.9200"],
    ]
    many = results_table(import_files([written(tmp_path, f"{n}.txt", mlperf(minutes=n, status="aborted")) for n in range(1, 6)]))
    assert many.header == ["result", "outcome", "time_to_train", "throughput_median", "eval_accuracy_last"]
    assert list(many.rows[1]) == ["llama2_70b_lora #2", "aborted", "120 s", "120", "0.9200"]


def test_figures_that_a_result_lacks_are_a_dash(tmp_path: Path) -> None:
    table = results_table(import_files([written(tmp_path, "benchmark.json", optimum())]))
    assert table.header == ["figure", "gpt2 on cpu · load", "gpt2 on cpu · prefill"]
    shown = {row[0]: list(row[1:]) for row in table.rows}
    assert shown["memory_max_ram"] == ["900.5 MB", "900.5 MB"] and shown["latency_mean"] == ["–", "30.0 ms"]
    assert shown["throughput"] == ["–", "533.0 tokens/s"] and shown["latency_count"] == ["–", "3"]


def test_pages_say_that_it_is_not_ours_and_escape_what_is_theirs(tmp_path: Path) -> None:
    imported = import_files([written(tmp_path, "result_0.txt", mlperf().replace("Somebody", "<b>*Some*</b>"))])
    page = write_pages(imported, tmp_path)
    text, html = (tmp_path / "report.md").read_text(), page.read_text()
    assert text.startswith("# 1 result of MLPerf logs, measured by others on ") and f"**{NOT_OURS}**" in text
    assert "\\<b\\>\\*Some\\*\\</b\\>" in text and "<b>*Some" not in text
    assert NOT_OURS in html and "&lt;b&gt;*Some*&lt;/b&gt;" in html and "<b>*Some" not in html
    for heading in ("Results", "Settings", "Environment", "Files"):
        assert f"## {heading}\n" in text and f"<h2>{heading}</h2>" in html
    assert imported.originals[0].sha256 in text


def test_an_import_may_have_no_settings(tmp_path: Path) -> None:
    plain = OthersResult(name="a", file="f", values=[Value(name="x", value=1.0)])
    imported = import_files([written(tmp_path, "result_0.txt", mlperf())]).model_copy(update={"results": [plain]})
    write_pages(Imported.model_validate(imported.model_dump()), tmp_path)
    assert "Settings" not in (tmp_path / "report.md").read_text()
