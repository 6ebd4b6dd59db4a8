"""What `sweep report` and `sweep show` print of a comparison: the table, what its signs mean, the report's own words, the next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.trial import Outcome
from flows.cli.show_comparison import print_comparison, print_where
from tasks.sweep.store import SweepStore
from tasks.tracking import client
from tests.tasks.fake_sweep import SUITE, SWEEP_ID, Fake, make_sweep


def printed(root: Path, monkeypatch: pytest.MonkeyPatch, fakes: list[Fake], *, width: int = 200, **suite: Any) -> list[str]:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(root))
    make_sweep(root, fakes, suite={**SUITE, **suite})
    out = Console(record=True, width=width, force_terminal=False)
    print_comparison(out, SweepStore(SWEEP_ID))
    return out.export_text().splitlines()


def fake(workers: int, rate: float, model: str = "base", **more: Any) -> Fake:
    return Fake({"pool": "gpu", "model": model, "dataloader_workers": workers}, rate=rate, **more)


@pytest.mark.parametrize("width", [200, 40])
def test_single_trials_are_marked_and_the_command_for_more_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    text = " ".join(" ".join(printed(tmp_path, monkeypatch, [fake(0, 100), fake(1, 150)], width=width)).split())
    assert "x1.50 (interval unknown) ?" in text
    assert "? undecided: not shown to differ from its baseline at the level that a verdict needs (one trial)" in text
    assert "Each cell ran once: no setting is called faster. Best measured: MP-1, 150" in text
    assert text.endswith(f"To decide more, in about 4 s: sweep resume {SWEEP_ID} --budget 1m")


def test_each_group_of_work_has_its_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = [fake(workers, rate, model, repeats=3) for model in ("base", "large") for workers, rate in ((0, 100.0), (1, 150.0))]
    lines = printed(tmp_path, monkeypatch, fakes)
    apart = "Cells that do not do the same work are not compared with each other."
    assert f"MP-1 is fastest in each of 2 groups of cells. {apart}" in lines
    assert [line.split(": ")[:2] for line in lines[-2:]] == [[model, "MP-1 is fastest"] for model in ("base", "large")]
    assert not any("undecided" in line or "To decide more" in line for line in lines)


def test_a_cell_that_crashed_beside_others_says_at_which_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "flowers.py:42 in loss: RuntimeError: 0 classes"
    crashed = fake(2, 100, outcome=Outcome.CRASHED, reason=where)
    lines = printed(tmp_path, monkeypatch, [fake(0, 100), fake(1, 150), crashed])
    assert f"1 cell crashed (MP-2): {where}." in lines and lines[-1].startswith("To decide more")


@pytest.mark.parametrize(("problem", "said"), [(None, ""), ("Connection refused", " does not answer (Connection refused)")])
def test_a_server_of_mlflow_is_named_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | None, said: str) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@far:5000/")
    monkeypatch.setattr(client, "no_answer", lambda uri: problem)
    out = Console(record=True, width=200, force_terminal=False)
    print_where(out, SweepStore(SWEEP_ID))
    assert out.export_text() == f"MLflow UI: http://far:5000{said}\n"
