"""A step's fields are declared once; every file that holds steps follows from the declaration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.journal.journal import JournalWriter, read_journal
from experiments import step_record, summary
from experiments.step_record import FIELDS, PARTS, Spec, StepRecord, StepTiming, batches_of, fields_of, kind_of, metrics_of, whole_rounds
from tasks.analysis.results import write_steps
from tasks.tracking.log_trial import step_metrics

TIMING = StepTiming(
    step=3,
    samples=8,
    loss=2.0,
    ended_at=1000.5,
    data_wait_s=0.1,
    h2d_s=0.05,
    forward_backward_s=0.3,
    optimizer_s=0.05,
    total_s=0.5,
    loader_wait_s=0.2,
)
KNOWN = [
    "t",
    "step",
    "measured",
    "loss",
    "samples",
    "data_wait_s",
    "h2d_s",
    "forward_backward_s",
    "optimizer_s",
    "total_s",
    "loader_wait_s",
]
NAMES = [*KNOWN, "step_kind"]


@dataclass(frozen=True)
class Longer(StepRecord):
    """A record with one more field, as one more line in StepRecord would make it."""

    grad_norm: Annotated[float | None, Spec(metric="grad_norm")] = None


def test_the_fields_and_their_order() -> None:
    assert [field.name for field in FIELDS] == NAMES
    assert [field.kind for field in FIELDS] == ["float64", "int64", "bool", "float64", "int64", *["float64"] * 6, "string"]
    assert {field.name: field.unit for field in FIELDS if field.unit} == {"t": "s since 1970", **dict.fromkeys(KNOWN[5:], "s")}
    assert tuple(NAMES[5:9]) == PARTS and summary.PARTS == ("data_wait", "h2d", "forward_backward", "optimizer")


def test_a_records_values_stand_under_the_names_of_the_files() -> None:
    record = StepRecord(**vars(TIMING), measured=True)
    assert record.values() == dict(zip(KNOWN, [1000.5, 3, True, 2.0, 8, 0.1, 0.05, 0.3, 0.05, 0.5, 0.2], strict=True))
    assert list(record.values()) == KNOWN, "a kind of step is left out where there is none"
    assert StepRecord(**{**vars(TIMING), "step_kind": "pair"}, measured=True).values()["step_kind"] == "pair"
    earlier = {name: value for name, value in vars(TIMING).items() if name != "loader_wait_s"}
    assert list(StepRecord(**earlier, measured=True).values()) == KNOWN[:-1], "what is not known is left out"


def test_the_metrics_of_a_step() -> None:
    step = {**StepRecord(**vars(TIMING), measured=True).values(), "rms.layer.weight": 1.5}
    assert metrics_of(step) == {"loss": 2.0, "data_wait_s": 0.1, "step_time_s": 0.5, "samples_per_s": 16.0, "rms.layer.weight": 1.5}


def test_metrics_that_a_record_does_not_tell_are_none() -> None:
    assert metrics_of({"step": 1, "samples": 8}) == {"loss": None, "data_wait_s": None, "step_time_s": None, "samples_per_s": None}
    assert metrics_of({"step": 1, "samples": 8, "total_s": 0.0})["samples_per_s"] is None


def test_journal_parquet_and_mlflow_have_what_a_record_declares(tmp_path: Path) -> None:
    with JournalWriter(tmp_path / "journal.jsonl", 1) as journal:
        journal.append("step", **StepRecord(**vars(TIMING), measured=True).values())
    write_steps(tmp_path)
    schema = pq.read_schema(tmp_path / "steps.parquet")
    assert schema.names == NAMES
    assert [schema.field(field.name).type for field in FIELDS] == [pa.type_for_alias(field.kind) for field in FIELDS]
    drawn = [
        (metric.key, metric.value, metric.timestamp, metric.step) for metric in step_metrics(read_journal(tmp_path / "journal.jsonl").steps)
    ]
    assert drawn == [(name, value, 1_000_500, 3) for name, value in metrics_of(vars(TIMING)).items()]


def test_a_metric_that_is_not_finite_is_not_drawn() -> None:
    values = {**StepRecord(**vars(TIMING), measured=True).values(), "loss": math.nan, "rms.x": None, "kind": "step"}
    assert {metric.key for metric in step_metrics([values])} == {"data_wait_s", "step_time_s", "samples_per_s"}


def test_one_line_adds_a_field_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = fields_of(Longer)
    assert [field.name for field in more] == [*NAMES, "grad_norm"]
    assert (more[-1].kind, more[-1].metric) == ("float64", "grad_norm")
    monkeypatch.setattr(step_record, "FIELDS", more)
    assert Longer(**vars(TIMING), measured=True).values().keys() == set(KNOWN), "left out where it is not known"
    step: dict[str, Any] = Longer(**vars(TIMING), measured=True, grad_norm=0.25).values()
    assert step["grad_norm"] == metrics_of(step)["grad_norm"] == 0.25


def test_a_type_without_a_name_in_arrow_is_an_error() -> None:
    @dataclass(frozen=True)
    class Wrong(StepRecord):
        note: Annotated[bytes, Spec()] = b""

    with pytest.raises(KeyError):
        fields_of(Wrong)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([None], None),
        ([None, None], None),
        (["text"], "text"),
        (["text", "text"], "text"),
        (["text", "image"], "image+text"),
        (["text", "image", "text"], "image+text+text"),
        ([None, "text"], "text"),
    ],
)
def test_a_step_of_several_kinds_is_named_for_all(kinds: list[str | None], expected: str | None) -> None:
    assert kind_of(kinds) == expected
    if expected and None not in kinds:
        assert batches_of(expected, len(kinds)) == sorted(kind for kind in kinds if kind)


@pytest.mark.parametrize(
    ("steps", "seen", "whole"),
    [
        (["a"], {"a"}, True),
        (["a", "a"], {"a"}, True),
        (["a"], {"a", "b"}, False),
        (["a", "b"], {"a", "b"}, True),
        (["a", "b", "b"], {"a", "b"}, False),
        (["b", "c", "a"], {"a", "b", "c"}, True),
        (["b", "a", "b"], {"a", "b", "c"}, False),
        (["a", "b"], {"a", "b", "c"}, False),
        (["a", "b", "c", "c", "a", "b"], {"a", "b", "c"}, True),
        (["a", "b", "c", "c"], {"a", "b", "c"}, False),
        (["a", "b", "c"], {"a", "b"}, True),  # the third was not seen before
        (["a", None, "b"], {"a", "b"}, False),
        ([], {"a"}, False),
        ([], (), False),
    ],
)
def test_steps_are_the_mix_of_all_kinds_where_each_comes_as_often(steps: list[str | None], seen: set[str], whole: bool) -> None:
    assert whole_rounds(steps, seen) == whole


@pytest.mark.parametrize(
    ("steps", "micro_batches", "whole"),
    [
        (["a+b+c"], 3, True),
        (["a+b", "c", "a+b"], 2, True),  # two rounds, the middle step of which has two batches of one kind
        (["a+b", "c"], 2, False),
        (["a+c", "b+c", "a+b"], 2, True),
        (["a+a+b", "b"], 3, False),
    ],
)
def test_of_steps_of_micro_batches_these_count(steps: list[str], micro_batches: int, whole: bool) -> None:
    assert whole_rounds(steps, steps, micro_batches) == whole
