"""Blocks' weights in bf16 with fp32 masters: the same numbers as autocast's, or bf16 throughout; and what it goes with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cluster.devices.cpu import Cpu
from cluster.worker.train.block_weights import Masters
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context, Unsupported
from experiments.datasets import scenes
from experiments.trial import DataSource
from experiments.workloads import synthetic, vit

STEPS = 3


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=32, validation_rows=16, seed=0, max_size=96)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def trained(data: DataSource | None, name: str, **values: Any) -> tuple[TrainStep, list[float]]:
    """A tiny model after STEPS steps in bf16, and its losses."""
    module = workloads.load(name)
    settings = {"batch_size": 4, "precision": "bf16", "steps": STEPS, "warmup_steps": 1, "learning_rate": 1e-3, "clip_grad_norm": 1.0}
    parameters = module.Parameters(**{**settings, **values})
    device = Cpu()
    one = module.build(Context(parameters, data, "cpu", 0, 1, 4))
    torch.manual_seed(0)
    step = TrainStep(one, one.model(), parameters, device)
    batches, losses = iter(one.batches()), []
    for number in range(1, STEPS + 1):
        losses.append(float(step.forward_backward(step.place(next(batches)))))
        step.update(number)
    return step, losses


BRIDGETOWER = {"text_length": 16, "attention": "sdpa"}
VIT = {"model": "tiny", "attention": "sdpa"}
CASES: list[tuple[str, dict[str, Any]]] = [("bridgetower", BRIDGETOWER), ("vit", VIT)]


@pytest.mark.parametrize(("name", "values"), CASES, ids=[name for name, _ in CASES])
def test_linear_layers_in_bf16_learn_to_the_last_bit_what_autocast_learns(name: str, values: dict[str, Any], data: DataSource) -> None:
    plain, expected = trained(data, name, **values)
    kept, losses = trained(data, name, block_weights="linear_bf16", **values)
    assert losses == expected and losses[0] != losses[-1]
    pairs = list(zip(plain.trained, kept.trained, strict=True))
    assert all(one.dtype is torch.float32 and torch.equal(one, other) for one, other in pairs), "what the optimiser has"
    types = {name: one.dtype for name, one in kept.plain.named_parameters()}
    blocks = sum(one.dtype is torch.bfloat16 for layer in kept.workload.layers(kept.plain) for one in layer.parameters())
    assert blocks == sum(kind is torch.bfloat16 for kind in types.values()) > 0, "none outside the blocks"
    assert all(one.grad is None for one in (*kept.plain.parameters(), *kept.trained))


def test_blocks_in_bf16_compute_what_autocast_does_up_to_its_rounding(data: DataSource) -> None:
    _, expected = trained(data, "bridgetower", **BRIDGETOWER, learning_rate=1e-4)
    kept, losses = trained(data, "bridgetower", **BRIDGETOWER, learning_rate=1e-4, block_weights="bf16")
    assert losses != expected and losses[0] == pytest.approx(expected[0], abs=0.01) and losses == pytest.approx(expected, abs=0.05)
    assert {one.dtype for layer in kept.workload.layers(kept.plain) for one in layer.parameters()} == {torch.bfloat16}
    assert {one.dtype for one in kept.trained} == {torch.float32}


@pytest.mark.parametrize("how", ["linear_bf16", "bf16"])
def test_compiled_layers_take_them(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "compile_backend", "aot_eager")
    torch.compiler.reset()
    _, expected = trained(None, "vit", **VIT, block_weights=how)
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    _, losses = trained(None, "vit", **VIT, block_weights=how, compile="layer")
    assert losses == pytest.approx(expected, abs=0.005)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    torch.compiler.reset()


def test_an_update_too_small_for_bf16_is_kept_by_its_master() -> None:
    weight = nn.Parameter(torch.ones(4))
    masters = Masters([weight])
    (master,) = masters.trained([weight])
    optimizer = torch.optim.SGD([master], lr=2.0**-12)
    for _ in range(64):
        weight.grad = torch.full_like(weight, -1)
        masters.take_gradients()
        assert weight.grad is None and master.grad is not None and master.grad.dtype is torch.float32
        optimizer.step()
        masters.give_weights()
    assert master.tolist() == [1 + 64 * 2.0**-12] * 4 and weight.tolist() == [1 + 2.0**-6] * 4, "each step is a 16th of bf16's"


def test_a_frozen_parameter_is_cast_and_has_no_master() -> None:
    frozen, other = nn.Parameter(torch.ones(4), requires_grad=False), nn.Parameter(torch.ones(4))
    masters = Masters([frozen, other])
    assert frozen.dtype is torch.bfloat16
    masters.take_gradients()  # nothing has a gradient
    assert masters.trained([other])[0].grad is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"devices": 2}, "block_weights bf16: on one device; on several fsdp_compute bf16"),
        ({"rms_tensors": "*"}, "block_weights bf16: rms_tensors would name bf16 parameters"),
    ],
)
def test_what_it_does_not_go_with_is_unsupported(values: dict[str, Any], why: str) -> None:
    parameters = synthetic.Parameters(precision="bf16", block_weights="bf16", **values)
    with pytest.raises(Unsupported, match=why):
        choose_engine(parameters, Cpu(), parameters.devices)


def test_a_workload_without_blocks_and_one_that_trains_nothing_are_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = vit.Parameters(model="tiny", precision="bf16", block_weights="bf16")
    one: Any = vit.build(Context(parameters, None, "cpu", 0, 1, 4))
    monkeypatch.setattr(one, "layers", lambda model: [])
    with pytest.raises(Unsupported, match="block_weights bf16: this workload names no layers"):
        TrainStep(one, one.model(), parameters, Cpu())
    monkeypatch.setattr(type(one), "trains", False, raising=False)
    with pytest.raises(Unsupported, match="block_weights: this workload trains nothing"):
        TrainStep(one, one.model(), parameters, Cpu())


def test_bf16_states_update_from_gradients_and_to_weights_in_bf16_as_they_do_over_copies(
    data: DataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit: what is drawn for the rounding of the averages is drawn in the same order."""
    settings: dict[str, Any] = {**BRIDGETOWER, "optimizer": "states_bf16", "block_weights": "bf16", "clip_grad_norm": None}
    direct, losses = trained(data, "bridgetower", **settings)
    with monkeypatch.context() as patched:
        patched.setattr(Masters, "hand_over", lambda *_: None)
        copied, expected = trained(data, "bridgetower", **settings)
    assert losses == expected and losses[0] != losses[-1]
    for one, other in zip((*direct.trained, *direct.plain.parameters()), (*copied.trained, *copied.plain.parameters()), strict=True):
        assert one.dtype is other.dtype and torch.equal(one, other) and one.grad is None
    assert {one.dtype for one in direct.trained} == {torch.float32}, "the masters"
    states = [state for state in direct.optimizer.state.values() if state] if direct.optimizer else []
    assert len(states) == len(direct.trained) and {state["exp_avg"].dtype for state in states} == {torch.bfloat16}
    held = {id(one): one for one in direct.plain.parameters()}.values()
    masters = {id(one) for one in direct.trained} - {id(one) for one in held}
    assert len(masters) == sum(one.dtype is torch.bfloat16 for one in held) > 0


def test_clipped_gradients_are_copied_since_their_norm_is_of_all_of_them(data: DataSource) -> None:
    settings: dict[str, Any] = {**BRIDGETOWER, "optimizer": "states_bf16", "block_weights": "bf16"}
    free, losses = trained(data, "bridgetower", **settings, clip_grad_norm=1e5)
    _, expected = trained(data, "bridgetower", **settings, clip_grad_norm=None)
    assert losses == expected and free._masters is not None and not free._masters._handed_over
