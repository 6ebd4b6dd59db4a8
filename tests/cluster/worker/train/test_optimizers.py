"""StableAdamW and RMS_t against the formula in float64; what they do not go with; and RMS_t from a step to the results."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from cluster.devices.clock import RUN_AHEAD
from cluster.journal.journal import JournalWriter, read_journal
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.train import optimizers
from cluster.worker.train.rms import RmsWatch, watched_tensors
from cluster.worker.trial_session import TrialSession
from experiments.components.workload import Unsupported
from experiments.parameters import SAME_MATHEMATICS, TrainingParameters
from experiments.step_record import RMS
from experiments.summary import summarise
from tasks.analysis.results import write_steps
from tasks.tracking.log_trial import step_metrics
from tests.trial_support import cpu_trial

STEPS = 40
SETTINGS: dict[str, Any] = {"learning_rate": 1e-2, "beta2": 0.99, "weight_decay": 0.2, "adam_eps": 1e-6}


class Reference:
    """One tensor under (Stable)AdamW, in float64, term by term as in the paper."""

    def __init__(self, start: np.ndarray[Any, Any], *, stable: bool) -> None:
        self.p, self.stable = start.astype(np.float64), stable
        self.m, self.u, self.t = np.zeros_like(self.p), np.zeros_like(self.p), 0

    def step(self, g: np.ndarray[Any, Any]) -> float:
        """RMS_t of the step it does."""
        lr, beta1, beta2, decay, eps = SETTINGS["learning_rate"], 0.9, SETTINGS["beta2"], SETTINGS["weight_decay"], SETTINGS["adam_eps"]
        self.t += 1
        self.m = beta1 * self.m + (1 - beta1) * g
        self.u = beta2 * self.u + (1 - beta2) * g**2
        m, u = self.m / (1 - beta1**self.t), self.u / (1 - beta2**self.t)
        rms = math.sqrt(np.mean(g**2 / np.maximum(u, eps**2)))
        rate = lr / max(1.0, rms) if self.stable else lr
        self.p -= rate * (decay * self.p + m / (np.sqrt(u) + eps))
        return rms


def gradients() -> list[list[torch.Tensor]]:
    """Of two tensors: a quiet time, then a hundred times as much, so that RMS_t rises to several; the second one has zeros."""
    draw = torch.Generator().manual_seed(0)
    scales = [100.0 if step in (20, 21, 30) else 1.0 for step in range(STEPS)]
    second = torch.ones(5)
    second[0] = 0
    return [[scale * torch.randn(4, 3, generator=draw), 1e-3 * torch.randn(5, generator=draw) * second] for scale in scales]


@pytest.mark.parametrize("kind", ["per_parameter", "foreach"])
@pytest.mark.parametrize("rule", ["stable_adamw", "adamw"])
def test_updates_and_rms_are_the_formulas(rule: Any, kind: Any) -> None:
    draw = torch.Generator().manual_seed(1)
    tensors = [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((4, 3), (5,))]
    references = [Reference(tensor.detach().numpy(), stable=rule == "stable_adamw") for tensor in tensors]
    optimizer = optimizers.build(TrainingParameters(update_rule=rule, optimizer=kind, **SETTINGS), tensors)
    watch = RmsWatch({"first": tensors[0], "second": tensors[1]}, optimizer, page_locked=False)
    largest = 0.0
    for step, grads in enumerate(gradients(), 1):
        for tensor, gradient in zip(tensors, grads, strict=True):
            tensor.grad = gradient.clone()
        watch.measure(step)
        optimizer.step()
        expected = [reference.step(gradient.double().numpy()) for reference, gradient in zip(references, grads, strict=True)]
        assert list(watch.read(step).values()) == pytest.approx(expected, rel=1e-4), step
        largest = max(largest, *expected)
        for tensor, reference in zip(tensors, references, strict=True):
            np.testing.assert_allclose(tensor.detach().numpy(), reference.p, rtol=2e-5, atol=1e-6, err_msg=f"step {step}")
    assert largest > 3, "the clipping was at work"


def test_fused_adamw_counts_its_steps_in_tensors_and_rms_is_the_same() -> None:
    found = {}
    for kind in ("fused", "foreach"):
        tensor = torch.nn.Parameter(torch.ones(4, 3))
        optimizer = optimizers.build(TrainingParameters(optimizer=kind, **SETTINGS), [tensor])
        watch = RmsWatch({"one": tensor}, optimizer, page_locked=False)
        found[kind] = []
        for step, (gradient, _) in enumerate(gradients(), 1):
            tensor.grad = gradient.clone()
            watch.measure(step)
            optimizer.step()
            found[kind].append(watch.read(step)["rms.one"])
    assert found["fused"] == pytest.approx(found["foreach"], rel=1e-5)


def test_a_step_is_read_after_the_host_ran_ahead_and_no_later_and_unknown_is_null() -> None:
    tensor, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    watch = RmsWatch({"a": tensor, "b": other}, torch.optim.AdamW([tensor, other]), page_locked=False)
    tensor.grad = torch.ones(2)
    for step in range(1, RUN_AHEAD + 2):
        watch.measure(step)
    assert watch.read(1) == {"rms.a": 1.0, "rms.b": None}, "the other has no gradient"
    tensor.grad = torch.full((2,), math.inf)
    watch.measure(RUN_AHEAD + 2)
    assert watch.read(RUN_AHEAD + 2)["rms.a"] is None
    with pytest.raises(RuntimeError, match="step 1 was not kept"):
        watch.read(1)


def test_tensors_are_named_by_patterns_and_one_that_means_nothing_is_an_error() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight.requires_grad_(False)
    assert list(watched_tensors(model, "1.*, 0.weight")) == ["1.bias", "0.weight"], "in the order asked for"
    with pytest.raises(ValueError, match=r"rms_tensors: '1.weight' is none of this model's 3 trained tensors \(0.weight, "):
        watched_tensors(model, "0.*,1.weight")


def test_which_rule_trains_is_part_of_what_is_learnt_and_how_it_is_implemented_is_not() -> None:
    assert "update_rule" not in SAME_MATHEMATICS and {"optimizer", "rms_tensors", "spikes_after"} <= SAME_MATHEMATICS


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"update_rule": "stable_adamw", "engine": "optimum_habana"}, "hpu", "update_rule stable_adamw: only with engine native"),
        ({"update_rule": "stable_adamw", "parallel": "fsdp2", "devices": 2}, "cuda", "update_rule stable_adamw: .* parallel fsdp2"),
        ({"update_rule": "stable_adamw", "optimizer": "fused"}, "cpu", "optimizer fused is a Triton kernel, and this is cpu"),
        ({"rms_tensors": "*", "engine": "optimum_habana"}, "hpu", "rms_tensors: only with engine native"),
        ({"rms_tensors": "*", "parallel": "fsdp1", "devices": 2}, "cuda", "rms_tensors: .* parallel fsdp1"),
        ({"update_rule": "stable_adamw", "rms_tensors": "*", "parallel": "fsdp2"}, "cuda", None),
        ({"optimizer": "fused"}, "cpu", None),
        ({"optimizer": "states_8bit"}, "cpu", "optimizer states_8bit: only on cuda, and this is cpu"),
        ({"optimizer": "states_8bit"}, "hpu", "optimizer states_8bit: .* this is hpu"),
        ({"optimizer": "states_8bit", "engine": "optimum_habana"}, "cuda", "optimizer states_8bit: only with engine native"),
        ({"optimizer": "states_8bit", "update_rule": "stable_adamw"}, "cuda", "optimizer states_8bit: .* no stable_adamw"),
        ({"optimizer": "states_8bit", "parallel": "fsdp1", "devices": 2}, "cuda", "optimizer states_8bit: .* flat ones of fsdp1"),
        ({"optimizer": "states_8bit", "parallel": "fsdp1", "devices": 1}, "cuda", None),
        ({"optimizer": "states_8bit", "parallel": "fsdp2", "devices": 2}, "cuda", None),
        ({"optimizer": "states_8bit", "rms_tensors": "*"}, "cuda", "optimizer states_8bit: rms_tensors would read"),
        ({"optimizer": "states_bf16"}, "cpu", None),
        ({"optimizer": "states_bf16", "parallel": "fsdp1", "devices": 2}, "cuda", None),
        ({"optimizer": "states_bf16"}, "hpu", "optimizer states_bf16: only on cuda and cpu, and this is hpu"),
        ({"optimizer": "states_bf16", "engine": "optimum_habana"}, "cuda", "optimizer states_bf16: only with engine native"),
        ({"optimizer": "states_bf16", "update_rule": "stable_adamw"}, "cuda", "optimizer states_bf16: .* no stable_adamw"),
        ({"optimizer": "states_bf16", "rms_tensors": "*"}, "cuda", "optimizer states_bf16: rms_tensors would read"),
    ],
)
def test_what_does_not_go_together_is_said_by_name(changes: dict[str, Any], kind: str, said: str | None) -> None:
    why = optimizers.why_not(TrainingParameters(**changes), kind)
    if said is None:
        assert why is None
    else:
        assert why is not None
        with pytest.raises(Unsupported, match=said):
            raise Unsupported(why)


def test_a_rate_is_set_in_a_tensor_that_compiled_code_reads_and_else_as_a_number() -> None:
    optimizer = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.ones(2))]}, {"params": [torch.nn.Parameter(torch.ones(2))]}], lr=1.0)
    read = optimizer.param_groups[0]["lr"] = torch.tensor(1.0)
    optimizers.set_rate(optimizer, 0.25)
    assert optimizer.param_groups[0]["lr"] is read and read.item() == 0.25
    assert optimizer.param_groups[1]["lr"] == 0.25 and isinstance(optimizer.param_groups[1]["lr"], float)


def test_states_in_8_bits_need_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    with pytest.raises(Unsupported, match="optimizer states_8bit: torchao is not installed"):
        optimizers.build(TrainingParameters(optimizer="states_8bit"), [torch.nn.Parameter(torch.ones(2))])


def test_the_settings_reach_torchaos_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def take(trained: Any, **named: Any) -> str:
        seen.update(named, trained=trained)
        return "made"

    monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torchao.optim", SimpleNamespace(AdamW8bit=take))  # type: ignore[arg-type]
    trained = [torch.nn.Parameter(torch.ones(2))]
    made: Any = optimizers.build(TrainingParameters(optimizer="states_8bit", **SETTINGS), trained)
    assert made == "made" and seen == {"trained": trained, "lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.2}


def test_rms_goes_from_the_step_to_parquet_results_and_mlflow(tmp_path: Path) -> None:
    parameters = {"batch_size": 8, "steps": 6, "warmup_steps": 2, "threads": 1, "evaluate": False, "spikes_after": 2}
    parameters |= {"update_rule": "stable_adamw", "rms_tensors": "*.bias", "learning_rate": 0.01}
    one = cpu_trial("synthetic", parameters)
    (tmp_path / "trial.json").write_text(one.model_dump_json())
    threads = torch.get_num_threads()
    with Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        TrialSession(one, Ranks(), recorder, tmp_path).run()
    torch.set_num_threads(threads)
    journal = read_journal(tmp_path / "journal.jsonl")
    steps = journal.steps
    names = [name for name in steps[0] if name.startswith(RMS)]
    assert names and all(name.endswith(".bias") for name in names)
    assert steps[0][names[0]] == pytest.approx(1, abs=0.01), "the first gradient is all that the second moment knows"
    assert all(0 < step[name] < 10 for step in steps for name in names)
    table = pq.read_table(write_steps(tmp_path))
    assert table.column(names[0]).to_pylist() == [step[names[0]] for step in steps]
    summary = summarise(journal.steps, journal.window, journal.evaluations)
    assert (summary["loss_spikes"], summary["rms_spikes"]) == (0, 0)
    drawn = {metric.key for metric in step_metrics(steps)}
    assert drawn >= {"loss", *names}
