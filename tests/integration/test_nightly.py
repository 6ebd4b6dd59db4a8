"""A whole night, compressed: real trials, Prefect, MLflow and a webhook; interrupted, gone on with, submitted again (row 21)."""

from __future__ import annotations

import shutil
import threading
import time
from typing import Any

import pytest

from cluster.journal.journal import read_journal
from experiments.atomic_file import atomic_write
from experiments.regression.definition import load_night
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome, TrialResult
from tasks.nightly.pair_text import pair_sentence
from tasks.nightly.plan import LABELS, empty_night, plan_night
from tasks.nightly.store import PAIRED, NightStore
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking.client import connect
from tasks.tracking.projection import publish_sweep
from tests.cli_support import ROOT
from tests.integration.test_trials_of_commits import commits
from tests.mlflow_support import all_runs, check_projection, write_journal
from tests.tasks.nightly.test_notify import custom, webhook

__all__ = ["commits"]  # a fixture

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.usefixtures("mlflow_database")]

PAST = [f"2026-11-{day:02d}" for day in range(1, 4)]
TONIGHT = "2026-11-21"


@pytest.fixture
def definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(ROOT / "tests" / "workloads_for_tests"))
    monkeypatch.setattr("tasks.nightly.store.today", lambda: TONIGHT)


def made_up_past(plan: Plan, commit: str | None = None) -> None:
    """Nights of the same cells in MLflow, through the code that publishes real ones; their journals say 1.6 million samples/s.
    `commit`: what they ran, where that is known. They have no canary: beside one that is slower by as much, how the cell is judged would
    hang on what else this machine does while each of the two is measured."""
    for number, date in enumerate(PAST):
        sweep_id = f"nightly-small-202611{number + 1:02d}-020000-0000"
        store, trials = SweepStore(sweep_id), []
        for trial in (trial for trial in plan.trials if trial.repeat == 1 and trial.labels["night.role"] != "canary"):
            key = f"{number:02d}{trial.key[2:]}"
            ran = {"git_commit": commit, "git_dirty": False} if commit else {}
            labels = {**trial.labels, LABELS[1]: date}
            mine = trial.model_copy(update={"key": key, "sweep_id": sweep_id, "labels": labels})
            folder = store.trial_dir(key)
            folder.mkdir(parents=True)
            atomic_write(folder / "trial.json", mine.model_dump_json())
            write_journal(folder, 1, 30, step_s=1e-5, **ran)
            store.save_result(TrialResult(key=key, attempt=1, outcome=Outcome.OK, started_at=1.7e9, finished_at=1.7e9 + 60))
            trials.append(mine)
        old = plan.model_copy(update={"sweep_id": sweep_id, "trials": trials, "labels": {**plan.labels, "night.date": date}})
        store.save_plan(old)
        publish_sweep(store, old, [], None, wait_s=30)
        shutil.rmtree(store.dir)  # history is read from MLflow, not from here


def test_a_night_is_interrupted_gone_on_with_judged_and_told_once(definition: None, prefect_server: str) -> None:
    from flows.nightly import REGRESSED, nightly

    made_up_past(plan_night(load_night("small"), empty_night("small", PAST[0], 600.0))[0])
    nights = NightStore("small")

    def run() -> Any:
        return nightly(name="small", date=TONIGHT, return_state=True)

    with webhook() as (url, received):
        custom("night-test", url)

        # stopped after its first trial: nothing is judged and nobody is told
        stopper = threading.Thread(target=_stop_after_the_first_trial, args=(nights,))
        stopper.start()
        state = run()
        stopper.join()
        assert state.is_failed() and "was interrupted" in state.message
        night = nights.load(TONIGHT)
        assert not night.closed and received == []
        store = SweepStore(night.sweep_id)
        first = store.load_plan().trials[0]
        before = (store.trial_dir(first.key) / "journal.jsonl").read_bytes()

        # the next start goes on with the same sweep, judges, fails where something got worse, tells
        state = run()
        assert (state.is_failed(), state.name) == (True, REGRESSED), state.message
        night = nights.load(TONIGHT)
        assert night.closed and night.sweep_id == store.sweep_id
        assert night.code is not None and night.code.commit == store.load_plan().git.get("commit")
        assert [entry.pool for entry in night.environments] == ["cpu"] and {"torch", "python", "host"} <= night.environments[0].facts.keys()
        assert (store.trial_dir(first.key) / "journal.jsonl").read_bytes() == before
        said = {(item.name, item.metric): item for item in night.judgements if item.role == "history"}
        whole = said["two · cpu · none · steps 30", "throughput"]
        assert (whole.verdict, whole.repeats, whole.baseline) == (Verdict.SLOWER, 2, PAST)
        assert [entry.name for entry in night.missed] == ["two · cpu · raise · steps 30"] and night.missed[0].why == "crashed"
        assert len(received) == 1
        assert received[0]["subject"].startswith("REGRESSION: small 2026-11-21: 1 cell worse in throughput")
        assert "Missed (crashed): two · cpu · raise" in received[0]["text"] and "report.html" in received[0]["text"]

        # submitted again: one sweep, no second message
        state = run()
        assert (state.is_completed(), state.name) == (True, "Skipped")
        assert len(received) == 1 and nights.dates() == [TONIGHT]

    [event] = _events("sweepbench.cell.regressed")
    assert event["resource"]["prefect.resource.id"] == f"sweepbench.cell.{whole.cell}"
    assert event["payload"]["text"].startswith("throughput -") and event["payload"]["date"] == TONIGHT
    check_projection(store)
    [parent] = all_runs(store.sweep_id, "parent")
    assert parent.data.tags["night.verdict"] == received[0]["subject"]
    assert "throughput=" in parent.data.tags[f"night.verdict.{whole.cell}"]
    assert [file.path for file in connect().list_artifacts(parent.info.run_id, "night")] == [
        "night/figures",
        "night/report.html",
        "night/report.md",
    ]
    judged = [
        run for run in all_runs(store.sweep_id) if run.data.tags["night.cell"] == whole.cell and run.data.tags["night.role"] == "history"
    ]
    assert judged and all("throughput=slower" in run.data.tags["night.verdict"] for run in judged)
    slowed = [run for run in all_runs(store.sweep_id) if run.data.tags["night.role"] == "injected"]
    assert len(slowed) == 2 and {run.data.params["injected_slowdown"] for run in slowed} == {"0.5"}
    assert set(night.probes) == {"twin", "injected"} and all(isinstance(word, Verdict) for word in night.probes.values())
    journal = read_journal(
        store.trial_dir(next(t.key for t in store.load_plan().trials if t.labels["night.role"] == "injected")) / "journal.jsonl"
    )
    assert journal.window is not None and journal.window["injected_slowdown"] == 0.5


def test_what_looks_slower_is_measured_in_pairs_of_commits(
    definition: None, prefect_server: str, commits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both commits take the same time, a hundredth of what the made-up past says: the node, not the code."""
    from flows.nightly import nightly

    good, tonight = commits
    for module in ("tasks.nightly.plan", "tasks.sweep.plan"):
        monkeypatch.setattr(f"{module}.git_state", lambda: {"commit": tonight, "dirty": False, "checked": True})
    monkeypatch.setattr("tasks.nightly.good_commit.resolve", lambda commit: commit)  # they are of another repository
    made_up_past(plan_night(load_night("small"), empty_night("small", PAST[0], 600.0))[0], good)
    with webhook() as (url, received):
        custom("night-test", url)
        nightly(name="small", date=TONIGHT, return_state=True)
        night = NightStore("small").load(TONIGHT)
        item = next(one for one in night.cell_verdicts if one.name == "two · cpu · none · steps 30" and one.metric == "throughput")
        assert item.looked is Verdict.SLOWER and item.pairs is not None, item.not_paired
        assert (item.pairs.good, item.pairs.tonight, item.pairs.good_date) == (good, tonight, PAST[0])
        assert item.pairs.count in (2, 3) and item.pairs.ratio is not None
        store = SweepStore(night.sweep_id)
        paired = [trial for trial in store.load_plan().trials if trial.labels["night.role"] == PAIRED]
        results = sorted(((store.result(trial.key), trial) for trial in paired), key=lambda both: both[0].started_at if both[0] else 0.0)
        in_turns = [good, tonight, tonight, good] * len(paired)
        assert [trial.commit for _, trial in results] == in_turns[: 2 * (item.pairs.count + item.pairs.disturbed)]
        assert all(result is not None and result.environment["git_commit"] == trial.commit for result, trial in results)
        sentence = pair_sentence(item)
        assert sentence is not None and f"{item.pairs.count} pairs of {tonight[:12]} against {good[:12]}" in sentence
        assert sentence in received[0]["text"]
    pairs_of = [run for run in all_runs(store.sweep_id) if run.data.tags["night.role"] == PAIRED]
    assert len(pairs_of) == len(paired)


def _events(name: str) -> list[dict[str, Any]]:
    """The events of this name that Prefect's server has stored, once it has any."""
    from prefect.client.orchestration import get_client

    deadline = time.monotonic() + 60
    while True:
        with get_client(sync_client=True) as client:
            answer = client._client.post("/events/filter", json={"filter": {"event": {"name": [name]}}})
        if (events := answer.json()["events"]) or time.monotonic() > deadline:
            return list(events)
        time.sleep(0.5)


def _stop_after_the_first_trial(nights: NightStore) -> None:
    while True:
        time.sleep(0.05)
        if not nights.dates():
            continue
        store = SweepStore(nights.load(TONIGHT).sweep_id)
        if store.exists() and store.result(store.load_plan().trials[0].key) is not None:
            store.request_stop("the test")
            return
