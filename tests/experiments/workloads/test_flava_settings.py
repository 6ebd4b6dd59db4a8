"""FLAVA by fused attention, and with both passes of a step in one: the losses and gradients of transformers' own, the FLOPs, the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cluster.pools.pool import load_pools
from experiments.components.flop_count import counting
from experiments.components.layers.flava_attention import FusedSelfAttention, padding_mask
from experiments.components.workload import Context
from experiments.datasets import scenes
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.trial import DataSource
from experiments.workloads import flava
from experiments.workloads.flava import model as flava_model
from experiments.workloads.flava.workload import Flava

SETTINGS: list[dict[str, Any]] = [{"attention": "sdpa"}, {"passes": "together"}, {"attention": "sdpa", "passes": "together"}]
NAMES = ["sdpa", "together", "both"]
Step = tuple[str, float, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder: Path = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=64, seed=0, max_size=128)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def made(data: DataSource, **values: Any) -> tuple[Flava, nn.Module]:
    """A workload and its model, whose matrices are five times as large as drawn: small ones hardly attend."""
    short = {"text_length": 16, "long_text_length": 24, "evaluation_batch_size": 4, "evaluation_samples": 4, "kinds": "balanced", "seed": 7}
    one = flava.build(Context(flava.Parameters(batch_size=3, **short, **values), data, "cpu", 0, 1, 3))
    torch.manual_seed(0)
    model = one.model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "image_codebook" not in name:
                parameter.mul_(5)
    return one, model


def steps(one: Flava, model: nn.Module, count: int = 6, *, autocast: bool = False) -> list[Step]:
    """(kind, loss, gradients that are not 0) of each step."""
    batches, found = one.batches(), []
    for _ in range(count):
        batch = one.prepare(next(batches))
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = one.loss(model, batch)
        loss.backward()
        # softmax takes no notice of what is added to all scores of a query, so a key's bias has a gradient of rounding alone
        kept = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None and not name.endswith("key.bias")}
        found.append((one.step_kind(batch), float(loss.detach()), {name: grad for name, grad in kept.items() if grad.any()}))
    return found


@pytest.fixture(scope="module")
def stock(data: DataSource) -> tuple[list[Step], dict[str, float]]:
    one, model = made(data)
    return steps(one, model), one.evaluate(model, one.prepare)


@pytest.mark.parametrize("values", SETTINGS, ids=NAMES)
def test_losses_and_gradients_are_those_of_the_stock_model(
    values: dict[str, Any], data: DataSource, stock: tuple[list[Step], dict[str, float]]
) -> None:
    one, model = made(data, **values)
    found = steps(one, model)
    assert {kind for kind, _, _ in found} == {"image", "pair", "text"}
    for (kind, loss, gradients), (stock_kind, stock_loss, stock_gradients) in zip(found, stock[0], strict=True):
        assert kind == stock_kind and loss == pytest.approx(stock_loss, rel=2e-6)
        assert gradients.keys() == stock_gradients.keys()
        for name, gradient in gradients.items():
            assert float((gradient - stock_gradients[name]).norm() / stock_gradients[name].norm()) < 1e-4, name
    assert one.evaluate(model, one.prepare) == pytest.approx(stock[1], rel=1e-5)


@pytest.mark.parametrize("values", SETTINGS, ids=NAMES)
def test_weights_have_the_names_and_values_of_the_stock_model(values: dict[str, Any], data: DataSource) -> None:
    (_, ours), (_, theirs) = made(data, **values), made(data)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())


def test_compiled_layers_under_autocast_have_the_losses_of_eager_ones(data: DataSource) -> None:
    """A graph for each of few shapes: dynamo gives up at the eighth of the same code, and every graph takes seconds to compile."""
    losses, graphs = [], set()

    def run(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.add(id(graph))
        return graph

    for compiled in (False, True):
        torch.compiler.reset()
        one, model = made(data, attention="sdpa", passes="together")
        for layer in one.layers(model) if compiled else []:
            layer.compile(backend=run, fullgraph=True)
        losses.append([loss for _, loss, _ in steps(one, model, autocast=True)])
    torch.compiler.reset()
    assert losses[1] == pytest.approx(losses[0], rel=1e-5) and 2 <= len(graphs) <= 5


def test_padding_is_not_seen_and_its_mask_is_made_without_a_look_at_it() -> None:
    from transformers.models.flava.configuration_flava import FlavaTextConfig
    from transformers.models.flava.modeling_flava import FlavaSelfAttention

    torch.manual_seed(0)
    stock = FlavaSelfAttention(FlavaTextConfig(hidden_size=32, num_attention_heads=4)).eval()
    fused = FusedSelfAttention(stock).eval()
    real = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    states = 5 * torch.randn(2, 5, 32)
    mask = padding_mask(real.to("meta"))
    assert mask is not None and mask.shape == (2, 1, 1, 5) and mask.dtype is torch.bool, "on a device without values"
    added = torch.zeros(2, 1, 1, 5).masked_fill(real[:, None, None] == 0, torch.finfo(torch.float32).min)
    (found,), (wanted,) = fused(states, padding_mask(real)), stock(states, added)
    torch.testing.assert_close(found, wanted)
    other = states.clone()
    other[0, 3:] += 1.0
    torch.testing.assert_close(fused(other, padding_mask(real))[0][0, :3], found[0, :3])
    assert float((fused(other)[0][0, :3] - found[0, :3]).abs().max()) > 0.01
    assert padding_mask(None) is None
    with pytest.raises(NotImplementedError, match="without weights"):
        fused(states, output_attentions=True)


@pytest.mark.parametrize(("passes", "calls"), [("apart", 3), ("together", 1)])
def test_a_gradient_is_handed_on_as_soon_as_its_layer_was_differentiated(passes: str, calls: int, data: DataSource) -> None:
    """The gradient of a weight that is used twice waits for the second use: of two layers, for masked 2 and 1 and then plain 2."""
    one, model = made(data, passes=passes)
    layers = list(model.flava.image_model.encoder.layer)  # type: ignore[union-attr]
    assert len(layers) == 2
    differentiated: list[int] = []
    seen: list[int] = []
    layers[1].output.dense.weight.register_post_accumulate_grad_hook(lambda _: seen.append(len(differentiated)))
    for at, layer in enumerate(layers):
        layer.register_forward_hook(lambda _, __, output, at=at: output[0].register_hook(lambda _: differentiated.append(at)) and None)
    pair = next(batch for batch in one.batches() if batch["kind"] == "pair")
    one.loss(model, one.prepare(pair)).backward()
    assert seen == [calls]


@pytest.mark.parametrize("kind", ["image", "pair", "text"])
@pytest.mark.parametrize("passes", ["apart", "together"])
def test_the_flops_are_those_that_are_computed(passes: str, kind: str, data: DataSource) -> None:
    """Forward FLOPs of each kind, attention fused: those told, which count what is trained three times and the heads' masked positions."""
    one, model = made(data, attention="sdpa", passes=passes)
    told = flava_model.flops("tiny", 16, 24, together=passes == "together")[kind]
    once = {name: sum(parts) for name, parts in flava_model._passes("tiny", 16, 24).items()}
    untrained = 0.0 if kind == "text" else once["codebook"] + (once["image"] if (passes, kind) == ("apart", "image") else 0.0)
    batch = next(one.prepare(batch) for batch in one.batches() if batch["kind"] == kind)
    with torch.no_grad(), counting() as counter:
        one.loss(model, batch)
    computed = counter.get_total_flops() / 3
    # a share of 0.15 of 24 tokens are 4, not 3.6; and of a pair's texts and matches it is the mean that is told
    assert computed == pytest.approx(untrained + (told - untrained) / 3, rel={"image": 0.002, "pair": 0.04, "text": 0.035}[kind])


@pytest.mark.parametrize("size", ["tiny", "2.7b"])
def test_together_leaves_out_what_no_loss_takes(size: str) -> None:
    apart, told = (flava_model.flops(size, 16, 24, together=together) for together in (False, True))
    linear_apart, linear = (flava_model.linear_flops(size, 16, 24, together=together) for together in (False, True))
    settings = flava_model.config(size)
    image = (settings.image_config.image_size // settings.image_config.patch_size) ** 2 + 1
    projections = {"image": image, "pair": image + 16, "text": 24}
    unmasked = {"image": sum(flava_model._passes(size, 16, 24)["image"])}
    for kind, tokens in projections.items():
        expected = unmasked.get(kind, 0.0) + 3 * 2 * settings.hidden_size**2 * tokens
        assert apart[kind] - told[kind] == pytest.approx(expected, rel=1e-9), kind
    assert {kind: linear[kind] / linear_apart[kind] for kind in linear} == {"image": 0.75, "pair": 1.0, "text": 1.0}


def test_a_workload_tells_the_mean_of_its_kinds(data: DataSource) -> None:
    for together in (False, True):
        one, _ = made(data, passes="together" if together else "apart")
        told, linear = (of("tiny", 16, 24, together=together) for of in (flava_model.flops, flava_model.linear_flops))
        assert one.flops_per_sample() == pytest.approx(sum(told.values()) / 3) and one.linear_flops_per_sample() == sum(linear.values()) / 3


def test_the_documents_cells_compute_as_transformers_does() -> None:
    assert {(cell.parameters["attention"], cell.parameters["passes"]) for cell in expand(load_suite("flava", pools=load_pools()))} == {
        ("eager", "apart")
    }


def test_the_profiles_of_one_gpu_go_from_fused_attention_alone_to_the_fastest_at_a_batch_and_at_twice_that() -> None:
    suites = [load_suite("flava", profile=one, pools=load_pools()) for one in ("settings", "large_batch")]
    cells = [cell.parameters for suite in suites for cell in expand(suite)]
    assert [tuple(cell[name] for name in ("batch_size", "attention", "compile", "passes", "block_weights")) for cell in cells] == [
        (24, "sdpa", "none", "apart", "fp32"),
        (24, "sdpa", "layer", "together", "bf16"),
        (48, "sdpa", "none", "apart", "fp32"),
        (48, "sdpa", "layer", "together", "bf16"),
    ]
    assert {(cell["model"], cell["kinds"], cell["warmup_steps"], cell["steps"] % 3) for cell in cells} == {("2.7b", "balanced", 6, 0)}
    assert {(cell["profile_steps"], cell["profile_repeats"]) for cell in cells} == {(4, 1)}, "a round, after a step that does not count"


@pytest.mark.parametrize("values", [{}, {"attention": "sdpa"}, {"passes": "together"}])
def test_a_step_with_waits_is_not_recorded(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cuda_graph: .* have the host wait for the device; set passes to together and attention to sdpa"):
        flava.Parameters(cuda_graph=True, **values)
    assert flava.Parameters(cuda_graph=True, attention="sdpa", passes="together").cuda_graph
