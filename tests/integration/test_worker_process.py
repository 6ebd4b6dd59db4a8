"""The trial's entrypoint as a process: Ray Train in local mode, two gloo ranks, signals, lost ranks, the largest batch.

It is forked from a template, as trials of a sweep are, unless a test is of a fresh process: that imports torch itself, and so does each of
its ranks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers import processes
from cluster.launchers.template import ForkedTrial, Template
from experiments.json_file import parse_model
from experiments.trial import Outcome, Trial, TrialResult
from tasks.sweep.trial_key import code_files
from tests.shared_support import kept

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
EXTRA = ROOT / "tests" / "workloads_for_tests"
PARAMETERS = 2 * (32 * 32 + 32) + 32 * 8 + 8  # of the workload synthetic
BASE: dict[str, Any] = {"batch_size": 8, "steps": 6, "warmup_steps": 2, "threads": 1, "learning_rate": 0.05}


@pytest.fixture(scope="session")
def trial_template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Template]:
    """For trials of any workload here."""
    with kept("trial_template") as ends:
        log = tmp_path_factory.mktemp("template") / "log.txt"
        made = Template(sys.executable, "synthetic", {**os.environ, "PYTHONPATH": str(ROOT)}, log)
        ends.callback(made._process.wait, 120)
        ends.callback(made.close)
        yield made


def start(
    folder: Path, workload: str, *, template: Template | None, emulated: bool = False, **parameters: Any
) -> subprocess.Popen[bytes] | ForkedTrial:
    """A trial's process. `template`: what it is forked from; None for a fresh one."""
    folder.mkdir(exist_ok=True)
    trial = Trial(
        key=f"{folder.name:0>16}"[:16],
        key_parts={},
        sweep_id="s",
        suite="s",
        workload=workload,
        pool="cpu",
        device="cpu",
        emulated=emulated,
        cell="c",
        repeat=1,
        index=0,
        axes={},
        parameters={**BASE, **parameters},
    )
    (folder / "trial.json").write_text(trial.model_dump_json())
    arguments = ["--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", "1"]
    environment = {**os.environ, "SWEEPBENCH_EXTRA": str(EXTRA), "PYTHONPATH": str(ROOT), "SWEEPBENCH_TRIAL": trial.key}
    if template is not None:
        return template.fork(arguments, environment, folder / "log.txt")
    with open(folder / "log.txt", "wb") as log:
        return subprocess.Popen([sys.executable, "-m", "cluster.worker.main", *arguments], env=environment, stdout=log, stderr=log)


def finish(folder: Path, process: subprocess.Popen[bytes] | ForkedTrial) -> TrialResult:
    code = process.wait(timeout=240)
    assert code == 0, (folder / "log.txt").read_text()[-3000:]
    result = parse_model((folder / "result.json").read_bytes(), TrialResult, folder, "")
    assert result.environment["start"] == ("warm" if isinstance(process, ForkedTrial) else "fresh")
    return result


def test_two_ranks_learn_what_one_does_with_both_their_batches(tmp_path: Path, trial_template: Template) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone = finish(one, start(one, "synthetic", template=trial_template, batch_size=16))
    both = finish(two, start(two, "synthetic", template=trial_template, devices=2, communication_steps=4, profile_steps=2))
    assert (alone.outcome, both.outcome) == (Outcome.OK, Outcome.OK)
    assert both.environment["world_size"] == 2
    assert both.summary["samples"] == alone.summary["samples"] == 6 * 16
    assert alone.summary["eval_loss_after"] != pytest.approx(alone.summary["eval_loss_before"], rel=1e-3), "it learned something"
    assert both.summary["eval_loss_after"] == pytest.approx(alone.summary["eval_loss_after"], rel=1e-5)
    window = read_journal(two / "journal.jsonl").window
    assert window is not None and [rank["rank"] for rank in window["ranks"]] == [0, 1]
    cost, traced = window["communication"], window["profile"]
    assert cost["bytes"] == 4 * PARAMETERS and cost["steps"] == 4
    assert min(cost["with_s"], cost["without_s"], cost["alone_s"]) > 0 and cost["step_s"] > cost["with_s"]
    exposed = max(0.0, cost["with_s"] - cost["without_s"])
    assert both.summary["communication_share"] == pytest.approx(exposed / cost["step_s"])
    assert alone.summary["communication_share"] is None
    assert (two / "trace.json.gz").exists() and (traced["where"], traced["steps"]) == ("host", 2)
    assert "communication" in {group["group"] for group in traced["groups"]}, "gloo's all-reduce is in the traced steps"
    end = read_journal(one / "journal.jsonl").end
    assert end is not None and end["outcome"] == "ok"


def test_a_rank_that_is_killed_is_a_lost_worker_and_takes_the_others_with_it(tmp_path: Path) -> None:
    """Ranks that are processes of their own, not forked ones."""
    folder = tmp_path / "kill"
    result = finish(folder, start(folder, "faulty", template=None, devices=2, fault="kill", fault_rank=1, marker_dir=str(tmp_path)))
    assert "kill at step 3" in (tmp_path / "fault-fired").read_text()
    assert result.outcome is Outcome.INFRA
    assert result.reason is not None and result.reason.startswith("worker_lost: rank 1 was killed by SIGKILL")
    assert len(read_journal(folder / "journal.jsonl").steps) >= 1
    assert not processes.of_trial(f"{'kill':0>16}")


def test_a_rank_out_of_device_memory_explains_the_trial(tmp_path: Path, trial_template: Template) -> None:
    folder = tmp_path / "oom"
    process = start(folder, "faulty", template=trial_template, devices=2, fault="device_oom", fault_rank=1, marker_dir=str(tmp_path))
    result = finish(folder, process)
    assert "device_oom at step 3" in (tmp_path / "fault-fired").read_text()
    assert result.outcome is Outcome.DOES_NOT_FIT
    assert result.reason is not None and result.reason.startswith("rank 1: CUDA out of memory")


def test_ranks_that_all_run_out_of_memory_in_a_traced_step_take_no_measurement_away(tmp_path: Path, trial_template: Template) -> None:
    """The trial was measured before, and no rank is left waiting for another."""
    folder = tmp_path / "traced"
    last = BASE["warmup_steps"] + BASE["steps"]
    fault = {"fault": "device_oom", "fault_rank": -1, "fault_step": last + 2, "marker_dir": str(tmp_path)}
    result = finish(folder, start(folder, "faulty", template=trial_template, devices=2, communication_steps=0, profile_steps=2, **fault))
    assert (tmp_path / "fault-fired").read_text().count(f"device_oom at step {last + 2}, ") == 2
    assert result.outcome is Outcome.OK and result.summary["throughput"] > 0
    journal = read_journal(folder / "journal.jsonl")
    assert [note["text"].partition(" (")[0] for note in journal.notes if "traced" in note["text"]] == [
        "no steps were traced: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    ]


@pytest.mark.parametrize(("fault", "rank"), [("kill", 1), ("kill", 0), ("raise", 1)])
def test_a_rank_that_alone_fails_in_a_traced_step_takes_no_measurement_away(
    tmp_path: Path, trial_template: Template, fault: str, rank: int
) -> None:
    folder = tmp_path / f"{fault}{rank}"
    last = BASE["warmup_steps"] + BASE["steps"]
    values = {"fault": fault, "fault_rank": rank, "fault_step": last + 2, "marker_dir": str(tmp_path), "agree_s": 1.0}
    result = finish(folder, start(folder, "faulty", template=trial_template, devices=2, communication_steps=0, profile_steps=2, **values))
    assert (tmp_path / "fault-fired").read_text().count(f"{fault} at step {last + 2}") == 1
    assert (result.outcome, result.reason) == (Outcome.OK, None) and result.summary["throughput"] > 0
    journal = read_journal(folder / "journal.jsonl", trial=result.key)
    assert journal.mark == result.journal and journal.mark is not None and journal.mark.closed
    assert [step["step"] for step in journal.steps] == list(range(1, last + 1))
    assert journal.window is not None and "traces" not in journal.window and journal.window["flops_per_sample"] > 0
    told = [note["text"] for note in journal.notes if note["text"].startswith("no steps were traced: ")]
    assert len(told) == 1, told


def test_sigterm_publishes_cancelled(tmp_path: Path, trial_template: Template) -> None:
    folder = tmp_path / "term"
    process = start(folder, "faulty", template=trial_template, fault="hang", marker_dir=str(tmp_path))
    deadline = time.monotonic() + 240
    while not (tmp_path / "fault-fired").exists():
        assert time.monotonic() < deadline and process.poll() is None, (folder / "log.txt").read_text()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    result = finish(folder, process)
    assert result.outcome is Outcome.CANCELLED and result.reason == "told to end (SIGTERM)"
    journal = read_journal(folder / "journal.jsonl")
    assert journal.end is not None and journal.end["outcome"] == "cancelled"
    assert [step["step"] for step in journal.steps] == [1, 2]


def test_the_largest_batch_is_found_by_probes_in_processes_of_their_own(tmp_path: Path, trial_template: Template) -> None:
    folder = tmp_path / "max"
    result = finish(folder, start(folder, "faulty", template=trial_template, emulated=True, batch_size="max", fits=1))
    assert result.outcome is Outcome.OK and result.emulated
    assert result.summary["batch_size"] == 1
    probes = {
        int(path.parent.name.split("-")[1]): json.loads(path.read_text())["outcome"] for path in (folder / "probes").glob("*/result.json")
    }
    assert probes == {1: "ok", 2: "does_not_fit"}
    notes = " ".join(note["text"] for note in read_journal(folder / "journal.jsonl").notes)
    assert "1 samples fit, 2 does not" in notes and "3%" in notes


@pytest.mark.parametrize(("workload", "parameters"), [("synthetic", {"profile_steps": 1}), ("faulty", {})])
def test_all_that_the_process_loads_is_in_its_trials_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workload: str, parameters: dict[str, Any]
) -> None:
    """The key is made by reading imports; here Python says what it imported, but for the two modules that are chosen by name."""
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(EXTRA))
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    folder = tmp_path / workload
    finish(folder, start(folder, workload, template=None, **parameters))
    lines = (line.rpartition("|")[2].strip() for line in (folder / "log.txt").read_text().splitlines() if line.startswith("import time:"))
    loaded = {name for name in lines if name.split(".")[0] in ("cluster", "experiments", "tasks", "flows")}
    assert {"cluster.worker.trial_session", "cluster.devices.clock", "experiments.summary", "experiments.workloads"} <= loaded
    assert loaded - set(code_files(workload, "cpu")) == set()
