"""Parameters of every workload: how it is trained and measured, independent of its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from experiments.config.scalar_text import yaml_text
from experiments.config.strict import Strict
from experiments.precision import FUSED, LOW, SAYS, Precision, around

BatchSize = Annotated[int, Field(ge=1, le=1_000_000)] | Literal["max"]
MOST_SAMPLES = 65_536  # the largest batch on a device that the search for "max" tries
CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
CUDA_GRAPHS: frozenset[CompileMode] = frozenset({"reduce-overhead", "max-autotune"})  # modes in which torch.compile records CUDA graphs
NOT_COMPILED: Mapping[str, Any] = {
    "compile": "none",
    "compile_mode": "default",
    "multi_kernel": False,
    "compile_cache": "kept",
    "cuda_graph": False,
}

STATES_8BIT, STATES_BF16 = "states_8bit", "states_bf16"  # of `optimizer`
LOW_STATES = (STATES_8BIT, STATES_BF16)
ReferencePrecision = Literal["fp32", "tf32", "bf16"]  # that others may be compared with, the most exact first
REFERENCES: tuple[str, ...] = get_args(ReferencePrecision)
REFERENCE = REFERENCES[0]
REFERENCE_SEEDS = 3  # with which a reference is trained, at least: fewer do not show what differs from training to training

# Parameters that change neither what is learnt nor a number on the way: how batches are fed, what is recorded, what is gathered when.
# Cells that differ in nothing else have nothing to prove
SAME_NUMBERS = frozenset(
    {"dataloader_workers", "loader", "prefetch_factor", "pin_memory", "prefetch_to_device", "keep_decoded", "evaluate", "profile_steps"}
    | {"profile_repeats", "communication_steps", "ddp_bucket_view", "ddp_static_graph", "fsdp_reshard", "limit_all_gathers"}
    | {"rung", "strategy", "rms_tensors", "spikes_after", "injected_slowdown", "execution", "measure_s", "warmup_s", "compile_cache"}
    | {"cores_per_device", "expandable_segments"}
)
# Parameters that change how the same mathematics is computed, and so its rounding, or more where the implementation is wrong. Loss parity
# shows which: a cell that differs from its baseline in one of them has to prove that it learns the same
NUMERICS = frozenset(
    {"precision", "autocast", "allow_tf32", "cast_weights", "block_weights", "kernels", "fsdp_compute", "fsdp_reduce"}
    | {"linear"}  # of earlier sweeps: what `precision` says of the blocks' linear layers today
    | {"optimizer", "compile", "attention", "layout", "activation_checkpointing", "parallel", "fsdp_units", "build_on", "threads"}
    | {"compile_mode", "image_decode", "engine", "ddp", "hpu_graphs", "hpu_lazy", "cross_entropy", "padding", "memory_format"}
    | {"multi_kernel", "prediction", "cuda_graph", "passes", "qkv", "bridges", "round_tokens_to"}
)
# What a loss curve may be compared across. The number of steps is not among them: the learning rate's schedule depends on it
SAME_MATHEMATICS = SAME_NUMBERS | NUMERICS
# Parameters of the loop. No workload's `model()` reads them, so trials that differ in nothing else begin with the same weights
NOT_OF_THE_MODEL = SAME_NUMBERS | frozenset(
    {"devices", "batch_size", "steps", "warmup_steps", "update_rule", "optimizer", "clip_grad_norm", "learning_rate", "beta2"}
    | {"weight_decay", "adam_eps", "learning_rate_schedule", "learning_rate_warmup", "compile", "compile_mode", "activation_checkpointing"}
    | {"parallel", "fsdp_units", "fsdp_reduce", "fsdp_compute", "block_weights", "kernels", "accumulation_steps", "cuda_graph"}
    | {"multi_kernel"}
)
# What a reference computes with besides its precision, where its workload has the parameter
REFERENCE_ARITHMETIC: Mapping[str, Any] = {
    "autocast": True,
    "allow_tf32": False,
    "linear": "plain",  # of earlier sweeps
    "kernels": "stock",
    "padding": "kept",
    "round_tokens_to": 64,  # its default, unpadding.MULTIPLE: with padding kept it says nothing
    "block_weights": "fp32",
    "prediction": "all",
    "passes": "apart",
    "fsdp_compute": "fp32",
    "fsdp_reduce": "fp32",
}


def as_reference(parameters: Mapping[str, Any], precision: str = REFERENCE) -> dict[str, Any]:
    """These parameters in the arithmetic of a reference; what only says how it is implemented stays as it is."""
    arithmetic = {name: value for name, value in REFERENCE_ARITHMETIC.items() if name in parameters}
    if parameters.get("optimizer") in LOW_STATES:
        arithmetic["optimizer"] = "foreach"
    if parameters.get("attention") == "varlen":
        arithmetic["attention"] = "sdpa"  # the same pairs of tokens; varlen computes in 16 bits alone
    if parameters.get("tuning") == "lora" and precision != "bf16":
        arithmetic["cast_weights"] = False  # in 32 bits there is nothing to cast
    found = {**parameters, "precision": precision, **arithmetic}
    if found.get("compile_cache") == "fresh" and not _compiles(found):
        found["compile_cache"] = "kept"  # what compiled was of the arithmetic
    return found


def _compiles(parameters: Mapping[str, Any]) -> bool:
    low = parameters.get("optimizer") in LOW_STATES
    return parameters.get("compile", "none") != "none" or parameters.get("kernels", "stock") != "stock" or low


def numerics_of(parameters: Mapping[str, Any], device: str) -> tuple[tuple[str, str], ...]:
    """What a trial computes with: (name, value) of each of NUMERICS that it has, and its device kind."""
    return ("device", device), *sorted((name, repr(parameters[name])) for name in NUMERICS & parameters.keys())


# Parameters of some strategies; with the others they would change nothing
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "ddp": ("fsdp_units", "fsdp_reshard", "fsdp_reduce", "fsdp_compute", "limit_all_gathers"),
    "fsdp1": ("ddp_bucket_view", "ddp_static_graph"),
    "fsdp2": ("ddp_bucket_view", "ddp_static_graph", "limit_all_gathers"),
}

OF_LOADING = ("dataloader_workers", "loader", "prefetch_factor")  # of a loader, which not every workload has

SIDE = "side"  # the axis of an A/B sweep, which is no parameter: tasks/rounds/ab_plan.py

# Axes without an effect of their own: each value names a set of parameters, which a suite's conditions set
NAMES_OF_SETTINGS = frozenset({"rung", "strategy", SIDE})


class TrainingParameters(Strict):
    """Settings of the measured loop. A workload's `Parameters` class extends this; each field can be an axis.

    `same_work`: the parameters that change what a sample costs or is, such as the model or an image's size. Cells are ranked, and compared
    with a baseline, only where these are equal. A class names its own; those of the classes that it extends are added (`work_parameters`).
    """

    same_work: ClassVar[tuple[str, ...]] = ()
    loads: ClassVar[bool] = True  # whether batches come from a loader; else the workload makes its own where it trains
    how_to_cast: ClassVar[str] = "with parallel fsdp1 or fsdp2 fsdp_compute to {kind}"  # so that operations see 16 bits without autocast

    devices: int = Field(1, ge=1, le=4096, description="data-parallel workers, one device each")
    precision: Precision = Field("fp32", description=SAYS)
    kernels: Literal["stock", "fused"] = Field(
        "stock", description=f"of linear layers in 8 bits: torch's and torchao's, or ours that quantise in one pass ({', '.join(FUSED)})"
    )
    batch_size: BatchSize = Field(8, description="samples per device and micro-batch, or max: the largest that fits")
    accumulation_steps: int = Field(
        1, ge=1, le=4096, description="micro-batches of a step: its update is by batch_size x accumulation_steps x devices samples"
    )
    dataloader_workers: int = Field(
        0, ge=0, le=256, description="who load batches, for each device; 0: the training process itself (MP-0), between its steps"
    )
    loader: Literal["processes", "threads"] = Field(
        "processes", description="what dataloader_workers are: processes of torch's DataLoader, or threads of the training process"
    )
    prefetch_factor: int = Field(2, ge=1, le=64, description="batches each of dataloader_workers keeps ready")
    pin_memory: bool = Field(True, description="page-locked host batches, on devices that have their own memory")
    prefetch_to_device: bool = Field(True, description="copy the next batch to the device while this one is computed")
    steps: int = Field(100, ge=2, le=1_000_000, description="measured optimiser steps; the least number of them with measure_s")
    measure_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="s that the window lasts at least; steps beyond `steps` train at rate 0; null: it ends with them",
    )
    warmup_steps: int = Field(
        10, ge=1, le=100_000, description="steps before the measured window, never part of a figure; more with warmup_s"
    )
    warmup_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="s for which the warm-up goes on after `warmup_steps`, such as until clocks settle; the window is no shorter for it, "
        "and steps beyond `warmup_steps` + `steps` train at rate 0; null: it ends with its steps",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="initial weights, data order and augmentation")
    update_rule: Literal["adamw", "stable_adamw"] = Field(
        "adamw", description="AdamW, or StableAdamW: AdamW with Adafactor's update clipping (each tensor's rate over max(1, RMS_t))"
    )
    optimizer: Literal["per_parameter", "foreach", "fused", "states_8bit", "states_bf16"] = Field(
        "foreach",
        description="how the update rule is implemented; states_8bit, states_bf16: AdamW with its averages in 8 bits (torchao's, cuda) or "
        "in bf16, rounded stochastically",
    )
    clip_grad_norm: float | None = Field(None, gt=0, le=1e6, description="largest norm of all gradients together; null: not clipped")
    learning_rate: float = Field(1e-5, gt=0, le=10)
    weight_decay: float = Field(0.01, ge=0, le=1)
    beta2: float = Field(0.999, gt=0, lt=1)
    adam_eps: float = Field(1e-8, gt=0, le=1, description="AdamW's eps; 1e-8 is torch's, and stated since Habana's own AdamW has another")
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = Field(
        "linear", description="how it falls to 0 over all steps, or not"
    )
    learning_rate_warmup: int = Field(0, ge=0, le=1_000_000, description="steps over which the rate rises from 0")
    compile: Literal["none", "layer", "model"] = Field("none", description="torch.compile of nothing, each layer, or the whole model")
    compile_mode: CompileMode = Field(
        "default", description="torch.compile's mode: reduce-overhead and max-autotune record CUDA graphs, both max-autotune try kernels"
    )
    multi_kernel: bool = Field(
        False,
        description="inductor's triton.multi_kernel: of each reduction, as in a norm, a kernel that loops over a row and one that holds it "
        "whole; the faster is kept",
    )
    cuda_graph: bool = Field(
        False, description="cuda: record a step, forward and backward, as one CUDA graph at the third batch of a shape, and replay it"
    )
    compile_cache: Literal["kept", "fresh"] = Field(
        "kept", description="kept: graphs that earlier trials compiled are used again; fresh: an empty cache, so compilation is measured"
    )
    activation_checkpointing: bool | Literal["selective"] = Field(
        False,
        description="recompute each layer's activations in the backward pass; selective: all but the outputs of products with weights "
        "and of fused attention",
    )
    parallel: Literal["ddp", "fsdp1", "fsdp2"] = Field("ddp", description="replicas (DDP), or parameters sharded over the devices (FSDP)")
    fsdp_units: Literal["layers", "root"] = Field(
        "layers", description="what is gathered at once: each layer and tower, or the whole model"
    )
    fsdp_reshard: bool = Field(True, description="free a unit's gathered parameters after its forward pass, gather them again for backward")
    fsdp_reduce: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="type in which FSDP reduces gradients")
    fsdp_compute: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="type in which FSDP gathers parameters; the shards stay fp32")
    block_weights: Literal["fp32", "linear_bf16", "bf16"] = Field(
        "fp32",
        description="the blocks' weights, training in bf16 on one device: fp32, cast in each pass; linear_bf16: those of linear layers "
        "in bf16, with fp32 copies in the optimiser; bf16: all of them, and blocks compute in bf16 throughout",
    )
    limit_all_gathers: bool = Field(True, description="fsdp1: the host waits rather than gather far ahead; fsdp2 needs no limit")
    build_on: Literal["device", "host"] = Field("device", description="where weights are made; host: for a model too large for one device")
    autocast: bool = Field(
        True, description="false: operations in the type that fsdp_compute gathers parameters in; fp16 keeps its loss scaler"
    )
    allow_tf32: bool = Field(False, description="cuda: TF32 for the fp32 matrix products that autocast leaves")
    expandable_segments: bool = Field(
        False,
        description="cuda: torch's allocator lets its segments grow, so that memory near the limit does not fragment; false: its default, "
        "or what PYTORCH_ALLOC_CONF says",
    )
    ddp_bucket_view: bool = Field(True, description="DDP gradient_as_bucket_view")
    ddp_static_graph: bool = Field(False, description="DDP static_graph")
    engine: Literal["native", "optimum_habana"] = Field("native", description="plain torch; or optimum-habana, on hpu only")
    ddp: Literal["stock", "fast"] = Field("stock", description="torch's DDP; or fast: one fused all-reduce, engine optimum_habana only")
    hpu_graphs: bool = Field(False, description="record the model as HPU graphs and replay them; hpu in lazy mode only")
    hpu_lazy: bool | None = Field(None, description="hpu: lazy or eager mode; null: lazy with optimum_habana or hpu_graphs, else eager")
    cores_per_device: int | None = Field(
        None, ge=1, le=4096, description="CPU cores that a device's process and those that load for it may use; null: all of the host's"
    )
    threads: int | None = Field(None, ge=1, le=1024, description="intra-operator threads on a CPU; null: all cores / devices")
    evaluate: bool = Field(True, description="evaluate on held-out data before and after training, outside the measured window")
    communication_steps: int = Field(
        8, ge=0, le=1000, description="steps with and as many without gradient all-reduce, at the end; for several devices; 0: not measured"
    )
    profile_steps: int = Field(0, ge=0, le=100, description="steps traced with torch.profiler after the measured window")
    profile_repeats: int | None = Field(
        None, ge=1, le=1000, description="trace steps of the first so many repeats of a cell alone; null: of each"
    )
    rms_tensors: str | None = Field(
        None, description="tensors whose RMS_t each step records: names or patterns (*), separated by commas; null: none"
    )
    spikes_after: int | None = Field(
        None, ge=0, le=1_000_000, description="look for loss and RMS spikes beyond so many steps, warm-up included; null: do not look"
    )
    injected_slowdown: float = Field(0.0, ge=0, le=1, description="each measured step is made longer by this share, to test verdicts")

    @model_validator(mode="after")
    def _has_fused_kernels(self) -> Self:
        if self.kernels == "fused" and self.precision not in FUSED:
            raise ValueError(f"kernels fused: there are none for precision {self.precision}; those are {', '.join(FUSED)}")
        return self

    @model_validator(mode="after")
    def _fits_its_strategy(self) -> Self:
        for name in WITHOUT_EFFECT[self.parallel]:
            if getattr(self, name) != (default := type(self).model_fields[name].default):
                raise ValueError(
                    f"{name} has no effect with parallel {self.parallel}; leave it at {yaml_text(default)}, or change parallel"
                )
        return self

    @model_validator(mode="after")
    def _computes_in_its_precision(self) -> Self:
        kind = around(self.precision)
        short = kind in ("bf16", "fp16")
        if self.fsdp_compute not in ("fp32", kind):
            fits = f"{kind} or fp32" if short else "fp32"
            raise ValueError(f"fsdp_compute {self.fsdp_compute}: precision {self.precision} computes in {kind}; set fsdp_compute to {fits}")
        if short and not (self.autocast or self.casts()):
            what = "what lies around the linear layers" if self.precision in LOW else "all"
            how = self.how_to_cast.format(kind=kind)
            raise ValueError(
                f"autocast false: with precision {self.precision} {what} would be computed in fp32; set autocast to true, or {how}"
            )
        return self

    @model_validator(mode="after")
    def _keeps_block_weights(self) -> Self:
        said = f"block_weights {self.block_weights}"
        if self.block_weights == "fp32":
            return self
        if around(self.precision) != "bf16" or not self.autocast:
            asked = f"precision {self.precision}" if self.autocast else "autocast false"
            raise ValueError(f"{said}: weights that bf16 autocast would cast, and this is {asked}; use precision bf16, or leave it at fp32")
        if self.accumulation_steps > 1:
            raise ValueError(f"{said}: with accumulation_steps {self.accumulation_steps} gradients would add up in bf16; use fp32")
        return self

    def casts(self) -> bool:
        """Whether operations see weights of 16 bits without autocast, by what `how_to_cast` says."""
        return self.fsdp_compute != "fp32"

    @model_validator(mode="after")
    def _compiles_in_its_mode(self) -> Self:
        if self.compile_mode != "default" and self.compile == "none":
            raise ValueError(f"compile_mode {self.compile_mode}: nothing is compiled with compile none; set compile to layer or model")
        if self.multi_kernel and self.compile == "none":
            raise ValueError("multi_kernel: nothing is compiled with compile none; set compile to layer or model")
        if self.compile_mode in CUDA_GRAPHS and self.compile == "layer" and self.activation_checkpointing:
            raise ValueError(
                f"compile_mode {self.compile_mode}: activation_checkpointing calls a compiled layer again in the backward pass, "
                "amid its CUDA graphs; use compile model, or compile_mode default or max-autotune-no-cudagraphs"
            )
        if self.compile_mode in CUDA_GRAPHS and self.accumulation_steps > 1:
            raise ValueError(
                f"compile_mode {self.compile_mode}: with accumulation_steps {self.accumulation_steps} a micro-batch's graph may write over "
                "the gradients of the one before; use accumulation_steps 1, or compile_mode default or max-autotune-no-cudagraphs"
            )
        return self

    @model_validator(mode="after")
    def _has_an_effect(self) -> Self:
        if self.compile_cache == "fresh" and not compiles(self):
            raise ValueError(
                "compile_cache fresh has no effect where nothing is compiled; leave it at kept, or set compile to layer or model"
            )
        if self.allow_tf32 and self.precision == "fp32":
            raise ValueError("allow_tf32: precision fp32 would be computed in TF32; set precision to tf32, or allow_tf32 to false")
        return self

    @model_validator(mode="after")
    def _loads_as_asked(self) -> Self:
        for name in OF_LOADING if not self.loads else ():
            if getattr(self, name) != (default := type(self).model_fields[name].default):
                raise ValueError(f"{name} has no effect: this workload makes its batches itself; leave it at {yaml_text(default)}")
        if self.dataloader_workers == 0 and self.prefetch_factor != (default := type(self).model_fields["prefetch_factor"].default):
            raise ValueError(
                f"prefetch_factor has no effect with dataloader_workers 0, since nobody loads ahead; leave it at {default}, or give at "
                "least 1 of dataloader_workers"
            )
        return self

    @model_validator(mode="after")
    def _records_a_step(self) -> Self:
        if not self.cuda_graph:
            return self
        if self.compile_mode in CUDA_GRAPHS:
            raise ValueError(f"cuda_graph: compile_mode {self.compile_mode} records graphs of its own, which none can hold; use default")
        if self.activation_checkpointing:
            raise ValueError(
                "cuda_graph: what is recomputed reads the state of random numbers on the host; set activation_checkpointing to false"
            )
        return self

    @model_validator(mode="after")
    def _has_threads(self) -> Self:
        if self.loader == "threads" and self.dataloader_workers == 0:
            raise ValueError("loader threads: with dataloader_workers 0 there are none; give at least 1, or loader processes")
        return self

    def lacking(self) -> dict[str, str]:
        """Parameters without a value that need one before a trial can run: name -> what to give."""
        return {}


Execution = Literal["queued", "synchronous"]
QUEUED: Execution = "queued"
SYNCHRONOUS: Execution = "synchronous"


def execution(parameters: TrainingParameters) -> Execution:
    """How a trial's steps follow each other: queued on the device, or one at a time. Only inference has the choice (`execution`)."""
    chosen: Execution = getattr(parameters, "execution", QUEUED)
    return chosen


def compiles(parameters: TrainingParameters) -> bool:
    """Whether a trial compiles: by torch.compile, its model or its optimiser, or by Triton, for kernels of its own."""
    return _compiles({name: getattr(parameters, name) for name in ("compile", "kernels", "optimizer")})


def work_parameters(schema: type[TrainingParameters]) -> tuple[str, ...]:
    """The parameters that change the work, by `same_work` of the class and of all classes that it extends, each name once."""
    return tuple(dict.fromkeys(name for each in reversed(schema.__mro__) for name in vars(each).get("same_work", ())))


def lazy_mode(parameters: Mapping[str, Any]) -> bool:
    """Whether a trial with these parameters runs a Gaudi in lazy mode. Takes plain values, since it is needed before torch is imported."""
    if parameters.get("hpu_lazy") is not None:
        return bool(parameters["hpu_lazy"])
    if parameters.get("compile", "none") != "none":
        return False
    return parameters.get("engine") == "optimum_habana" or bool(parameters.get("hpu_graphs"))
