"""`sweep aa` and `sweep certificates`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.config.paths import runs_root
from flows.cli import options
from flows.cli import run_sweep as cli_run_sweep
from flows.cli.commands import app
from flows.cli.start_sweep import start
from tasks.analysis.certificates import keep_certificates, write_certificate
from tasks.report.certificate_text import lines_of_sweep
from tasks.sweep.store import AaSettings, Plan, SweepStore
from tests.tasks.aa_support import aa_sweep, noise, pair_rows


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Plans that were to be run; none is."""
    plans: list[Plan] = []

    def run(plan: Plan, *_: Any) -> int:
        plans.append(plan)
        return 2

    monkeypatch.setattr(cli_run_sweep, "run_sweep", run)
    return plans


def test_options_are_those_of_a_sweep_and_the_plan_is_kept_before_it_runs(started: list[Plan]) -> None:
    words = "aa synthetic --profile full --only width=256 --set steps=50 --pool cpu --pairs 3 --pool-wait 7"
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2, "the flow's own status"
    assert "A/A: cpu · fp32 · width 256 against itself" in done.stderr
    (plan,) = started
    assert (plan.aa, plan.request.pool_wait_s, len(plan.trials)) == (AaSettings(pairs=3), 7, 6)
    assert {(trial.parameters["width"], trial.parameters["steps"]) for trial in plan.trials} == {(256, 50)}
    assert SweepStore(plan.sweep_id).load_plan() == plan


def test_minutes_take_as_many_pairs_as_there_is_time_for(started: list[Plan]) -> None:
    CliRunner().invoke(app, ["aa", "synthetic", "--profile", "smoke", "--minutes", "5"])
    assert started[0].aa == AaSettings(pairs=1000, minutes=5.0)
    assert len(started[0].trials) == 2


@pytest.mark.parametrize("words", ["--pairs 0", "--pairs 1001", "--minutes 0"])
def test_numbers_out_of_range_are_refused(started: list[Plan], words: str) -> None:
    done = CliRunner().invoke(app, ["aa", "synthetic", *words.split()])
    assert done.exit_code == 2 and words.split(maxsplit=1)[0] in done.output and started == []


def test_what_cannot_be_is_said_before_anything_is_written(started: list[Plan]) -> None:
    done = CliRunner().invoke(app, ["aa", "synthetic", "--only", "width=3"])
    assert done.exit_code == 1 and "width" in done.output and started == []
    assert not list(runs_root().glob("*/plan.json"))


def test_profile_auto_says_what_it_took(started: list[Plan], capsys: pytest.CaptureFixture[str]) -> None:
    CliRunner().invoke(app, ["aa", "synthetic", "--profile", "smoke", "--pairs", "1"])
    plan = started[0]
    assert start(plan.model_copy(update={"request": plan.request.model_copy(update={"profile": "auto"})})) == 2
    assert "profile auto: took smoke, pool cpu" in capsys.readouterr().err


# --- listings


def test_certificates_are_listed_and_damaged_ones_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.out, "width", 160)  # whatever terminal the tests began in
    assert "`sweep aa synthetic` runs some" in CliRunner().invoke(app, ["certificates"]).output
    ran = ["made_up-20260101-000000-0000", "made_up-20260102-000000-0000"]
    for number, name in enumerate(ran):
        SweepStore(name).save_plan(aa_sweep([], SweepStore(name).dir).plan)
        told = " ".join(CliRunner().invoke(app, ["certificates"]).output.split())
        count, which = [("1 A/A sweep", ""), ("2 A/A sweeps", " of the last")][number]
        assert told == f"{count} ran, of which no pair counts; `sweep report {name}` says why{which}"
    root = runs_root()
    write_certificate(aa_sweep(pair_rows(*noise(6)), root / "one"))
    bad = root / "certificates" / "bad.json"
    bad.write_text("{")
    done = CliRunner().invoke(app, ["certificates", "--json"])
    assert f"{bad} is damaged and left out; `sweep report bad` writes it again" in done.stderr
    (told,) = json.loads(done.stdout)
    assert (told["pool"], told["device"], told["metric"], told["pairs"], told["sweeps"]) == ("gpu", "Made-up GPU", "throughput", 6, ["one"])
    table = CliRunner().invoke(app, ["certificates"])
    assert table.exit_code == 0
    line = table.stdout.splitlines()[-1]
    assert line.split()[:6] == ["gpu", "Made-up", "GPU", "throughput", "6", "made_up"] and " 0 of 2 " in line
    assert line.split()[-5:-3] == ["–", "–"] and line.split()[-1] == "1", "hosts and trees, which these trials do not know"


def lines_of(store: SweepStore) -> list[str]:
    return lines_of_sweep(store.dir, store.load_plan())


def test_after_the_comparison_stands_what_is_known_of_the_devices(tmp_path: Path) -> None:
    name = "made_up-20260101-000000-0000"
    store = SweepStore(name)
    sweep = aa_sweep(pair_rows(*noise(4)), store.dir, aa=None)
    store.save_plan(sweep.plan)
    assert lines_of(store) == [], "no report yet"
    keep_certificates(sweep)
    (line,) = lines_of(store)
    assert line.startswith("No A/A pairs of Made-up GPU were known where the sweep ran, ") and "`sweep aa made_up --pool gpu`" in line

    certified = aa_sweep(pair_rows(*noise(4)), SweepStore("made_up-20260102-000000-0000").dir)
    own = SweepStore(certified.sweep_id)
    own.save_plan(certified.plan)
    assert lines_of(own) == ["no A/A pair counts yet; the report says why"]
    write_certificate(certified)
    (line,) = lines_of(own)
    assert line.startswith("4 A/A pairs (made_up) on Made-up GPU: too few to test intervals of three repeats; single pairs, ")
