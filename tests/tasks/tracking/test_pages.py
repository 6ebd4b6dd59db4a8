"""What people read on MLflow's pages: links lead to the sweep's own trials, descriptions by people stay, figures are found."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from experiments.trial import Outcome
from tasks.tracking import pages
from tasks.tracking.client import connect
from tasks.tracking.finish_sweep import describe_sweep
from tasks.tracking.runs import SweepRuns
from tests.mlflow_support import make_store

NOTE = pages.NOTE


def test_experiment_is_described_and_leads_to_its_latest_sweep(tmp_path: Path) -> None:
    _, plan = make_store(tmp_path / "runs", {"a": Outcome.OK, "b": Outcome.CRASHED})
    client = connect()
    runs = SweepRuns(client, plan)
    tags = client.get_experiment(runs.experiment_id).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"
    assert f"runs/{runs.parent}?" in tags[NOTE]
    link = pages.table_link(runs.experiment_id, plan.sweep_id)
    assert f"]({link})" in tags[NOTE]
    assert f"]({link})" in client.get_run(runs.parent).data.tags[NOTE]

    key = parse_qs(urlsplit(link.removeprefix("#")).query)["viewStateShareKey"][0]
    view = json.loads(tags[f"mlflow.sharedViewState.{key}"])
    for trial in plan.trials:
        runs.trial_run(trial, 1, 1.7e9)
    found = client.search_runs([runs.experiment_id], view["searchFilter"])
    assert sorted(run.data.tags["trial.key"] for run in found) == sorted(trial.key for trial in plan.trials)
    columns = {column.split("`")[1] for column in view["selectedColumns"] if column.startswith("params.")}
    assert columns == set(plan.trials[0].axes) <= set(found[0].data.params)
    assert not view["orderByKey"].startswith("attributes.start_time")  # MLflow would fold them into their parent

    client.set_experiment_tag(runs.experiment_id, NOTE, "my own words")
    SweepRuns(client, plan)
    assert client.get_experiment(runs.experiment_id).tags[NOTE] == "my own words"


def test_an_earlier_sweep_that_is_gone_on_with_is_not_the_latest(tmp_path: Path) -> None:
    _, plan = make_store(tmp_path / "runs", {"a": Outcome.OK})
    client = connect()
    earlier, later = (plan.model_copy(update={"sweep_id": f"{plan.name}-{when}-abcd"}) for when in ("20261128-104348", "20261128-104509"))
    for one, latest in ((earlier, earlier), (later, later), (earlier, later)):
        experiment = client.get_experiment(SweepRuns(client, one).experiment_id)
        assert experiment.tags[NOTE].startswith(f"Latest sweep: [{latest.sweep_id}]")
    assert {name for name in experiment.tags if "sharedViewState" in name} >= {
        f"mlflow.sharedViewState.{one.sweep_id}" for one in (earlier, later)
    }, "each has its charts"


def test_what_a_sweep_found_stands_first_in_its_note_and_a_persons_note_stays(tmp_path: Path) -> None:
    _, plan = make_store(tmp_path / "runs", {"a": Outcome.OK})
    client = connect()
    runs = SweepRuns(client, plan)
    before = client.get_run(runs.parent).data.tags[NOTE]
    for said in ("**Nothing is decided**.\n", "**A is fastest**."):
        describe_sweep(runs, said)
        assert client.get_run(runs.parent).data.tags[NOTE] == f"{said.strip()}\n\n{before}", "the later one in place of the first"
    client.set_tag(runs.parent, NOTE, "my own words")
    describe_sweep(runs, "**B is fastest**.")
    assert client.get_run(runs.parent).data.tags[NOTE] == "my own words"


def test_the_table_of_a_sweep_with_an_emulated_pool_holds_what_was_measured(tmp_path: Path) -> None:
    _, plan = make_store(tmp_path / "runs", {"a": Outcome.OK, "b": Outcome.OK})
    emulated, measured = plan.trials[0].model_copy(update={"emulated": True}), plan.trials[1]
    plan = plan.model_copy(update={"trials": [emulated, measured]})
    client = connect()
    runs = SweepRuns(client, plan)
    for trial in plan.trials:
        runs.trial_run(trial, 1, 1.7e9)
    view = json.loads(client.get_experiment(runs.experiment_id).tags[f"mlflow.sharedViewState.{plan.sweep_id}"])
    found = client.search_runs([runs.experiment_id], view["searchFilter"])
    assert [run.data.tags["trial.key"] for run in found] == [measured.key]


def test_figures_of_a_report() -> None:
    text = "before\n\n## Figures\n\n![Loss](figures/loss.svg)\n\n![B · c](figures/b.svg)\n\n## After\n"
    assert "![Loss](http://h:1/get-artifact?path=figures%2Floss.png&run_uuid=r)" in pages.with_figures(text, "r", "http://h:1/")
    assert "- [B · c](#/experiments/7/runs/r/artifacts/figures/b.svg)" in pages.linked_figures(text, "7", "r")
    without = pages.without_figures(text)
    assert "figures" not in without and "Figures" not in without and "## After" in without
