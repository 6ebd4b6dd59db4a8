"""The fields of one step of a trial. The journal, steps.parquet, MLflow's step metrics and the summary take names and types from here.

A new field is one line in StepRecord, as in `grad_norm: Annotated[float | None, Spec(metric="grad_norm")] = None`. The code that measures
it passes its value to `Recorder.step` as `more`. A record omits a field whose value is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

RMS = "rms."  # prefix of the fields with a tensor's RMS_t; trials differ in which tensors they watch
TOTAL = "total_s"
_KINDS = {int: "int64", float: "float64", bool: "bool", str: "string"}  # Arrow's names of types
_AND = "+"  # between the kinds of a step's micro-batches
_FIRST = ("t", "step", "measured", "loss", "samples")  # the first fields of a record; the others follow in the order of declaration


@dataclass(frozen=True)
class Spec:
    """Properties of a field. `part`: it is one of the parts that add up to total_s. `metric`: its name in MLflow; None: not logged."""

    unit: str = ""
    part: bool = False
    metric: str | None = None
    name: str | None = None  # its name in the journal, if not the attribute's


@dataclass(frozen=True)
class StepTiming:
    """One finished step of one rank, as a step clock returns it. Times in s; `ended_at` in s since 1970."""

    step: Annotated[int, Spec()]
    samples: Annotated[int, Spec()]
    loss: Annotated[float, Spec(metric="loss")]
    ended_at: Annotated[float, Spec("s since 1970", name="t")]
    data_wait_s: Annotated[float, Spec("s", part=True, metric="data_wait_s")]  # the device waits for the host, whatever that does
    h2d_s: Annotated[float, Spec("s", part=True)]  # the part of the copy that the computation had to wait for
    forward_backward_s: Annotated[float, Spec("s", part=True)]
    optimizer_s: Annotated[float, Spec("s", part=True)]
    total_s: Annotated[float, Spec("s", metric="step_time_s")]
    loader_wait_s: Annotated[float | None, Spec("s")] = None  # the host's time in the loader's `next`; beside the parts
    # of workloads whose steps differ by design; the loop fills it, no clock does
    step_kind: Annotated[str | None, Spec()] = field(default=None, kw_only=True)


@dataclass(frozen=True)
class StepRecord(StepTiming):
    """One finished step of a trial. `samples` counts those of all ranks."""

    measured: Annotated[bool, Spec()] = field(kw_only=True)  # False in warm-up

    def values(self) -> dict[str, Any]:
        """The known values by field name, in the order of FIELDS."""
        values = ((field.name, getattr(self, field.attribute)) for field in FIELDS)
        return {name: value for name, value in values if value is not None}


@dataclass(frozen=True)
class Field:
    """A field of StepRecord as it appears in files. `kind`: Arrow's name of its type."""

    name: str
    attribute: str
    kind: str
    unit: str
    part: bool
    metric: str | None


def fields_of(record: type[StepRecord]) -> tuple[Field, ...]:
    """A record's fields in the order used in files. Raises KeyError for a type without an Arrow name in _KINDS."""
    hints = get_type_hints(record, include_extras=True)
    result = []
    for one in fields(record):
        annotated, spec = get_args(hints[one.name])
        kind = next(kind for kind in (get_args(annotated) or (annotated,)) if kind is not NoneType)
        result.append(Field(spec.name or one.name, one.name, _KINDS[kind], spec.unit, spec.part, spec.metric))
    return tuple(sorted(result, key=lambda field: _FIRST.index(field.name) if field.name in _FIRST else len(_FIRST)))


FIELDS = fields_of(StepRecord)
PARTS = tuple(field.name for field in FIELDS if field.part)  # a step's parts, in order; seconds


def kind_of(batches: Sequence[str | None]) -> str | None:
    """The kind of a step by those of its micro-batches: theirs, or where they differ all of them by name, since what a step costs is
    their sum. None where they have none."""
    named = sorted(kind for kind in batches if kind is not None)
    return _AND.join(named if len(set(named)) > 1 else named[:1]) or None


def batches_of(step_kind: str, micro_batches: int) -> list[str]:
    """The kinds of the micro-batches of a step; the reverse of `kind_of`."""
    named = step_kind.split(_AND)
    return named if len(named) > 1 else named * micro_batches


def whole_rounds(steps: Sequence[str | None], seen: Iterable[str], micro_batches: int = 1) -> bool:
    """Whether steps of these kinds are the mix of all kinds, of which a workload says FLOPs: as many batches of each kind that was `seen`,
    and at least one. False for a step whose kind is not known. `micro_batches`: of a step."""
    counts = Counter(batch for kind in steps if kind is not None for batch in batches_of(kind, micro_batches))
    every = {batch for kind in seen for batch in batches_of(kind, micro_batches)} | counts.keys()
    return None not in steps and bool(counts) and len({counts[kind] for kind in every}) == 1


def metrics_of(step: Mapping[str, Any]) -> dict[str, float | None]:
    """MLflow's metrics of a journal's `step` record, by name; None if the record does not have the value.

    samples_per_s = samples / total_s. An RMS_t keeps its field's name.
    """
    total = step.get(TOTAL)
    return {
        **{field.metric: step.get(field.name) for field in FIELDS if field.metric},
        "samples_per_s": step["samples"] / total if total else None,
        **{name: step[name] for name in step if name.startswith(RMS)},
    }
