"""`sweep spread`, as a table and as data; and `sweep compare` of a sweep with itself."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.config.errors import ConfigError
from flows.cli import commands, show_spread
from tests.tasks.fake_sweep import Fake, make_sweep
from tests.tasks.spread_support import DEVICE, write_history


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    return tmp_path


def console() -> Console:
    return Console(file=StringIO(), width=200)


def text_of(page: Console) -> str:
    return page.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_each_pool_device_and_workload_with_what_is_known(runs: Path) -> None:
    write_history(runs, sweeps=20, trial_sd=0.01, sweep_sd=0.02)
    write_history(runs, pool="gpu", device=None, sweeps=1, cells=1, seed=1)
    first, second = show_spread.spread_rows("throughput", console())
    assert (first["pool"], first["device"], second["pool"], second["device"]) == ("cpu", DEVICE, "gpu", None)
    assert first["trial"]["from"] == 180 and first["trial"]["sd"] == pytest.approx(0.01, rel=0.2) and first["trial"]["df"] > 4
    assert first["sweep"]["from"] == 20 and first["sweep"]["sd"] == pytest.approx(0.02, rel=0.4)
    assert first["host"] == {"from": 0, "sd": None, "df": None}
    assert second["trial"] == {"from": 3, "sd": None, "df": None}
    page = console()
    show_spread.print_spreads(page, [first, second], "throughput")
    assert f"{first['trial']['sd'] * 100:.1f} %, df {first['trial']['df']:.1f} (from 180)" in text_of(page)
    assert "unknown (from 3)" in text_of(page)


def test_workloads_have_rows_of_their_own_and_early_files_have_none(runs: Path) -> None:
    for workload, sd in (("flava", 0.1), ("bridgetower", 0.003)):
        write_history(runs, workload=workload, trial_sd=sd)
    page = console()
    quiet, noisy = rows = show_spread.spread_rows("throughput", page)
    assert [row["workload"] for row in rows] == ["bridgetower", "flava"] and text_of(page) == ""
    assert (quiet["trial"]["sd"], noisy["trial"]["sd"]) == (pytest.approx(0.003, rel=0.2), pytest.approx(0.1, rel=0.2))
    show_spread.print_spreads(page, rows, "throughput")
    assert "bridgetower" in text_of(page) and "flava" in text_of(page)
    write_history(runs, workload=None, sweeps=2, hosts=["a", "b"])
    page = console()
    assert len(show_spread.spread_rows("throughput", page)) == 2
    assert "2 sweeps of an earlier version do not say of what workload the trials are" in text_of(page)
    assert "`sweep spread --rebuild` writes anew" in text_of(page)


def test_nothing_yet_and_an_unknown_metric(runs: Path) -> None:
    page = console()
    show_spread.print_spreads(page, show_spread.spread_rows("throughput", page), "throughput")
    assert "no past sweep has throughput" in text_of(page)
    with pytest.raises(ConfigError, match="unknown metric"):
        show_spread.spread_rows("throughputt", page)


def test_damaged_files_are_named_and_what_there_is_is_rebuilt(runs: Path) -> None:
    make_sweep(runs, [Fake({"pool": "cpu"}, repeats=3)])
    write_history(runs, sweeps=1)
    (runs / "spread" / "broken.json").write_text("{")
    page = console()
    assert len(show_spread.spread_rows("throughput", page)) == 1
    assert "broken.json is damaged and was skipped" in text_of(page)
    show_spread.rebuild_spreads(page)
    assert "1 sweep read" in text_of(page)


def test_the_commands(runs: Path) -> None:
    make_sweep(runs, [Fake({"pool": "cpu"}, repeats=3)])
    told = CliRunner().invoke(commands.app, ["spread", "--rebuild", "--json"])
    assert told.exit_code == 0 and '"pool": "cpu"' in told.stdout and '"workload": "bridgetower"' in told.stdout
    assert CliRunner().invoke(commands.app, ["spread"]).exit_code == 0
    assert CliRunner().invoke(commands.app, ["compare", "last", "last"]).exit_code == 1
