"""One step of a learner: which part does what in which order, at which rate, and what evaluation leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.worker.train import parallel
from cluster.worker.train.engine import Engine
from cluster.worker.train.train_step import TrainStep
from experiments.components.workload import Context, Unsupported
from experiments.workloads import synthetic

LOG = list[str]


class Device(Cpu):
    """Writes down in which precision it was asked to compute, and whether a batch was to be prefetched."""

    def __init__(self, log: LOG) -> None:
        super().__init__()
        self.log = log

    def autocast(self, precision: Any) -> AbstractContextManager[None]:
        self.log.append(f"autocast {precision}")
        return nullcontext()

    def place(self, batch: Any, prepare: Any, *, prefetch: bool) -> Any:
        self.log.append(f"place prefetch={prefetch}")
        return prepare(batch)


class Optimizer(torch.optim.SGD):
    """Plain SGD that writes down its steps."""

    def __init__(self, parameters: Any, log: LOG) -> None:
        super().__init__(parameters, lr=123.0)
        self.log = log

    def step(self, closure: Any = None) -> None:
        self.log.append(f"step at {self.param_groups[0]['lr']:.6g}")


class Logged(Engine):
    """Plain torch that writes down what it is asked for."""

    def __init__(self, parameters: Any, device: Device) -> None:
        super().__init__(parameters, device, 1)
        self.log = device.log

    def optimizer(self, trained: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        assert all(parameter.requires_grad for parameter in trained)
        return Optimizer(trained, self.log)

    def after_backward(self, model: torch.nn.Module) -> None:
        assert all(parameter.grad is not None for parameter in model.parameters())
        self.log.append("after_backward")

    def clip(self, model: Any, trained: list[torch.nn.Parameter]) -> None:
        self.log.append("clip")

    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        self.log.append("after_update")


class Scaler:
    """A GradScaler with a fixed scale."""

    def __init__(self, log: LOG) -> None:
        self.log = log

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * 4

    def unscale_(self, optimizer: Any) -> None:
        self.log.append("unscale")

    def step(self, optimizer: Any) -> None:
        self.log.append(f"scaler steps {type(optimizer).__name__} at {optimizer.param_groups[0]['lr']:.6g}")

    def update(self) -> None:
        self.log.append("scaler.update")


class Watch:
    """In place of RmsWatch."""

    def __init__(self, log: LOG) -> None:
        self.log = log

    def measure(self, step: int) -> None:
        self.log.append(f"measure {step}")

    def read(self, step: int) -> dict[str, float | None]:
        return {"rms.a": float(step)}


class Plain(synthetic.Synthetic):
    """Synthetic, trained or not."""

    trains = True


def learner(log: LOG, *, trains: bool = True, **changes: Any) -> TrainStep:
    parameters = synthetic.Parameters(**{"steps": 8, "warmup_steps": 2, "learning_rate": 1.0, **changes})
    workload = Plain(Context(parameters, None, "cpu", 0, 1, 8))
    workload.trains = trains
    device = Device(log)
    made = TrainStep(workload, workload.model(), parameters, device, Logged(parameters, device))
    log.clear()
    return made


def batch_of(made: TrainStep) -> Any:
    return synthetic.Vectors(made.parameters)[range(8)]  # type: ignore[arg-type]


RATE = 0.8  # of step 3 with 10 steps in all, linear


@pytest.mark.parametrize(
    ("scaled", "watched", "clip", "expected"),
    [
        (False, False, None, ["clip", f"step at {RATE}", "after_update"]),
        (False, True, None, ["clip", "measure 3", f"step at {RATE}", "after_update"]),
        (True, False, None, ["clip", f"scaler steps Optimizer at {RATE}", "scaler.update", "after_update"]),
        (True, False, 1.0, ["unscale", "clip", f"scaler steps Optimizer at {RATE}", "scaler.update", "after_update"]),
        (True, True, None, ["unscale", "clip", "measure 3", f"scaler steps Optimizer at {RATE}", "scaler.update", "after_update"]),
    ],
)
def test_an_update_in_its_order(scaled: bool, watched: bool, clip: float | None, expected: list[str]) -> None:
    log: LOG = []
    made = learner(log, clip_grad_norm=clip)
    made.scaler = Scaler(log) if scaled else None
    made.rms = Watch(log) if watched else None  # type: ignore[assignment]
    made.update(3)
    assert log == expected
    assert made.diagnostics(3) == ({"rms.a": 3.0} if watched else {})


@pytest.mark.parametrize("scaled", [False, True])
def test_a_loss_is_given_without_its_graph_and_not_scaled(scaled: bool) -> None:
    log: LOG = []
    made = learner(log, precision="bf16")
    batch = batch_of(made)
    loss = made.forward_backward(batch)
    once = [parameter.grad.clone() for parameter in made.trained if parameter.grad is not None]
    assert log == ["autocast bf16", "after_backward"] and len(once) == 6
    assert not loss.requires_grad and made.plain.training
    made.scaler = Scaler(log) if scaled else None
    for parameter in made.trained:
        parameter.grad = None
    assert float(made.forward_backward(batch)) == float(loss)
    for parameter, gradient in zip(made.trained, once, strict=True):
        assert torch.allclose(parameter.grad, gradient * (4 if scaled else 1))  # type: ignore[arg-type]


def test_without_training_a_step_is_the_forward_pass() -> None:
    log: LOG = []
    made = learner(log, trains=False, precision="bf16", rms_tensors="*")
    loss = made.forward_backward(batch_of(made))
    made.update(1)
    assert log == ["autocast bf16"] and loss.is_inference()
    assert not made.plain.training and (made.optimizer, made.scaler, made.rms) == (None, None, None)
    assert all(parameter.grad is None for parameter in made.plain.parameters())
    made.evaluate()
    assert not made.plain.training


def test_a_workload_of_ones_own_that_trains_nothing_has_no_micro_batches() -> None:
    with pytest.raises(Unsupported, match=r"accumulation_steps: this workload trains nothing, .* set it to 1"):
        learner([], trains=False, accumulation_steps=2)


def test_without_autocast_operations_keep_the_parameters_type() -> None:
    log: LOG = []
    made = learner(log, precision="bf16", autocast=False, parallel="fsdp2", fsdp_compute="bf16", devices=2)
    made.forward_backward(batch_of(made))
    assert log[0] == "autocast fp32"


@pytest.mark.parametrize("prefetch", [False, True])
def test_batches_are_placed_as_the_trial_asks(prefetch: bool) -> None:
    log: LOG = []
    made = learner(log, prefetch_to_device=prefetch)
    batch = batch_of(made)
    assert made.place(batch) is batch and made.samples(batch) == 8
    assert log == [f"place prefetch={prefetch}"]


@pytest.mark.parametrize(
    ("sharded", "checkpointing", "anew"),
    [
        (False, True, (False, False)),
        (True, False, (False, True)),
        (True, True, (True, True)),
        (False, "selective", (True, False)),
        (True, "selective", (True, True)),
    ],
)
def test_where_a_sharded_model_casts_anew(
    monkeypatch: pytest.MonkeyPatch, sharded: bool, checkpointing: bool | str, anew: tuple[bool, bool]
) -> None:
    """In training where layers are recomputed, and always in evaluation; unsharded where a recomputation must do what was done."""
    log: LOG = []
    made = learner(log)
    made.sharded = sharded
    made.parameters = made.parameters.model_copy(update={"activation_checkpointing": checkpointing})
    marked = nullcontext()
    monkeypatch.setattr(parallel, "casting_anew", lambda context: marked)
    assert (made._autocast() is marked, made._autocast(training=False) is marked) == anew


def test_evaluation_sees_the_model_as_it_was_built_and_leaves_it_as_it_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    log: LOG = []
    made = learner(log, precision="bf16", prefetch_to_device=True)
    built = made.plain.forward
    made.plain.forward = stepping = lambda *values: pytest.fail("what compilation made is for steps")
    seen: list[Any] = []
    parts = synthetic.Synthetic.evaluate

    def evaluate(workload: Any, model: Any, place: Any) -> dict[str, float]:
        seen.append((made.plain.training, torch.is_grad_enabled(), made.plain.forward == built))
        return parts(workload, model, place)

    monkeypatch.setattr(synthetic.Synthetic, "evaluate", evaluate)
    assert set(made.evaluate()) == {"loss", "chance_loss", "accuracy"}
    assert seen == [(False, False, True)]
    assert log == ["autocast bf16", *["place prefetch=False"] * synthetic.HELD_OUT_BATCHES]
    assert made.plain.training and made.plain.forward is stepping
    monkeypatch.setattr(synthetic.Synthetic, "evaluate", lambda *values: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made.evaluate()
    assert made.plain.training and made.plain.forward is stepping


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("linear", 0, {1: 1.0, 2: 0.9, 6: 0.5, 10: 0.1, 11: 0.0, 12: 0.0, 100: 0.0}),
        ("linear", 4, {1: 0.25, 4: 1.0, 5: 1.0, 6: 5 / 6, 10: 1 / 6, 11: 0.0}),
        ("cosine", 0, {1: 1.0, 6: 0.5, 11: 0.0, 50: 0.0, 3: (1 + 0.8090169943749475) / 2}),
        ("constant", 0, {1: 1.0, 10: 1.0, 11: 0.0, 100: 0.0}),  # later steps only lengthen the window: nothing is learnt in them
        ("constant", 2, {1: 0.5, 2: 1.0, 3: 1.0}),
        ("linear", 10, {5: 0.5, 10: 1.0, 11: 0.0}),  # warm-up as long as the trial
        ("linear", 20, {10: 0.5, 11: 0.0}),
    ],
)
def test_the_rate_of_a_step(schedule: str, warmup: int, expected: dict[int, float]) -> None:
    made = learner([], learning_rate_schedule=schedule, learning_rate_warmup=warmup)
    assert {step: made.learning_rate(step) for step in expected} == pytest.approx(expected)


class Replicas(torch.nn.Module):
    """In place of DDP or FSDP2: notes when ranks would not exchange gradients."""

    def __init__(self, model: torch.nn.Module, log: LOG, kind: str) -> None:
        super().__init__()
        self.model, self.log = model, log
        if kind == "fsdp2":
            self.set_requires_gradient_sync = lambda on: log.append("together" if on else "apart")
        else:
            self.no_sync = self._no_sync

    @contextmanager
    def _no_sync(self) -> Iterator[None]:
        self.log.append("apart")
        yield
        self.log.append("together")

    def forward(self, *given: Any, **named: Any) -> Any:
        self.log.append("forward")
        return self.model(*given, **named)


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_gradients_stay_apart_where_asked(kind: str) -> None:
    log: LOG = []
    made = learner(log)
    with made.gradients_apart():  # one device
        assert log == []
    made.model = Replicas(made.plain, log, kind)
    with made.gradients_apart(False):
        assert log == []
    with pytest.raises(ZeroDivisionError), made.gradients_apart():
        assert log == ["apart"]
        if kind == "fsdp2":
            raise ZeroDivisionError
        1 / 0  # noqa: B018
    assert log[:1] == ["apart"] and (kind == "ddp" or log == ["apart", "together"])


@pytest.mark.parametrize("alike", [True, False])
def test_ranks_exchange_gradients_once_a_step_unless_micro_batches_differ_in_kind(alike: bool) -> None:
    log: LOG = []
    made = learner(log, accumulation_steps=3)
    made.model = Replicas(made.plain, log, "ddp")
    made._micro_batches_alike = alike
    made.forward_backward(*[batch_of(made)] * 3)
    one = ["autocast fp32", "forward"]
    apart = ["apart", *one, "together"] if alike else one
    assert log == [*apart, *apart, *one, "after_backward"]


@pytest.mark.parametrize("scaled", [False, True])
def test_micro_batches_learn_what_one_large_batch_does(scaled: bool) -> None:
    log: LOG = []
    made = learner(log)
    made.plain.double()
    made.scaler = Scaler(log) if scaled else None  # type: ignore[assignment]
    whole = {name: value.double() if value.is_floating_point() else value for name, value in batch_of(made).items()}
    found = []
    for size in (8, 2):
        loss = made.forward_backward(*[{name: value[at : at + size] for name, value in whole.items()} for at in range(0, 8, size)])
        found.append((float(loss), [parameter.grad.clone() for parameter in made.trained if parameter.grad is not None]))
        made.optimizer.zero_grad()  # type: ignore[union-attr]
    (once, gradients), (summed, others) = found
    assert summed == pytest.approx(once, rel=1e-12) and len(gradients) == len(others) == 6
    for gradient, other in zip(gradients, others, strict=True):
        assert float((gradient - other).norm() / gradient.norm()) < 1e-12
    unequal = made.forward_backward({name: value[:2] for name, value in whole.items()})
    assert float(unequal) != pytest.approx(once, rel=1e-3), "the rest of the batch counts"
