"""A trial, its outcome and result, and its key: two trials with equal keys are the same trial."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from experiments.canonical_json import canonical_json
from experiments.config.strict import Strict
from experiments.ineffective_parameters import without_effect
from experiments.journal_mark import JournalMark
from experiments.price import Price

Scalar = str | int | float | bool | None
TrialKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-z]{1,64}$")]  # names the trial's folder, so it must not lead elsewhere

RUN_AXES = ("pool", "environment", "commit")  # axes that are no parameters of a workload: where, with which libraries and which code
DEFAULT_ENVIRONMENT = "default"  # a value of the axis `environment`: the Python that trials of the pool run with anyway
WORKTREE = "worktree"  # a value of the axis `commit`: the code as it lies here
DEFAULTS = {"environment": DEFAULT_ENVIRONMENT, "commit": WORKTREE}


class Outcome(StrEnum):
    """How a trial ended. `does_not_fit` and `unsupported` are results about the hardware, not failures."""

    OK = "ok"
    DOES_NOT_FIT = "does_not_fit"  # out of device memory
    DIVERGED = "diverged"  # the loss is no longer finite
    UNSUPPORTED = "unsupported"  # the device does not support this precision, engine, ...
    HANG = "hang"  # no progress within the watchdog's time
    CRASHED = "crashed"  # the workload raised
    INFRA = "infra"  # node lost, preempted, host memory, disk full: says nothing about the trial
    CANCELLED = "cancelled"

    @property
    def expected(self) -> bool:
        """True for a result that a sweep may contain and still succeed (exit status 0)."""
        return self in (Outcome.OK, Outcome.DOES_NOT_FIT, Outcome.UNSUPPORTED)

    @property
    def final(self) -> bool:
        """True if a resumed sweep does not run the trial again, since the outcome is a result about the trial itself."""
        return self not in (Outcome.INFRA, Outcome.CANCELLED)


class DataSource(Strict):
    """The data set that a trial reads, resolved before the trial starts."""

    uri: str = Field(description="folder of Parquet files: local path, s3://, gs:// or hf://")
    fingerprint: str = Field(description="changes when the data changes")
    tokenizer: str | None = Field(None, description="folder of a trained tokenizer")


class Trial(Strict):
    """One repeat of one cell of the matrix. trial.json holds it, and it is all the input that a worker gets."""

    schema_version: Literal[1] = 1
    key: TrialKey
    key_parts: dict[str, str]
    sweep_id: str
    suite: str
    workload: str
    pool: str
    device: str = Field(description="device kind; names a file in cluster/devices")
    emulated: bool = Field(False, description="the pool's device is emulated: nothing here is a measurement")
    lock_clocks_mhz: int | None = Field(None, description="of the pool: lock the GPUs' clocks at this while the trial runs")
    environment: str | None = Field(None, description="name of the environment that it runs in; null: the pool's own Python")
    environment_digest: str | None = Field(None, description="of that environment's content: its folder in runs/.environments")
    commit: str | None = Field(None, description="the commit that it runs, 40 hex digits; null: the code as it lies here")
    cell: str = Field(description="hash of pool and parameters: the same for all repeats")
    repeat: int = Field(ge=1)
    reference: bool = Field(False, description="serves loss parity alone: it is compared with nothing")
    index: int = Field(ge=0, description="position in the interleaved order of its sweep")
    axes: dict[str, Scalar] = Field(description="axis name -> value, pool included, in the suite's order")
    parameters: dict[str, Any] = Field(description="the workload's complete, validated parameters")
    data: DataSource | None = None
    labels: dict[str, str] = Field(default_factory=dict, description="tags of its MLflow run; no part of the key")
    price: Price | None = Field(None, description="what its share of the pool costs; no part of the key; null: the pool names no price")

    @property
    def least_s(self) -> float:
        """What its warm-up and its window take at least, as far as they are to last some time, s."""
        return sum(float(self.parameters.get(name) or 0.0) for name in ("warmup_s", "measure_s"))

    @property
    def name(self) -> str:
        """A readable name: `cpu · tiny · bf16 · MP-1 · #2`."""
        return " · ".join([*self.labels_of(self.axes), f"#{self.repeat}"])

    def labels_of(self, axes: Container[str]) -> list[str]:
        """What its cell is called by these of its axes: `bf16`, `MP-1`."""
        reference = [f"reference {self.parameters.get('precision')}"] if self.reference else []
        return [*self.axis_labels(axes).values(), *reference]

    def axis_labels(self, axes: Container[str]) -> dict[str, str]:
        """Axis -> label of those of `axes` that it has, without what has no effect in it: compile_mode with compile none."""
        idle = without_effect({**self.parameters, **self.axes})
        return {axis: label(axis, value) for axis, value in self.axes.items() if axis in axes and axis not in idle}


def label(axis: str, value: Scalar) -> str:
    """A readable axis value: MP-1 for one loader process or thread, else the value, with the axis name if the value alone is unclear."""
    if axis == "dataloader_workers":
        return f"MP-{value}"
    if axis == "clip_grad_norm":
        return "not clipped" if value is None else f"clipped at {value}"
    if value is None:
        return f"{axis} {value_text(axis, value)}"
    if isinstance(value, bool):
        return axis if value else f"no {axis}"
    if isinstance(value, int | float) or axis in _NEEDS_AXIS or (axis, value) in _AMBIGUOUS:
        return f"{axis} {value}"
    return str(value)


def value_text(axis: str, value: Scalar) -> str:
    """A value beside the name of its axis: null is `default` where it leaves the choice to the model, as of image_size, else `none`."""
    return str(value) if value is not None else "default" if axis in _MODELS_OWN else "none"


_MODELS_OWN = frozenset({"image_size", "dropout"})  # null: the model's own
_NEEDS_AXIS = frozenset(
    {"compile", "compile_mode", "batch_size", "image_decode", "loader", "environment", "commit", "activation_checkpointing"}
    | {"block_weights", "bridges", "kernels", "optimizer", "padding", "prediction", "passes", "fsdp_compute", "fsdp_reduce"}  # fused what?
    | {"engine", "lora_targets", "memory_format", "packing"}  # native, all, attention, contiguous, block, plain what?
)
_AMBIGUOUS = frozenset({("attention", "eager")})  # alone it would be read as `not compiled`


class TrialResult(Strict):
    """result.json: how one attempt of a trial ended. Reports recompute statistics from the journal's raw steps."""

    schema_version: Literal[1] = 1
    key: TrialKey
    attempt: int = Field(ge=1)
    outcome: Outcome
    reason: str | None = Field(None, description="one line; always present unless the outcome is ok")
    detail: str | None = Field(None, description="traceback or log tail")
    disturbed: str | None = Field(None, description="what else was on the device or its host while it measured; null: nothing, or unknown")
    not_judged: str | None = Field(None, description="why other work could not be seen; null: it would have been, or nothing was sampled")
    started_at: float = Field(description="Unix time, s")
    finished_at: float = Field(description="Unix time, s")
    emulated: bool = False
    environment: dict[str, Any] = Field(default_factory=dict)
    summary: dict[str, float | int | bool | None] = Field(default_factory=dict)
    journal: JournalMark | None = Field(None, description="of the attempt's journal; null: of an early trial, or it was not closed")
    device_state: JournalMark | None = Field(None, description="of the sampler's records; null: not known, or there are none")

    @property
    def remark(self) -> str | None:
        """What a person must know of it beside the outcome: the reason, or what disturbed it."""
        return self.reason or (f"disturbed: {self.disturbed}" if self.disturbed else None)


def digest(value: object) -> str:
    """The first 16 hex digits of the SHA-256 of `value` as canonical JSON. Raises TypeError or ValueError if JSON cannot represent it."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def key_parts(
    *, configuration: Mapping[str, Any], code: str, data: str, libraries: str, seed: int, repeat: int, sweep: str
) -> dict[str, str]:
    """The parts of a trial key, kept apart so that a rerun can say which of them changed."""
    return {
        "configuration": digest(dict(configuration)),
        "code": code,
        "data": data,
        "libraries": libraries,
        "seed": str(seed),
        "repeat": str(repeat),
        "sweep": sweep,
    }


def trial_key(parts: Mapping[str, str]) -> str:
    """The trial's key: 16 hex digits over everything that may change its result."""
    return digest(dict(parts))
