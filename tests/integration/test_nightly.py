"""A whole night, compressed: real trials, Prefect, MLflow and a webhook; interrupted, gone on with, submitted again (row 21)."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest

from cluster.journal.journal import read_journal
from experiments.atomic_file import atomic_write
from experiments.regression.definition import load_night
from experiments.stats.verdict import Verdict
from experiments.trial import Outcome, TrialResult
from tasks.nightly.plan import LABELS, empty_night, plan_night
from tasks.nightly.store import NightStore
from tasks.sweep.store import Plan, SweepStore
from tasks.tracking.client import connect
from tasks.tracking.projection import publish_sweep
from tests.cli_support import ROOT
from tests.mlflow_support import all_runs, check_projection, write_journal
from tests.tasks.nightly.test_notify import custom, webhook

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), pytest.mark.usefixtures("mlflow_database")]

PAST = [f"2026-11-{day:02d}" for day in range(1, 4)]
TONIGHT = "2026-11-21"


@pytest.fixture
def definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(ROOT / "tests" / "workloads_for_tests"))


def made_up_past(plan: Plan) -> None:
    """Nights of the same cells in MLflow, through the code that publishes real ones; their journals say 1.6 million samples/s."""
    for number, date in enumerate(PAST):
        sweep_id = f"nightly-small-202611{number + 1:02d}-020000-0000"
        store, trials = SweepStore(sweep_id), []
        for trial in (trial for trial in plan.trials if trial.repeat == 1):
            key = f"{number:02d}{trial.key[2:]}"
            labels = {**trial.labels, LABELS[1]: date}
            mine = trial.model_copy(update={"key": key, "sweep_id": sweep_id, "labels": labels})
            folder = store.trial_dir(key)
            folder.mkdir(parents=True)
            atomic_write(folder / "trial.json", mine.model_dump_json())
            write_journal(folder, 1, 30, step_s=1e-5)
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
        assert received[0]["subject"].startswith("REGRESSION: small 2026-11-21: 1 slower")
        assert "Missed (crashed): two · cpu · raise" in received[0]["text"] and "report.html" in received[0]["text"]

        # submitted again: one sweep, no second message
        state = run()
        assert (state.is_completed(), state.name) == (True, "Skipped")
        assert len(received) == 1 and nights.dates() == [TONIGHT]

    check_projection(store)
    [parent] = all_runs(store.sweep_id, "parent")
    assert parent.data.tags["night.verdict"] == received[0]["subject"]
    assert "throughput=" in parent.data.tags[f"night.verdict.{whole.cell}"]
    assert [file.path for file in connect().list_artifacts(parent.info.run_id, "night")] == [
        "night/figures",
        "night/report.html",
        "night/report.md",
    ]
    slowed = [run for run in all_runs(store.sweep_id) if run.data.tags["night.role"] == "injected"]
    assert len(slowed) == 2 and {run.data.params["injected_slowdown"] for run in slowed} == {"0.5"}
    assert set(night.probes) == {"twin", "injected"} and all(isinstance(word, Verdict) for word in night.probes.values())
    journal = read_journal(
        store.trial_dir(next(t.key for t in store.load_plan().trials if t.labels["night.role"] == "injected")) / "journal.jsonl"
    )
    assert journal.window is not None and journal.window["injected_slowdown"] == 0.5


def _stop_after_the_first_trial(nights: NightStore) -> None:
    import time

    while True:
        time.sleep(0.05)
        if not nights.dates():
            continue
        store = SweepStore(nights.load(TONIGHT).sweep_id)
        if store.exists() and store.result(store.load_plan().trials[0].key) is not None:
            store.request_stop("the test")
            return
