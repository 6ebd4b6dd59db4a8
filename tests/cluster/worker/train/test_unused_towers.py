"""A FLAVA step of one kind leaves the towers of the others alone, also where it is replayed; and each of its few shapes is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.worker.train import step_graph
from cluster.worker.train.block_weights import Masters
from cluster.worker.train.train_step import TrainStep
from experiments.components.workload import Context
from experiments.datasets import scenes
from experiments.trial import DataSource
from experiments.workloads import flava
from experiments.workloads.flava.batches import KINDS
from tests.cluster.worker.train.test_step_graph import Gpu, Rerun

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 12
TOWERS = {"image_model", "text_model", "multimodal_model"}
UNUSED = {"image": ("text_model", "multimodal_model"), "text": ("image_model", "multimodal_model"), "pair": ()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=16, seed=0, max_size=96)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def trained(data: DataSource, device: Cpu | None = None, recorder: Rerun | None = None, **values: Any) -> tuple[TrainStep, list[float]]:
    """A tiny model after STEPS steps, and its losses. Asserts of each step that it changes the towers of its kind and no others."""
    settings: dict[str, Any] = {"batch_size": 4, "text_length": 16, "long_text_length": 24, "kinds": "balanced", "seed": 5}
    settings |= {"attention": "sdpa", "passes": "together", "precision": "bf16", "learning_rate_warmup": 0, "learning_rate": 1e-4}
    parameters = flava.Parameters(**settings, steps=STEPS, warmup_steps=1, **values)
    one = flava.build(Context(parameters, data, "cpu", 0, 1, 4))
    torch.manual_seed(0)
    step = TrainStep(one, one.model(), parameters, device or Cpu())
    if recorder:
        recorder.trained[:] = [parameter for parameter in step.plain.parameters() if parameter.requires_grad]
    batches, losses, kinds = iter(one.batches()), [], []
    names = [name for name, parameter in step.plain.named_parameters() if parameter.requires_grad]  # in the order of `trained`
    for number in range(1, STEPS + 1):
        batch = next(batches)
        kinds.append(one.step_kind(batch))
        before = [parameter.detach().clone() for parameter in step.trained]
        losses.append(float(step.forward_backward(step.place(batch))))
        step.update(number)
        changed = {name for name, parameter, old in zip(names, step.trained, before, strict=True) if not torch.equal(parameter, old)}
        towers = {name.split(".")[1] for name in changed if name.startswith("flava.")}
        assert not towers & set(UNUSED[kinds[-1]]), f"step {number}, of {kinds[-1]}"
        assert towers >= TOWERS - set(UNUSED[kinds[-1]])
        assert all(parameter.grad is None for parameter in (*step.plain.parameters(), *step.trained)), "not zeroed but let go"
    assert set(kinds[:3]) == set(KINDS)
    return step, losses


@pytest.mark.parametrize("block_weights", ["linear_bf16", "bf16"])
@pytest.mark.parametrize("optimizer", ["fused", "foreach"])
def test_weights_kept_in_bf16_learn_what_those_in_fp32_do(optimizer: str, block_weights: str, data: DataSource) -> None:
    _, expected = trained(data, optimizer=optimizer)
    step, losses = trained(data, optimizer=optimizer, block_weights=block_weights)
    exact = block_weights == "linear_bf16"
    assert losses == pytest.approx(expected, rel=1e-6 if exact else 2e-3) and len({round(loss, 6) for loss in losses}) == STEPS
    kept = [parameter for layer in step.workload.layers(step.plain) for parameter in layer.parameters()]
    assert exact or {parameter.dtype for parameter in kept} == {torch.bfloat16}
    masters = {id(parameter): master for parameter, master in zip(filter(requires, step.plain.parameters()), step.trained, strict=True)}
    assert all(torch.equal(parameter, masters[id(parameter)].to(parameter.dtype)) for parameter in kept), "rounded, of all towers"


def requires(parameter: torch.nn.Parameter) -> bool:
    return parameter.requires_grad


def test_a_master_without_a_gradient_is_not_rounded_again() -> None:
    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    masters = Masters([used, unused])
    for master in masters.trained([used, unused]):
        master.data.fill_(3.0)
    used.grad = torch.ones_like(used)
    masters.take_gradients()
    masters.give_weights()
    assert used.tolist() == [3, 3] and unused.tolist() == [1, 1]
    masters.take_gradients()  # of a step that used neither
    used.data.fill_(7.0)
    masters.give_weights()
    assert used.tolist() == [7, 7]


@pytest.mark.parametrize("block_weights", ["fp32", "bf16"])
def test_three_kinds_are_three_graphs_each_with_the_gradients_of_its_towers(
    block_weights: str, data: DataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpu, "autocast", lambda self, precision: torch.autocast("cpu", torch.bfloat16))
    losses, weights = [], []
    for recorded in (False, True):
        recorder = Rerun([])
        monkeypatch.setattr(step_graph, "CudaRecorder", lambda recorder=recorder: recorder)
        step, found = trained(data, Gpu(), recorder, cuda_graph=recorded, block_weights=block_weights)
        assert (step.launched, recorder.recorded, recorder.replayed) == ((6, 3, 6) if recorded else (0, 0, 0))
        losses.append(found)
        weights.append([parameter.detach().clone() for parameter in step.trained])
    assert losses[1] == losses[0]
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


@pytest.mark.parametrize(("block_weights", "most"), [("fp32", 5), ("bf16", 9)])
def test_each_shape_of_a_tower_is_compiled_by_itself_and_in_the_first_steps(
    block_weights: str, most: int, data: DataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five shapes: images and texts alone and in pairs, and both together. In bf16 a tower's first layer gets fp32; one has no other."""
    graphs: list[list[Any]] = []

    def run(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append([given for given in inputs if not isinstance(given, torch.Tensor)])
        return graph

    monkeypatch.setattr(Cpu, "compile_backend", staticmethod(run))
    torch.compiler.reset()
    _, losses = trained(data, compile="layer", block_weights=block_weights)
    torch.compiler.reset()
    assert len(graphs) == most and not any(graphs), "no shape is a variable"
    assert losses == pytest.approx(trained(data, block_weights=block_weights)[1], rel=1e-3)
