"""The shapes have the published numbers of parameters, and are read back from a configuration."""

from __future__ import annotations

import pytest
import torch

from experiments.workloads.causal_lm.model import make
from experiments.workloads.causal_lm.parameters import Parameters
from experiments.workloads.causal_lm.shapes import SHAPES, config_of, shape_of

# Of the safetensors on the Hugging Face hub, a tied matrix once
PUBLISHED = {
    "llama3-8b": 8_030_261_248,
    "llama3-3b": 3_212_749_824,
    "llama3-1b": 1_235_814_400,
    "qwen3-8b": 8_190_735_360,
    "qwen3-4b": 4_022_468_096,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-0.6b": 596_049_920,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        model = make(Parameters.model_validate({"model": name}))
    assert sum(weight.numel() for weight in model.parameters()) == PUBLISHED[name]
    blocks = sum(SHAPES[name].projections.values()) * SHAPES[name].layers
    norms = sum(weight.numel() for weight in model.parameters() if weight.dim() == 1)
    assert blocks == sum(weight.numel() for weight in model.model.layers.parameters() if weight.dim() == 2)  # type: ignore[union-attr]
    assert norms < 0.001 * PUBLISHED[name]


@pytest.mark.parametrize("name", ["llama3-8b", "qwen3-0.6b"])
def test_the_configuration_is_that_of_the_family(name: str) -> None:
    config = config_of(SHAPES[name])
    rope = config.rope_parameters
    if name == "llama3-8b":
        assert (rope["rope_theta"], rope["rope_type"], rope["factor"], config.rms_norm_eps) == (500_000.0, "llama3", 8.0, 1e-5)
        assert rope["original_max_position_embeddings"] == 8192 and config.max_position_embeddings == 131_072
    else:
        assert (rope["rope_theta"], config.rms_norm_eps, config.max_position_embeddings) == (1e6, 1e-6, 40_960)
        assert rope.get("rope_type", "default") == "default"


def test_rotary_embeddings_are_scaled_as_in_the_published_configurations() -> None:
    """Llama 3.1 by 8, Llama 3.2 by 32, Qwen 3 not."""
    llama = {"llama3-8b": 8.0, "llama3-3b": 32.0, "llama3-1b": 32.0, "llama3-tiny": 8.0}
    assert {name: shape.rope_factor for name, shape in SHAPES.items()} == {name: llama.get(name) for name in SHAPES}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_read_back(name: str) -> None:
    shape = shape_of(config_of(SHAPES[name]))
    wanted = SHAPES[name]
    assert (shape.projections, shape.layers, shape.vocabulary, shape.tied) == (
        wanted.projections,
        wanted.layers,
        wanted.vocabulary,
        wanted.tied,
    )
    assert shape.ends == wanted.ends and shape.family == wanted.family
    for inputs, outputs in [shape.ends["k_proj"]]:
        assert inputs * outputs == shape.projections["k_proj"]


def test_another_architecture_is_refused() -> None:
    from transformers import GPT2Config

    with pytest.raises(ValueError, match="a gpt2 model; wanted llama or qwen3"):
        shape_of(GPT2Config())
