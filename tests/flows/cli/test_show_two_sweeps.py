"""`sweep compare`: colours of what is decided alone, and the same as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from experiments.stats.estimate import Estimate
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from flows.cli.commands import app
from flows.cli.show_two_sweeps import _pair_json, comparison_json, print_two_sweeps
from tasks.report.compare_sweeps import Pair, compare
from tasks.sweep.store import SweepStore
from tests.tasks.cell_support import made, repeats, workers
from tests.tasks.fake_sweep import Fake, make_sweep
from tests.tasks.price_support import priced
from tests.tasks.spread_support import write_history

A, B = "made_up-20260101-000000-0000", "made_up-20260102-000000-0000"


def fakes(*rates: float) -> list[Fake]:
    """A cell for each rate; three repeats that lie close together. 0 is a cell that crashed."""
    cells = [{"pool": "cpu", "precision": "fp32", "dataloader_workers": workers} for workers in range(len(rates))]
    crashed = {"outcome": Outcome.CRASHED, "reason": "made up"}
    return [Fake(axes, rate=rate or 1.0, repeats=3, **({} if rate else crashed)) for axes, rate in zip(cells, rates, strict=True)]  # type: ignore[arg-type]


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """B is slower in its second cell, faster in its third, and has no value in its fourth; the rest is the same."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    write_history(tmp_path, pool="cpu", trial_sd=1e-6, sweep_sd=1e-6)
    make_sweep(tmp_path, fakes(100, 100, 100, 100), sweep_id=A)
    make_sweep(tmp_path, fakes(100, 80, 125, 0), sweep_id=B)
    return tmp_path


def test_green_is_faster_red_is_slower_and_the_rest_is_dim(sweeps: Path) -> None:
    out = Console(record=True, width=220, force_terminal=True, color_system="standard")
    print_two_sweeps(out, compare(sweeps / A, sweeps / B), SweepStore(B))
    rows = [line for line in out.export_text(styles=True).splitlines() if "MP-" in line]
    assert [("\x1b[32mx1.25" in row, "\x1b[31mx0.80" in row, "\x1b[2mx1.00" in row) for row in rows[:3]] == [
        (False, False, True),
        (False, True, False),
        (True, False, False),
    ]
    assert "\x1b[32mfaster" in rows[2] and "\x1b[31mslower" in rows[1] and "\x1b[2mok → crashed" in rows[3]
    assert (sweeps / B / "comparison.html").exists()


def test_as_data_it_has_values_ratios_and_verdicts(sweeps: Path) -> None:
    told = comparison_json(compare(sweeps / A, sweeps / B))
    assert (told["a"], told["b"], told["smallest_effect"], told["only_a"]) == (A, B, 0.02, [])
    assert [cell["verdict"] for cell in told["cells"]] == ["same", "slower", "faster", None]
    assert [cell["said"] for cell in told["cells"]][3] == "ok → crashed"
    slower = told["cells"][1]
    assert (slower["metric"], slower["unit"], slower["difference"], slower["a"]["trials"]) == ("throughput", "samples/s", False, 3)
    assert slower["ratio"]["value"] == pytest.approx(0.8, rel=0.01) and slower["ratio"]["low"] < 0.8 < slower["ratio"]["high"]
    assert told["cells"][3]["ratio"] is None and told["cells"][3]["b"] == {"outcome": "crashed", "trials": 0}


def test_the_command_prints_that_data_alone(sweeps: Path) -> None:
    done = CliRunner().invoke(app, ["compare", A, B, "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["headline"] == "1 cell same, 1 cell slower, 1 cell faster, 1 cell ok → crashed"
    assert not (sweeps / B / "comparison.html").exists(), "nothing is written for data"


def test_sweeps_without_a_cell_in_common_are_no_comparison_for_a_script_either(sweeps: Path) -> None:
    axes = {"pool": "cpu", "precision": "bf16", "dataloader_workers": 9}
    make_sweep(sweeps, [Fake(axes, rate=100, repeats=2)], sweep_id=(other := "made_up-20260103-000000-0000"))
    for words in ([], ["--json"]):
        done = CliRunner().invoke(app, ["compare", A, other, *words])
        assert done.exit_code == 1 and "The two sweeps have no cell in common." in done.stdout
    assert CliRunner().invoke(app, ["compare", A, B]).exit_code == 0


def test_costs_and_energy_stand_beside_the_values_where_they_are_known() -> None:
    [a], [b] = (
        made(priced(repeats(workers(0), rate, summary={"energy_j_per_sample": 3.6}), price)) for rate, price in ((100.0, 3.6), (150.0, 7.2))
    )
    told = _pair_json(Pair(a, b, Estimate(1.5, 1.4, 1.6, 0.03, 4.0, 3), Verdict.FASTER, []))
    assert (told["a"]["currency"], told["b"]["currency"]) == ("USD", "USD")
    assert [told[side]["cost_per_million_samples"]["value"] for side in ("a", "b")] == pytest.approx([10.0, 13.333], rel=1e-3)
    assert told["a"]["energy_kwh_per_million_samples"]["value"] == pytest.approx(1.0)
    less = told["times_cheaper"]
    assert [less["value"], less["low"], less["high"]] == pytest.approx([0.75, 0.70, 0.80])
    [plain] = made(repeats(workers(0), 100.0))
    told = _pair_json(Pair(plain, b, Estimate(1.5, 1.4, 1.6, 0.03, 4.0, 3), Verdict.FASTER, []))
    assert told["times_cheaper"] is None and set(told["a"]) == {"outcome", "trials", "value", "low", "high"}
