"""What holds of the parameters of every workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from experiments import workloads
from experiments.parameters import CUDA_GRAPHS, TrainingParameters, as_reference, compiles


def numbers(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of a field's JSON schema that are numbers."""
    return (part for part in schema.get("anyOf", [schema]) if part.get("type") in ("integer", "number"))


@pytest.mark.parametrize("name", workloads.names())
def test_every_number_has_bounds(name: str) -> None:
    fields = workloads.load(name).Parameters.model_json_schema()["properties"]
    low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
    open_ended = [field for field, schema in fields.items() for part in numbers(schema) if not (low & part.keys() and high & part.keys())]
    assert not open_ended


@pytest.mark.parametrize("name", workloads.names())
def test_no_workload_takes_a_batch_of_nothing(name: str) -> None:
    schema: type[TrainingParameters] = workloads.load(name).Parameters
    for wrong in (0, -5, 1_000_001):
        with pytest.raises(ValidationError, match="batch_size"):
            schema.model_validate({"batch_size": wrong})


def test_a_reference_attends_in_a_way_that_fp32_can() -> None:
    learns = {"packing": "block", "precision": "bf16"}
    assert as_reference({**learns, "attention": "varlen"}) == {"packing": "block", "precision": "fp32", "attention": "sdpa"}
    assert as_reference({**learns, "attention": "eager"})["attention"] == "eager"


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_a_mode_needs_something_that_is_compiled(mode: str) -> None:
    with pytest.raises(ValidationError, match=f"compile_mode {mode}: nothing is compiled with compile none; set compile to layer or model"):
        TrainingParameters(compile_mode=mode)  # type: ignore[arg-type]
    assert TrainingParameters(compile="model", compile_mode=mode).compile_mode == mode  # type: ignore[arg-type]
    assert TrainingParameters().compile_mode == "default"


def test_a_layer_that_is_recomputed_is_in_no_cuda_graph() -> None:
    checkpointed = {"compile": "layer", "activation_checkpointing": True}
    for mode in CUDA_GRAPHS:
        with pytest.raises(ValidationError, match=f"compile_mode {mode}: activation_checkpointing calls a compiled layer again"):
            TrainingParameters.model_validate({**checkpointed, "compile_mode": mode})
        TrainingParameters.model_validate({**checkpointed, "compile": "model", "compile_mode": mode})
    TrainingParameters.model_validate({**checkpointed, "compile_mode": "max-autotune-no-cudagraphs"})


def test_micro_batches_go_with_no_cuda_graph() -> None:
    for mode in CUDA_GRAPHS:
        with pytest.raises(ValidationError, match=f"compile_mode {mode}: with accumulation_steps 2 a micro-batch's graph may write over"):
            TrainingParameters(compile="model", compile_mode=mode, accumulation_steps=2)
    TrainingParameters(compile="model", compile_mode="max-autotune-no-cudagraphs", accumulation_steps=2)


def test_a_reference_keeps_its_optimisers_states_in_full() -> None:
    assert as_reference({"precision": "bf16", "optimizer": "states_8bit"}) == {"precision": "fp32", "optimizer": "foreach"}
    assert as_reference({"precision": "bf16", "optimizer": "fused"}) == {"precision": "fp32", "optimizer": "fused"}


def test_an_optimiser_with_states_in_8_bits_compiles_its_update() -> None:
    assert compiles(TrainingParameters(optimizer="states_8bit")) and not compiles(TrainingParameters(optimizer="fused"))


def test_threads_that_load_are_one_at_least() -> None:
    with pytest.raises(
        ValidationError, match="loader threads: with dataloader_workers 0 there are none; give at least 1, or loader processes"
    ):
        TrainingParameters(loader="threads")
    assert TrainingParameters(loader="threads", dataloader_workers=1).loader == "threads"
    assert TrainingParameters().loader == "processes"
