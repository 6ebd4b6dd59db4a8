"""Every workload's linear layers in 8 bits: they compute, and the FLOPs that it says they have are those that a step makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from experiments import workloads
from experiments.components.layers.convert import convert
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.workload import Context, flops_by_precision, trains
from tasks.sweep import dataset

BATCH = 2
PAIRS = {"drawn_rows": 32, "evaluation_samples": 4}
TEXT = {"drawn_rows": 64}
SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {**TEXT, "sequence_length": 32},
    "bert_inference": {**TEXT, "sequence_length": 32},
    "bridgetower": {**PAIRS, "text_length": 16},
    "bridgetower_inference": {**PAIRS, "text_length": 16},
    "causal_lm": {**TEXT, "sequence_length": 32},
    "causal_lm_inference": {**TEXT, "sequence_length": 32},
    "clip": PAIRS,
    "flava": {**PAIRS, "kinds": "balanced", "long_text_length": 32},
    "linear_layer": {},
    "stable_diffusion": {"denoising_steps": 2},
    "synthetic": {},
    "t5": {**TEXT, "source_length": 48, "target_length": 16},
    "t5_inference": {**TEXT, "source_length": 48, "target_length": 16},
    "vit": {},
}
RANDOM = {"weights": "random", "size": "tiny", "dataset": "drawn", "drawn_rows": 16, "text_length": 16}
# They do not say how many of their FLOPs are in linear layers: the canary's file never changes, and Winoground's models are the user's
WITHOUT_A_COUNT: list[tuple[str, dict[str, Any]]] = [
    ("canary", {}),
    ("winoground", {**RANDOM, "family": "clip"}),
    ("winoground", {**RANDOM, "family": "bridgetower"}),
]


def made(name: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """(workload, its model, the blocks' linear layers in simulated fp8), on the CPU."""
    module = workloads.load(name)
    parameters = module.Parameters(precision="fp8_simulated", batch_size=BATCH, **settings)
    values = parameters.model_dump(mode="json")
    dataset.build(values)
    one = module.build(Context(parameters, dataset.resolve(values), "cpu", 0, 1, BATCH))
    torch.manual_seed(0)
    model = one.model()
    convert(model, one.layers(model), parameters, "cpu")
    return one, model


def counted(model: torch.nn.Module, calls: Iterator[Any]) -> list[float]:
    """Of each call: 2 x rows x inputs x outputs over all layers in 8 bits, and twice that again where a gradient reaches them."""
    found: list[float] = []

    def listen(layer: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        assert isinstance(layer, LowPrecisionLinear)
        product = 2.0 * output.numel() * layer.in_features
        found[-1] += product

        def also_backward(gradient: torch.Tensor) -> None:
            found[-1] += 2 * product

        if output.requires_grad:
            output.register_hook(also_backward)

    for layer in model.modules():
        if isinstance(layer, LowPrecisionLinear):
            layer.register_forward_hook(listen)
    while True:
        found.append(0.0)
        try:
            next(calls)
        except StopIteration:
            return found[:-1]


def steps(one: Any, model: Any, number: int) -> Iterator[None]:
    for batch, _ in zip(one.batches(), range(number), strict=False):
        with torch.set_grad_enabled(trains(one)), torch.autocast("cpu", torch.bfloat16):
            loss = one.loss(model, one.prepare(batch))
        if trains(one):
            loss.backward()
        assert bool(loss.isfinite())
        yield


def test_every_workload_has_a_case() -> None:
    ours = {name for name in workloads.names() if not workloads.is_extra(name)}
    assert ours == {*SETTINGS, *(name for name, _ in WITHOUT_A_COUNT)}


@pytest.mark.parametrize("name", SETTINGS)
def test_flops_of_linear_layers_are_those_that_a_step_makes(name: str) -> None:
    one, model = made(name, SETTINGS[name])
    kinds = 3 if name == "flava" else 1
    found = sum(counted(model, steps(one, model, kinds))) / kinds / BATCH
    assert one.linear_flops_per_sample() == pytest.approx(found, rel=TOLERANCE.get(name, 1e-6))
    whole = one.flops_per_sample()
    shares = flops_by_precision(one, "fp8", whole)
    assert shares is not None and sum(shares.values()) == pytest.approx(whole), "the same number in every precision"
    assert flops_by_precision(one, "bf16", whole) == {"bf16": whole}


# t5_inference counts one pass over document and summary; written token by token the summary's first token is one more
TOLERANCE: dict[str, float] = {"t5_inference": 0.1}


@pytest.mark.parametrize(("name", "settings"), WITHOUT_A_COUNT)
def test_without_a_count_linear_layers_compute_in_8_bits_and_there_is_no_mfu(name: str, settings: dict[str, Any]) -> None:
    one, model = made(name, settings)
    found = sum(counted(model, steps(one, model, 1))) / BATCH
    whole = one.flops_per_sample()
    assert found > 0 and whole in (None, found), "all of the canary's FLOPs are in its linear layers"
    assert flops_by_precision(one, "fp8", whole) is None, "no peak, rather than a wrong one"
