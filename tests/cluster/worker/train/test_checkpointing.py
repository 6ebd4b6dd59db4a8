"""Selective checkpointing: every workload learns what it learns without, of less that is kept; eager and compiled, in fp32 and bf16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cluster.devices.cpu import Cpu
from cluster.worker.train import checkpointing
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context
from experiments.parameters import TrainingParameters
from experiments.workloads.causal_lm.model import Learner, make
from experiments.workloads.causal_lm.parameters import Parameters as CausalParameters
from tasks.sweep import dataset

PAIRS: dict[str, Any] = {"drawn_rows": 32, "evaluation_samples": 4}
TEXT: dict[str, Any] = {"drawn_rows": 64}
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {**TEXT, "sequence_length": 32},
    "bridgetower": {**PAIRS, "text_length": 16, "dropout": 0.1},
    "causal_lm": {**TEXT, "sequence_length": 32},
    "clip": PAIRS,
    "flava": {**PAIRS, "kinds": "balanced", "long_text_length": 32},
    "linear_layer": {},
    "synthetic": {},
    "t5": {**TEXT, "source_length": 48, "target_length": 16},
    "vit": {},
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(before)


def trained(name: str, checkpointing: bool | str, precision: str = "fp32", steps: int = 1) -> tuple[list[float], list[torch.Tensor]]:
    """(losses, gradients of the last step) of a workload's first steps."""
    module = workloads.load(name)
    parameters = module.Parameters(activation_checkpointing=checkpointing, precision=precision, batch_size=2, **SETTINGS[name])
    values = parameters.model_dump(mode="json")
    dataset.build(values)
    one = module.build(Context(parameters, dataset.resolve(values), "cpu", 0, 1, 2))
    torch.manual_seed(0)
    step = TrainStep(one, one.model(), parameters, Cpu())
    torch.manual_seed(1)  # dropout
    losses, batches = [], iter(one.batches())
    for _ in range(steps):
        step.plain.zero_grad()
        losses.append(step.forward_backward(step.place(next(batches))).item())
    return losses, [weight.grad for weight in step.trained if weight.grad is not None]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_workload_has_the_losses_and_gradients_that_it_has_without(name: str) -> None:
    """In one process on a CPU the same kernels see the same numbers, so these are equal bit for bit. Flava's steps are of three kinds."""
    steps = 3 if name == "flava" else 1
    losses, gradients = trained(name, False, steps=steps)
    found, own = trained(name, "selective", steps=steps)
    assert found == losses and len(own) == len(gradients) > 0
    for mine, other in zip(own, gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_a_layer_that_is_called_twice_in_a_step_computes_the_same_again_in_16_bits() -> None:
    """Autocast keeps the weights that a first call casts. The recomputation of the second must not look for casts that it never did."""
    losses, _ = trained("flava", False, "bf16", steps=3)
    found, _ = trained("flava", "selective", "bf16", steps=3)
    assert found == losses


class Kept(TorchDispatchMode):
    """Every storage that an operation made, weakly: which of them still live is what was kept."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self._given = {tensor.untyped_storage()._cdata for tensor in given}
        self._made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return out

    def bytes(self) -> int:
        return sum(size for key, (reference, size) in self._made.items() if key not in self._given and not reference.expired())


def kept_bytes(checkpointing: bool | str, attention: str, tokens: int) -> int:
    """Bytes that a language model's forward pass keeps until its backward pass."""
    parameters = CausalParameters.model_validate(
        {"model": "llama3-tiny", "attention": attention, "activation_checkpointing": checkpointing}
    )
    torch.manual_seed(0)
    learner = Learner(make(parameters), attention=attention, loss="chunked")
    layers: Any = learner.decoder
    choose_engine(parameters, Cpu(), 1).prepare_layers(learner, list(layers.model.layers))
    words = torch.randint(0, 4096, (2, tokens))
    with Kept([*learner.parameters(), *learner.buffers(), words]) as kept:
        loss = learner(words, words)
    held = kept.bytes()
    loss.backward()
    return held


def growth(checkpointing: bool | str, attention: str) -> tuple[int, int]:
    """By how many bytes more is kept of 128 tokens than of 64, and of 192 than of 128: without what does not depend on them."""
    first, second, third = (kept_bytes(checkpointing, attention, tokens) for tokens in (64, 128, 192))
    return second - first, third - second


def test_less_is_kept_than_without_and_more_than_if_all_is_computed_again() -> None:
    nothing, selective, everything = (growth(how, "sdpa")[0] for how in (True, "selective", False))
    assert 2 * nothing < selective < 0.65 * everything


def test_the_scores_of_attention_that_is_composed_are_not_kept() -> None:
    """What is kept grows with the number of tokens, and not with its square."""
    selective, everything = growth("selective", "eager"), growth(False, "eager")
    assert selective[1] == pytest.approx(selective[0], rel=0.01)
    assert everything[1] > 1.2 * everything[0] > 3 * selective[0]


def test_what_is_kept_are_operations_of_this_torch() -> None:
    names = {str(operation) for operation in checkpointing.kept_operations()}
    assert {"aten.mm.default", "aten.addmm.default", "aten._scaled_dot_product_flash_attention.default"} <= names
    assert not {"aten.bmm.default", "aten.baddbmm.default", "aten.native_layer_norm.default"} & names


def test_the_kept_operations_are_the_products_with_weights_and_fused_attention_of_every_device() -> None:
    """Those of a GPU too: this torch registers them, and nothing here runs them."""
    products = {"aten::mm", "aten::addmm", "aten::_scaled_mm", "aten::_scaled_mm_v2", "aten::_int_mm", "aten::convolution"}
    kinds = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention", "fused_attention_overrideable")
    attention = {f"aten::_scaled_dot_product_{kind}" for kind in kinds} | {"torch_attn::_varlen_attn"}
    assert set(checkpointing.KEPT) == products | attention
    lacking = set(checkpointing.KEPT) - {
        str(operation).removesuffix(".default").replace(".", "::", 1) for operation in checkpointing.kept_operations()
    }
    varlen = "which is registered with torch.nn.attention.varlen; torch before 2.10 has no _scaled_mm_v2"
    assert lacking <= {"torch_attn::_varlen_attn", "aten::_scaled_mm_v2"}, varlen


def test_an_operation_that_this_torch_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "KEPT", ("aten::mm", "aten::of_a_later_version", "no_such_library::mm"))
    assert [str(operation) for operation in checkpointing.kept_operations()] == ["aten.mm.default"]


def test_compiled_layers_keep_what_eager_ones_keep() -> None:
    """The wrapper is inside what is compiled: the partitioner sees which products are kept, and no graph computes one of them again."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    counts: list[int] = []  # products of each graph that was run

    def compiler(module: Any, inputs: Any) -> Any:
        products = sum(node.target is torch.ops.aten.mm.default for node in module.graph.nodes)

        def run(*values: Any) -> Any:
            counts.append(products)
            return module(*values)

        return make_boxed_func(run)

    backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler, partition_fn=min_cut_rematerialization_partition)
    found = {}
    for how in (False, "selective"):
        parameters = CausalParameters.model_validate({"model": "llama3-tiny", "activation_checkpointing": how, "compile": "layer"})
        torch.manual_seed(0)
        learner = Learner(make(parameters), attention="sdpa", loss="chunked")
        device = Cpu()
        device.compile_backend = backend  # type: ignore[assignment]
        layers: Any = learner.decoder
        choose_engine(parameters, device, 1).prepare_layers(learner, [layers.model.layers[0]])
        counts.clear()
        words = torch.randint(0, 4096, (2, 32), generator=torch.Generator().manual_seed(1))
        loss = learner(words, words)
        loss.backward()
        weight = layers.model.layers[0].self_attn.q_proj.weight
        found[how] = loss.item(), weight.grad, list(counts)
    assert found["selective"][0] == pytest.approx(found[False][0], rel=1e-6)
    torch.testing.assert_close(found["selective"][1], found[False][1], rtol=1e-4, atol=1e-8)
    products = 7  # of a layer of this family; in the backward pass two of each: of its input and of its weight
    assert found["selective"][2] == found[False][2] == [products, 2 * products]
    torch._dynamo.reset()


def test_both_values_and_the_new_one_are_parameters_and_others_are_not() -> None:
    for value in (True, False, "selective"):
        assert TrainingParameters(activation_checkpointing=value).activation_checkpointing is value or value == "selective"
    with pytest.raises(ValueError, match="activation_checkpointing"):
        TrainingParameters.model_validate({"activation_checkpointing": "some"})
