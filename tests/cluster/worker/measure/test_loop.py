"""One rank of a trial, in this process, on the CPU: what it writes down, and how it ends."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.devices import load as load_device
from cluster.devices.cpu import Cpu
from cluster.journal.journal import Journal, JournalWriter, read_journal
from cluster.worker.beside_window import measure_communication
from cluster.worker.measure.recorder import Recorder
from cluster.worker.outcome import Diverged
from cluster.worker.rank_group import Ranks
from cluster.worker.train.train_step import TrainStep
from cluster.worker.trial_session import TrialSession
from experiments.components.workload import Context, Unsupported
from experiments.step_record import StepTiming
from experiments.summary import summarise
from experiments.trial import Trial
from experiments.workloads import synthetic
from experiments.workloads.flava.workload import Flava
from tests.trial_support import cpu_trial

FAULTY = Path(__file__).parents[3] / "workloads_for_tests"
BASE: dict[str, Any] = {"batch_size": 8, "steps": 6, "warmup_steps": 2, "threads": 1}


@pytest.fixture(autouse=True)
def _threads() -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def trial(workload: str = "synthetic", **parameters: Any) -> Trial:
    return cpu_trial(workload, {**BASE, **parameters})


def run(folder: Path, one: Trial, *, probe: str | None = None) -> Journal:
    path = folder / "journal.jsonl"
    with Recorder(JournalWriter(path, 1)) as recorder:
        TrialSession(one, Ranks(), recorder, folder, probe=probe).run()
    return read_journal(path)


def test_a_trial_writes_down_everything(tmp_path: Path) -> None:
    journal = run(tmp_path, trial(evaluate=True))
    assert [phase["name"] for phase in journal.phases] == [
        *("start", "data", "build", "evaluate", "first_step", "warmup", "measure", "evaluate")
    ]
    assert [step["step"] for step in journal.steps] == list(range(1, 9))
    assert [step["measured"] for step in journal.steps] == [False] * 2 + [True] * 6
    assert [evaluation["when"] for evaluation in journal.evaluations] == ["before", "after"]
    window = journal.window
    assert window is not None
    assert window["samples"] == 6 * 8
    assert window["wall_s"] >= sum(step["total_s"] for step in journal.steps if step["measured"]) * 0.99
    assert window["first_measured_step"] == 3
    assert window["peak_flops"] is None and window["peak_source"] is None, "a CPU's peak is not in the table: unknown, not guessed"
    assert window["flops_per_sample"] == 3 * 2 * (2 * 32 * 32 + 32 * 8)
    assert journal.environment["clock"] == "host perf_counter" and journal.environment["threads"] == 1
    summary = summarise(journal.steps, window, journal.evaluations)
    assert summary["throughput"] == pytest.approx(48 / window["wall_s"])


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_not_finite_ends_the_trial_and_names_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(FAULTY))
    one = trial("faulty", fault=value, fault_step=5, evaluate=False, marker_dir=str(tmp_path))
    with pytest.raises(Diverged, match=f"{value} at step 5"):
        run(tmp_path, one)
    assert (tmp_path / "fault-fired").exists()
    journal = read_journal(tmp_path / "journal.jsonl")
    assert len(journal.steps) == 5 and journal.steps[-1]["loss_text"] == value
    assert journal.window is None


@pytest.mark.parametrize("precision", ["fp16", "tf32", "fp8", "fp8_rowwise", "mxfp8"])
def test_a_precision_the_device_does_not_have_is_unsupported_and_the_environment_is_there_all_the_same(
    tmp_path: Path, precision: str
) -> None:
    with pytest.raises(Unsupported, match=precision):
        run(tmp_path, trial(precision=precision))
    assert read_journal(tmp_path / "journal.jsonl").environment["device_kind"] == "cpu"


def test_bf16_is_close_to_fp32_but_not_it(tmp_path: Path) -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        folder = tmp_path / precision
        folder.mkdir()
        losses[precision] = [step["loss"] for step in run(folder, trial(precision=precision, evaluate=False)).steps]
    assert losses["fp32"] != losses["bf16"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)


def test_linear_layers_in_8_bits_learn_as_bf16_does_and_the_journal_says_which_they_are(tmp_path: Path) -> None:
    found = {}
    for precision in ("bf16", "fp8_simulated", "int8_switchback"):
        (tmp_path / precision).mkdir()
        found[precision] = run(tmp_path / precision, trial(precision=precision, evaluate=False))
    losses = {precision: [step["loss"] for step in journal.steps] for precision, journal in found.items()}
    for precision in ("fp8_simulated", "int8_switchback"):
        assert losses[precision] != losses["bf16"] and losses[precision] == pytest.approx(losses["bf16"], rel=0.05)
        (note,) = [note["text"] for note in found[precision].notes if "linear layers" in note["text"]]
        assert note.startswith(f"precision {precision}, kernels stock: 2 linear layers, ")
        assert note.endswith("1 more in the blocks have widths not divisible by 16")


def test_optimizers_and_checkpointing_change_the_speed_not_the_losses(tmp_path: Path) -> None:
    variants: list[dict[str, Any]] = [
        {"optimizer": "per_parameter"},
        {"optimizer": "foreach"},
        {"optimizer": "fused"},
        {"activation_checkpointing": True},
        {"dataloader_workers": 2},
    ]
    losses = []
    for number, variant in enumerate(variants):
        folder = tmp_path / str(number)
        folder.mkdir()
        losses.append([step["loss"] for step in run(folder, trial(evaluate=False, **variant)).steps])
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-5)


def test_a_probe_measures_nothing(tmp_path: Path) -> None:
    journal = run(tmp_path, trial(steps=2), probe="{}")
    assert journal.window is None and not journal.evaluations and len(journal.steps) == 4


def test_profiled_steps_leave_a_trace_and_no_record(tmp_path: Path) -> None:
    journal = run(tmp_path, trial(profile_steps=2, evaluate=False))
    assert (tmp_path / "trace.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert len(journal.steps) == 8 and "trace.json.gz" in journal.notes[-1]["text"]


def test_the_linear_rate_falls_to_zero_over_all_steps() -> None:
    parameters = synthetic.Parameters(steps=8, warmup_steps=2, learning_rate=1.0)
    workload = synthetic.build(Context(parameters, None, "cpu", 0, 1, 8))
    train_step = TrainStep(workload, workload.model(), parameters, Cpu())
    rates = [train_step.learning_rate(step) for step in range(1, 12)]
    assert rates[0] == 1.0 and rates[9] == pytest.approx(0.1) and rates[10] == 0.0
    assert rates == sorted(rates, reverse=True) and len(set(rates)) == 11


def test_an_unknown_device_kind_is_named() -> None:
    with pytest.raises(LookupError, match="abacus"):
        load_device("abacus")


def test_a_corrupted_clock_cannot_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter stands between the clock and the journal."""
    from cluster.worker.measure.records import ImpossibleData

    monkeypatch.setattr("cluster.devices.clock.StepTiming", lambda *values: replace(StepTiming(*values), total_s=math.nan))
    with pytest.raises(ImpossibleData, match="total_s"):
        run(tmp_path, trial(evaluate=False))


def test_the_all_reduce_is_not_measured_apart_where_steps_differ_in_kind() -> None:
    """DDP fails in a step that uses other parameters than one under no_sync() did."""
    from torch.nn.parallel import DistributedDataParallel

    notes: list[str] = []
    replicas = DistributedDataParallel.__new__(DistributedDataParallel)
    context = SimpleNamespace(
        parameters=synthetic.Parameters(devices=2, communication_steps=8),
        train_step=SimpleNamespace(model=replicas),
        workload=SimpleNamespace(steps_alike=False),
        recorder=SimpleNamespace(note=notes.append),
    )
    window: dict[str, Any] = {}
    measure_communication(context, None, window)  # type: ignore[arg-type]
    assert not window and "steps differ in kind" in notes[0]
    assert Flava.steps_alike is False
