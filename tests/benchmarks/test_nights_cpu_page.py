"""The page of three weeks of nights, from made-up records: what was found, what was a false alarm, what was not reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.nights_cpu_page import write
from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import FoundCommit, Pairs
from tasks.nightly.store import CellVerdict, Night, NightCell, NightStore

CHEAP, DEAR = "synthetic · cpu · fp32 · width 256 · steps 800", "synthetic · cpu · fp32 · width 64 · steps 800 · input_cost 1000"
PLANTED, GOOD = "c" * 40, "a" * 40
DATES = [f"2026-11-{day:02d}" for day in (1, 2, 3)]


def item(name: str, verdict: Verdict, role: str = "history", **more: Any) -> CellVerdict:
    values = {"cell": f"id-{name[-4:].strip()}", "name": name, "role": role, "metric": "throughput", "verdict": verdict}
    ratio = (
        {"ratio": 0.9, "low": 0.88, "high": 0.92, "raw": 0.9} if verdict is Verdict.SLOWER else {"ratio": 1.0, "low": 0.99, "high": 1.01}
    )
    return CellVerdict.model_validate({**values, "word": str(verdict), "minimum": 0.03, "repeats": 2, **ratio, **more})


def night(date: str, cheap: Verdict, dear: Verdict, **more: Any) -> Night:
    pairs = Pairs(good=GOOD, good_date=DATES[0], tonight="b" * 40, count=4, verdict=dear, ratio=0.9, low=0.89, high=0.91)
    cells = [
        NightCell(
            cell=f"id-{name[-4:].strip()}",
            name=name,
            suite="synthetic",
            pool="cpu",
            role="history",
            value=1,
            metrics=["throughput"],
            minimum_effect={},
        )
        for name in (CHEAP, DEAR)
    ]
    verdicts = [
        item(CHEAP, cheap),
        item(DEAR, dear, **({"pairs": pairs, "looked": Verdict.SLOWER} if dear is Verdict.SLOWER else {})),
        item("canary", cheap, "twin"),
        item("canary", Verdict.SLOWER, "injected"),
    ]
    known = {"name": "cpu", "date": date, "sweep_id": "nightly-cpu-20261101-020000-0000", "opened_at": 1.795e9, "closed_at": 1.795e9}
    return Night.model_validate({**known, "budget_s": 60.0, "cells": cells, "judgements": verdicts, **more})


def found(on: str) -> FoundCommit:
    return FoundCommit(
        cell=f"id-{DEAR[-4:].strip()}",
        name=DEAR,
        metric="throughput",
        good=GOOD,
        bad="b" * 40,
        commit=PLANTED,
        subject="Synthetic: inputs cost more",
        sentence="cccccccccccc is the first bad commit: Synthetic: inputs cost more",
        trials=12,
        on=on,
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A scratch folder with three nights, the slow-down planted before the second and a co-tenant on the third."""
    work = tmp_path / "work"
    records: list[dict[str, Any]] = []
    for number, date in enumerate(DATES, 1):
        records.append({"night": number, "date": date, "commit": str(number) * 40, **({"planted": PLANTED} if number == 2 else {})})
        records.append({"night": number, "date": date, "seconds": 60.0, "status": 0, "co_tenant": "all night" if number == 3 else None})
    store = NightStore("cpu", work / "runs")
    S, OK = Verdict.SLOWER, Verdict.SAME
    for one in (
        night(DATES[0], OK, OK),
        night(DATES[1], OK, S, bisections=[found(DATES[1])]),
        night(DATES[2], S, S, bisections=[found(DATES[1])]),
    ):
        store.folder(one.date).mkdir(parents=True)
        store.save(one)
        (store.folder(one.date) / "report.html").write_text(one.date)
        (store.folder(one.date) / "figures").mkdir()
        for cell in one.cells:
            for suffix in ("png", "svg"):
                (store.folder(one.date) / "figures" / f"{cell.cell}-throughput.{suffix}").write_text("")
    (work / "nights.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    subject = f"REGRESSION: cpu {DATES[1]}: 1 slower, 1 same"
    (work / "received.jsonl").write_text(json.dumps({"subject": subject, "text": f"report: file://{work / 'runs'}/x"}) + "\n")
    for number, role in enumerate(("history", "paired")):
        folder = work / "runs" / "nightly-cpu-20261101-020000-0000" / "trials" / str(number)
        folder.mkdir(parents=True)
        labels = {"night.date": DATES[0], "night.role": role}
        (folder / "trial.json").write_text(json.dumps({"labels": labels, "suite": "synthetic", "parameters": {"width": 64}, "repeat": 1}))
        pq.write_table(pa.table({"measured": [False, True, True], "total_s": [1.0, 0.001, 0.002]}), folder / "steps.parquet")
    return work


def test_the_page_says_what_was_found_and_what_was_false(work: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "of-an-earlier-run.svg").write_text("")
    write(out, work, "d" * 40)
    page = (out / "README.md").read_text()
    assert "| planted | before night 2, commit `cccccccccccc` |" in page
    assert "| found | night 2: slower by 10.0 % (9.0 to 11.0 %), 4 pairs of bbbbbbbbbbbb against aaaaaaaaaaaa |" in page
    assert f"| commit named by the night itself | night 2: `{PLANTED}` after 12 trials, the planted one |" in page
    assert f"| false alarms | 1 of 4 unchanged cell-nights (0.6 % to 80.6 %, 95 %); night 3: {CHEAP} slower |" in page, (
        "three of one cell and one of the other, before the plant"
    )
    assert "| trials a cell and night | 4.7, pairs among them, without bisections |" in page
    beside = "night 3, beside other work all night: slower -10.0 % (-12.0 to -8.0)"
    assert f"| A/A pairs | 2 same, 1 slower (expected: same); {beside} |" in page, "a control that was wrong is named"
    assert "| injected 8 % | 3 slower (expected: slower) |" in page
    assert "| 3 | all night |" in page and "Commit `dddddddddddd`" in page and "in 3 minutes" in page
    files = ["README.md", "found.html", "last.html", "nights.json", "notification.txt", "steps.parquet"]
    figures = [f"synthetic-{width}-history.{suffix}" for width in (256, 64) for suffix in ("png", "svg")]
    assert sorted(path.name for path in out.iterdir()) == sorted([*files, *figures])
    assert ((out / "found.html").read_text(), (out / "last.html").read_text()) == (DATES[1], DATES[2])
    assert (out / "notification.txt").read_text() == f"REGRESSION: cpu {DATES[1]}: 1 slower, 1 same\n\nreport: file://runs/x"
    assert [one["night"] for one in json.loads((out / "nights.json").read_text())] == [1, 2, 3]
    steps = pq.read_table(out / "steps.parquet")
    assert steps["step_us"].to_pylist() == [1000, 2000] and set(steps["role"].to_pylist()) == {"history"}
    assert np.dtype("uint32") == steps["step_us"].to_numpy().dtype


def test_a_slow_down_that_was_not_found_is_said(work: Path, tmp_path: Path) -> None:
    store = NightStore("cpu", work / "runs")
    for date in DATES:
        store.save(night(date, Verdict.SAME, Verdict.SAME))
    write(tmp_path / "out", work, "d" * 40)
    page = (tmp_path / "out" / "README.md").read_text()
    assert "| found | **not found** |" in page and "| commit named by the night itself | **none** |" in page
    assert "| false alarms | 0 of 4 unchanged cell-nights" in page and not (tmp_path / "out" / "found.html").exists()


def test_a_slowed_cell_that_is_called_faster_is_named_and_not_counted(work: Path, tmp_path: Path) -> None:
    NightStore("cpu", work / "runs").save(night(DATES[2], Verdict.SAME, Verdict.FASTER))
    write(tmp_path / "out", work, "d" * 40)
    page = (tmp_path / "out" / "README.md").read_text()
    assert f"| false alarms | 0 of 4 unchanged cell-nights (0.0 % to 60.2 %, 95 %); night 3: {DEAR} faster |" in page


def test_a_run_that_ended_before_the_plant_says_so(work: Path, tmp_path: Path) -> None:
    lines = (work / "nights.jsonl").read_text().splitlines()[:2]
    (work / "nights.jsonl").write_text("\n".join(lines) + "\n")
    store = NightStore("cpu", work / "runs")
    for date in DATES[1:]:
        (store.folder(date) / "night.json").unlink()
    write(tmp_path / "out", work, "d" * 40)
    assert "| planted | not reached: the run was shorter |" in (tmp_path / "out" / "README.md").read_text()
