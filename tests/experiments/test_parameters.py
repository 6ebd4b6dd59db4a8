"""What holds of the parameters of every workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from experiments import workloads
from experiments.components.inference import InferenceParameters
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


def test_kernels_are_chosen_of_what_is_compiled() -> None:
    with pytest.raises(ValidationError, match="multi_kernel: nothing is compiled with compile none; set compile to layer or model"):
        TrainingParameters(multi_kernel=True)
    assert TrainingParameters(multi_kernel=True, compile="layer").multi_kernel


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


@pytest.mark.parametrize("optimizer", ["states_8bit", "states_bf16"])
def test_a_reference_keeps_its_optimisers_states_in_full(optimizer: str) -> None:
    assert as_reference({"precision": "bf16", "optimizer": optimizer}) == {"precision": "fp32", "optimizer": "foreach"}
    assert as_reference({"precision": "bf16", "optimizer": "fused"}) == {"precision": "fp32", "optimizer": "fused"}


@pytest.mark.parametrize(("optimizer", "does"), [("states_8bit", True), ("states_bf16", True), ("fused", False)])
def test_an_optimiser_with_states_of_few_bits_compiles_its_update(optimizer: Any, does: bool) -> None:
    assert compiles(TrainingParameters(optimizer=optimizer)) is does


@pytest.mark.parametrize(
    ("parallel", "values", "said"),
    [
        ("ddp", {"fsdp_units": "root"}, "fsdp_units has no effect with parallel ddp; leave it at layers, or change parallel"),
        ("ddp", {"fsdp_reshard": False}, "fsdp_reshard has no effect with parallel ddp; leave it at true"),
        ("ddp", {"fsdp_reduce": "bf16"}, "fsdp_reduce has no effect with parallel ddp; leave it at fp32"),
        ("ddp", {"fsdp_compute": "bf16", "precision": "bf16"}, "fsdp_compute has no effect with parallel ddp"),
        ("ddp", {"limit_all_gathers": False}, "limit_all_gathers has no effect with parallel ddp; leave it at true"),
        ("fsdp2", {"limit_all_gathers": False}, "limit_all_gathers has no effect with parallel fsdp2"),
        ("fsdp2", {"ddp_bucket_view": False}, "ddp_bucket_view has no effect with parallel fsdp2; leave it at true"),
        ("fsdp1", {"ddp_static_graph": True}, "ddp_static_graph has no effect with parallel fsdp1; leave it at false"),
    ],
)
def test_what_another_strategy_takes_is_refused(parallel: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainingParameters.model_validate({"parallel": parallel, **values})


def test_each_strategy_takes_its_own() -> None:
    shards = {"fsdp_units": "root", "fsdp_reshard": False, "fsdp_reduce": "bf16", "fsdp_compute": "bf16", "precision": "bf16"}
    for parallel in ("fsdp1", "fsdp2"):
        TrainingParameters.model_validate({"parallel": parallel, **shards})
    TrainingParameters.model_validate({"parallel": "fsdp1", "limit_all_gathers": False})
    TrainingParameters(ddp_bucket_view=False, ddp_static_graph=True)


@pytest.mark.parametrize(
    ("precision", "compute", "fits"),
    [("fp32", "bf16", "fp32"), ("tf32", "fp16", "fp32"), ("bf16", "fp16", "bf16 or fp32"), ("fp8", "fp16", "bf16 or fp32")],
)
def test_shards_are_gathered_in_the_precision_that_is_named(precision: str, compute: str, fits: str) -> None:
    """Else a trial that says fp32 would compute in bf16, and be held against fp32's peak."""
    with pytest.raises(ValidationError, match=f"fsdp_compute {compute}: precision {precision} computes in .*; set fsdp_compute to {fits}"):
        TrainingParameters.model_validate({"parallel": "fsdp2", "precision": precision, "fsdp_compute": compute})


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8"])
def test_without_autocast_something_else_gives_16_bits(precision: str) -> None:
    asked = {"precision": precision, "autocast": False}
    kind, what = "fp16" if precision == "fp16" else "bf16", "what lies around the linear layers" if precision == "fp8" else "all"
    with pytest.raises(
        ValidationError, match=rf"with precision {precision} {what} would be computed in fp32; set autocast to true, or .* {kind}"
    ):
        TrainingParameters.model_validate(asked)
    TrainingParameters.model_validate({**asked, "parallel": "fsdp2", "fsdp_compute": kind})
    for other in ("fp32", "tf32"):
        TrainingParameters.model_validate({"precision": other, "autocast": False})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {},
            "block_weights bf16: weights that bf16 autocast would cast, and this is precision fp32; use precision bf16",
        ),
        ({"precision": "fp16"}, "and this is precision fp16"),
        (
            {"precision": "bf16", "autocast": False, "parallel": "fsdp2", "fsdp_compute": "bf16"},
            "and this is autocast false",
        ),
        ({"precision": "bf16", "accumulation_steps": 2}, "block_weights bf16: with accumulation_steps 2 gradients would add up in bf16"),
    ],
)
def test_block_weights_are_what_autocast_would_cast(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainingParameters.model_validate({"block_weights": "bf16", **values})


def test_block_weights_go_with_bf16_autocast() -> None:
    for precision in ("bf16", "fp8"):
        TrainingParameters.model_validate({"precision": precision, "block_weights": "linear_bf16"})


def test_in_inference_weights_that_are_cast_need_no_autocast() -> None:
    asked = {"precision": "bf16", "autocast": False}
    InferenceParameters.model_validate({**asked, "cast_weights": True})
    with pytest.raises(ValidationError, match=r"autocast false: .* or cast_weights to true"):
        InferenceParameters.model_validate({**asked, "cast_weights": False})


def test_threads_that_load_are_one_at_least() -> None:
    with pytest.raises(
        ValidationError, match="loader threads: with dataloader_workers 0 there are none; give at least 1, or loader processes"
    ):
        TrainingParameters(loader="threads")
    assert TrainingParameters(loader="threads", dataloader_workers=1).loader == "threads"
    assert TrainingParameters().loader == "processes"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"prefetch_factor": 4}, "prefetch_factor has no effect with dataloader_workers 0, .*; leave it at 2, or give at least 1 of"),
        ({"compile_cache": "fresh"}, "compile_cache fresh has no effect where nothing is compiled; leave it at kept, or set compile to"),
        ({"allow_tf32": True}, "allow_tf32: precision fp32 would be computed in TF32; set precision to tf32, or allow_tf32 to false"),
    ],
)
def test_what_would_change_nothing_is_refused_with_what_would_be_right(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        TrainingParameters.model_validate(values)


@pytest.mark.parametrize(
    "values",
    [
        {"prefetch_factor": 4, "dataloader_workers": 1},
        {"prefetch_factor": 2},
        {"compile_cache": "fresh", "compile": "layer"},
        {"compile_cache": "fresh", "precision": "fp8", "kernels": "fused"},
        {"compile_cache": "fresh", "optimizer": "states_bf16"},
        {"allow_tf32": True, "precision": "bf16"},
    ],
)
def test_where_it_changes_something_it_is_taken(values: dict[str, Any]) -> None:
    TrainingParameters.model_validate(values)


@pytest.mark.parametrize("name", ["canary", "linear_layer", "stable_diffusion"])
@pytest.mark.parametrize(("asked", "value"), [("dataloader_workers", 2), ("loader", "threads"), ("prefetch_factor", 4)])
def test_a_workload_that_makes_its_batches_itself_takes_no_loader(name: str, asked: str, value: Any) -> None:
    schema = workloads.load(name).Parameters
    with pytest.raises(ValidationError, match=f"{asked} has no effect: this workload makes its batches itself; leave it at"):
        schema.model_validate({asked: value})
    schema.model_validate({})


@pytest.mark.parametrize(("name", "value"), [("communication_steps", 4), ("spikes_after", 10)])
def test_inference_has_no_gradients_and_no_loss_that_spikes(name: str, value: int) -> None:
    with pytest.raises(ValidationError, match=f"{name} has no effect: nothing is trained here; leave it at"):
        InferenceParameters.model_validate({name: value})


def test_inference_in_fp32_has_nothing_to_cast() -> None:
    for precision in ("fp32", "tf32"):
        with pytest.raises(ValidationError, match=f"cast_weights has no effect with precision {precision}, .*; leave it at true"):
            InferenceParameters.model_validate({"precision": precision, "cast_weights": False})
    InferenceParameters.model_validate({"precision": "bf16", "cast_weights": False})


def test_a_reference_takes_what_its_arithmetic_leaves_without_effect() -> None:
    """Else the reference of a cell that is taken would be refused."""
    low = {"precision": "fp8", "kernels": "fused", "compile": "none", "compile_cache": "fresh"}
    assert as_reference(low)["compile_cache"] == "kept"
    assert as_reference({**low, "compile": "layer"})["compile_cache"] == "fresh"
    assert as_reference({"precision": "bf16", "optimizer": "states_bf16", "compile_cache": "fresh"})["compile_cache"] == "kept"
    lora = {"precision": "bf16", "tuning": "lora", "cast_weights": True}
    assert as_reference(lora)["cast_weights"] is False and as_reference(lora, "bf16")["cast_weights"] is True
    assert "cast_weights" not in as_reference({"precision": "bf16", "tuning": "full"})


def test_a_recorded_step_holds_no_graph_and_recomputes_nothing() -> None:
    for mode in CUDA_GRAPHS:
        with pytest.raises(ValidationError, match=f"cuda_graph: compile_mode {mode} records graphs of its own"):
            TrainingParameters(cuda_graph=True, compile="model", compile_mode=mode)
    for how in (True, "selective"):
        with pytest.raises(ValidationError, match="cuda_graph: what is recomputed reads the state of random numbers"):
            TrainingParameters(cuda_graph=True, activation_checkpointing=how)  # type: ignore[arg-type]
    TrainingParameters(cuda_graph=True, compile="layer", accumulation_steps=2)
