"""`sweep campaign`: what is documented can be planned on any machine, and what is wrong with a campaign is said where it stands."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from experiments.config.paths import REPOSITORY
from flows.cli.commands import app
from tasks.campaign.store import CampaignStore
from tasks.sweep.dataset import DatasetError

WRONG = """\
campaign: wrong
budget: 10m
sweeps:
  - suite: synthetic
    profile: smoke
    set: {widht: 3, stepps: 4}
    to: docs/results/a
  - name: second
    suite: synthetic
    profile: smoke
    set: {width: wide}
    only: {precision: [fp33]}
    to: docs/results/b
  - {name: third, suite: synthetik, to: docs/results/c}
  - {name: fourth, suite: synthetic, profile: smok, to: docs/results/d}
  - {name: fifth, suite: synthetic, profile: smoke, pools: [cpx], to: docs/results/e}
  - name: sixth
    suite: bridgetower
    profile: smoke
    only: {precision: [bf16], dataloader_workers: [2]}
    to: docs/results/f
  - name: seventh
    suite: synthetic
    profile: smoke
    set: {width: 64}
    only: {width: [128]}
    to: docs/results/g
"""


def documented_lines() -> list[str]:
    """The arguments of each `sweep campaign` line of docs/operating.md and of the command's help."""
    help_ = next(one.epilog or "" for one in app.registered_commands if one.callback is not None and one.callback.__name__ == "campaign")
    lines = [*(REPOSITORY / "docs" / "operating.md").read_text().splitlines(), *help_.replace("a rehearsal: ", "").split("·")]
    found = [line.partition("#")[0].replace("Examples: ", "").strip() for line in lines]
    return sorted({line.removeprefix("sweep campaign ") for line in found if line.startswith("sweep campaign ")})


@pytest.mark.parametrize("line", documented_lines())
def test_what_is_documented_can_be_planned_on_a_machine_without_a_gpu(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tasks.sweep.plan.probe", lambda pool: SimpleNamespace(problem="nvidia-smi is not on this machine; a driver is needed")
    )
    words = [word for word in shlex.split(line) if word != "--publish"]
    done = CliRunner().invoke(app, ["campaign", *words, *([] if "--plan" in words else ["--plan"])])
    assert done.exit_code == 0, done.output
    assert "for trials in this run" in done.output and not CampaignStore(words[0]).load().sweeps
    assert ("pool cuda: cannot run trials: nvidia-smi is not on this machine; a driver is needed" in done.output) == ("cpu" not in words)


def test_the_documents_show_how_to_plan_run_publish_and_rehearse() -> None:
    lines = documented_lines()
    assert {"gpu-x4 --plan", "gpu-x4 --budget 9m", "gpu-x4 --publish"} < {*lines} and any("--pool cpu" in line for line in lines)


def test_a_campaign_that_is_to_run_still_needs_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tasks.sweep.plan.probe", lambda pool: SimpleNamespace(problem="nvidia-smi is not on this machine; a driver is needed")
    )
    done = CliRunner().invoke(app, ["campaign", "vit-x4"])
    assert done.exit_code == 1 and "pool cuda (of sweep ladder): cannot run trials: nvidia-smi is not on this machine" in done.output
    assert "others alone: --sweep NAME" in done.output


def test_what_is_wrong_with_the_sweeps_of_a_campaign_is_said_of_all_with_its_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    done = CliRunner().invoke(app, ["campaign", str(file), "--plan"])
    told = " ".join(done.output.split())
    assert done.exit_code == 1
    for line, said in (
        (6, "sweeps[0].set.widht: the workload synthetic has no such parameter; did you mean 'width'?"),
        (6, "sweeps[0].set.stepps: the workload synthetic has no such parameter; did you mean 'steps'?"),
        (11, "sweeps[1].set.width: is 'wide'; should be a whole number"),
        (12, "sweeps[1].only.precision: is 'fp33'"),
        (14, "sweeps[2].suite: synthetik: unknown suite; did you mean 'synthetic'?"),
        (15, "sweeps[3].profile: smok: the suite synthetic has no such profile; did you mean 'smoke'?"),
        (16, "sweeps[4].pools: unknown pool 'cpx'; did you mean 'cpu'?"),
        (20, "sweeps[5].only: no cell has all these values; leave one out"),
        (26, "sweeps[6].only.width: no cell has the value 128, as `set` fixes it at 64; leave one of the two out"),
    ):
        assert f"wrong.yaml:{line}: {said}" in told
    assert not CampaignStore("wrong").load().sweeps


def test_what_the_command_line_asks_of_all_sweeps_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG.replace("widht: 3, stepps: 4", "width: 8").replace("width: wide", "width: 8"))
    done = CliRunner().invoke(
        app, ["campaign", str(file), "--plan", "--set", "steps=many", "--sweep", "synthetic-smoke", "--sweep", "second"]
    )
    told = " ".join(done.output.split())
    assert done.exit_code == 1 and "wrong.yaml:12: sweeps[1].only.precision" in told
    assert told.count("is 'many'") == 1 and "--set: steps (of sweep synthetic-smoke): is 'many'; should be a whole number" in told


def test_what_makes_a_suites_cells_wrong_and_data_that_are_not_there_are_told_at_the_line_that_asks_for_them(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        """\
campaign: wrong
budget: 10m
sweeps:
  - {suite: vit, profile: smoke, set: {devices: 99}, to: docs/results/a}
  - {suite: bridgetower, profile: smoke, set: {dataset: /nowhere}, to: docs/results/a}
  - name: refused
    suite: synthetic
    profile: smoke
    set: {precision: fp32, kernels: fused}
    to: docs/results/a
"""
    )
    done = CliRunner().invoke(app, ["campaign", str(file), "--plan"])
    told = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "wrong.yaml:4: sweeps[0].set.devices: 99 devices are more than the pool cpu has; at most " in told
    assert "wrong.yaml:5: sweeps[1].set.dataset: dataset /nowhere does not exist; " in told
    assert "wrong.yaml:9: sweeps[2].set: the cell " in told
    away = CliRunner().invoke(app, ["campaign", str(file), "--plan", "--sweep", "bridgetower-smoke", "--set", "dataset=/away"])
    said = "--set: dataset (of sweep bridgetower-smoke): dataset /away does not exist; "
    assert away.exit_code == 1 and said in " ".join(away.output.split())


@pytest.mark.parametrize("other", ["set: {measure_s: 1}", "only: {rung: [baseline]}"])
def test_pools_that_are_too_small_are_told_at_their_line_whatever_else_the_sweep_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    small = tmp_path / "pools.yaml"
    small.write_text("pools: {small: {device: cpu, address: embedded, accelerators_per_node: 1}}")
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(small))
    file = tmp_path / "wrong.yaml"
    file.write_text(
        f"""\
campaign: wrong
budget: 10m
sweeps:
  - suite: vit
    profile: x2
    pools: [small]
    {other}
    to: docs/results/a
"""
    )
    done = CliRunner().invoke(app, ["campaign", str(file), "--plan"])
    said = "wrong.yaml:6: sweeps[0].pools: 2 devices are more than the pool small has; at most 1"
    assert done.exit_code == 1 and said in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ("set: {dataset: /a}", "wrong.yaml:4: sweeps[0].set.dataset: /a is away"),
        ("set: {steps: 5}", "error: dataset (of sweep synthetic-smoke): /a is away"),  # the suite's own
    ],
)
def test_data_that_are_not_there_are_told_at_a_line_of_the_campaign_only_where_it_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str, said: str
) -> None:
    def away(*_: object) -> None:
        raise DatasetError("/a is away")

    monkeypatch.setattr("tasks.campaign.entries.make_plan", away)
    file = tmp_path / "wrong.yaml"
    file.write_text(f"campaign: wrong\nbudget: 10m\nsweeps:\n  - {{suite: synthetic, profile: smoke, {asks}, to: docs/results/a}}\n")
    done = CliRunner().invoke(app, ["campaign", str(file), "--plan"])
    assert done.exit_code == 1 and said in " ".join(done.output.split())


@pytest.mark.parametrize(("option", "said"), [("--budget", "'' is not a duration"), ("--state", "'' is no name of a campaign's state")])
def test_an_option_without_a_value_is_no_default(tmp_path: Path, option: str, said: str) -> None:
    """As of a script whose variable is empty."""
    file = tmp_path / "wrong.yaml"
    file.write_text("campaign: wrong\nbudget: 10m\nsweeps: [{suite: synthetic, profile: smoke, to: docs/results/a}]\n")
    done = CliRunner().invoke(app, ["campaign", str(file), "--plan", option, ""])
    assert done.exit_code == 1 and f"error: {option}: {said}" in done.output
    if option == "--budget":
        night = CliRunner().invoke(app, ["nightly", "--plan", option, ""])
        assert night.exit_code == 1 and f"error: {option}: {said}" in night.output


def test_what_names_no_parameter_is_told_with_its_sweep_and_once(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "campaign: wrong\nbudget: 10m\nsweeps:\n"
        + "".join(f"  - {{suite: synthetic, profile: {profile}, to: docs/results/a}}\n" for profile in ("smoke", "tune"))
    )
    done = CliRunner().invoke(app, ["campaign", str(file), "--plan", "--pool", "cpx"])
    assert done.exit_code == 1 and done.stderr.startswith(
        "error: --pool: (of sweep synthetic-smoke): unknown pool 'cpx'; did you mean 'cpu'?"
    )
    assert done.stderr.count("cpx") == 1
    missing = CliRunner().invoke(app, ["campaign"])
    assert missing.exit_code != 0 and "FILE" in missing.output and "NAME: is missing" not in missing.output
