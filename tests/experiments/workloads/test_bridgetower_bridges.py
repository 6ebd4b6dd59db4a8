"""BridgeTower's bridges as one function each: the same model, the types of the blocks, and what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.worker.train import block_weights as weights
from cluster.worker.train.train_step import TrainStep
from experiments.components.workload import Context, Unsupported
from experiments.datasets import scenes
from experiments.trial import DataSource
from experiments.workloads import bridgetower
from experiments.workloads.bridgetower.bridges import join
from experiments.workloads.bridgetower.model import attention_flops_per_sample, flops_per_sample, linear_flops_per_sample

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=32, validation_rows=32, seed=0, max_size=96)
    return folder


def workload(folder: Path, **changes: Any) -> bridgetower.BridgeTower:
    settings = {"model": "tiny", "text_length": 24, "batch_size": 8, "evaluation_samples": 16, "evaluation_batch_size": 8}
    parameters = bridgetower.Parameters(**{**settings, **changes})
    return bridgetower.build(
        Context(parameters, DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer")), "cpu", 0, 1, 8)
    )


@pytest.mark.parametrize("block_weights", ["fp32", "bf16"])
def test_bridges_as_one_function_learn_what_transformers_operations_do(drawn: Path, block_weights: str) -> None:
    """Bit by bit in the forward pass; gradients up to their rounding, of which keys' biases are nothing else."""
    found = {}
    for bridges in ("stock", "fused"):
        one = workload(drawn, attention="sdpa", bridges=bridges, precision="bf16", block_weights=block_weights)
        model: Any = one.model()
        weights.keep(one.parameters, one.layers(model), "cpu")
        with torch.autocast("cpu", torch.bfloat16):
            loss = one.loss(model, next(one.batches()))
        loss.backward()  # type: ignore[no-untyped-call]
        found[bridges] = loss.item(), {name: p.grad for name, p in model.named_parameters() if p.requires_grad and "key.bias" not in name}
    (stock, expected), (fused, gradients) = found["stock"], found["fused"]
    assert fused == stock and gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert gradient.dtype is expected[name].dtype, name
        assert (gradient - expected[name]).float().norm() < 0.03 * expected[name].float().norm(), name


def test_bridges_in_fp32_are_transformers_own(drawn: Path) -> None:
    """Also the names of the parameters, and what is evaluated."""
    found = {}
    for bridges in ("stock", "fused"):
        one = workload(drawn, bridges=bridges)
        model = one.model()
        loss = one.loss(model, next(one.batches()))
        loss.backward()  # type: ignore[no-untyped-call]
        found[bridges] = (
            {name: p.grad for name, p in model.named_parameters()},
            [*model.state_dict()],
            loss.item(),
            one.evaluate(model.eval(), lambda batch: batch),
        )
    (stock, *others), (fused, *same) = found["stock"], found["fused"]
    assert same == others and fused.keys() == stock.keys()
    for name, gradient in fused.items():
        torch.testing.assert_close(gradient, stock[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize(("block_weights", "kind"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_a_bridge_is_compiled_and_gives_the_type_of_the_blocks(drawn: Path, block_weights: str, kind: torch.dtype) -> None:
    one = workload(drawn, attention="sdpa", bridges="fused", precision="bf16", block_weights=block_weights, compile="layer")
    model: Any = one.model()
    compiled: list[torch.nn.Module] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.nn.Module, "compile", lambda self, **told: compiled.append(self) if told["dynamic"] is False else None)
        TrainStep(one, model, one.parameters, Cpu())
    bridges = one.compiled_beside(model)
    assert compiled == [*one.layers(model), *bridges]
    assert len(bridges) == 2 * 2 and not {*bridges} & {*model.modules()}, "for two cross-modal layers of each kind; none is the model's"
    given: list[torch.dtype] = []
    for bridge in bridges:
        bridge.register_forward_hook(lambda _module, _inputs, output: given.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        one.loss(model, next(one.batches()))
    assert given == [kind] * 4
    assert {p.dtype for bridge in bridges for p in bridge.parameters()} == {torch.float32}, "they are no blocks"


def test_stock_bridges_are_compiled_nowhere(drawn: Path) -> None:
    one = workload(drawn)
    assert one.compiled_beside(one.model()) == []


def test_of_the_last_image_features_a_fused_bridge_computes_the_token_that_the_loss_uses() -> None:
    stock, fused = (bridgetower.Parameters(model="tiny", bridges=bridges) for bridges in ("stock", "fused"))  # type: ignore[arg-type]
    left_out = 3 * 2 * 64 * 64 * 16  # forward and backward, a multiplication and an addition, width x width, tokens but the first
    assert flops_per_sample(stock, 24) - flops_per_sample(fused, 24) == left_out
    assert linear_flops_per_sample(stock, 24) == linear_flops_per_sample(fused, 24)
    assert attention_flops_per_sample(stock, 24) == attention_flops_per_sample(fused, 24)


def test_bridges_of_another_kind_are_refused(drawn: Path) -> None:
    model: Any = workload(drawn).model()
    model.bridgetower.config.link_tower_type = "interpolate"
    with pytest.raises(Unsupported, match="bridges fused: only links that add"):
        join(model)


def test_an_earlier_transformers_is_unsupported(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaudi's packages bring one, whose text layers return tuples and take masks of another form."""
    monkeypatch.setattr("experiments.workloads.bridgetower.bridges.takes_prepared_masks", lambda: False)
    with pytest.raises(Unsupported, match="bridges fused: written for the forward pass of transformers 5"):
        workload(drawn, bridges="fused").model()
