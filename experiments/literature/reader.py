"""Published results of others (published.csv). Reports show them beside ours with what differs, and never compute with both.

The columns `cell` and `over` name parameters of ours, `name=value`, several with a space between: the cell of ours that a line belongs to,
and the cell that a ratio is over. A line without a model is of all of them. Where a line names a cell, `extra` says which that is, and what
it has after a semicolon differs from ours; else all of it does.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("published.csv")


Settings = tuple[tuple[str, str], ...]  # parameters and their values, as text
_MAKERS = {"gaudi": "intel", "a100": "nvidia", "h100": "nvidia", "h200": "nvidia"}
_KINDS = {"a100": "ampere", "h100": "hopper", "h200": "hopper"}


@dataclass(frozen=True)
class LiteratureValue:
    """One line of published.csv; None where its source does not say. `batch` is per device."""

    workload: str
    model: str
    accelerator: str
    devices: int | None
    precision: str | None
    batch: int | None
    dataloader_workers: int | None
    extra: str
    metric: str
    value: float
    unit: str
    source: str
    cell: Settings = ()  # of our cells that it belongs to; empty: any
    over: Settings = ()  # of the cell of ours that corresponds to what it is a ratio over; empty: it is no ratio
    quotient: str = ""  # of two lines, in words; empty: its source has the value itself

    def is_of(self, parameters: Mapping[str, Any], *, but: Collection[str] = ()) -> bool:
        """Whether a cell of ours with these parameters corresponds to this line, apart from the `differences` and from parameters `but`."""
        return all(as_text(parameters.get(name)) == value for name, value in self.cell if name not in but)

    def is_over(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a cell of ours with these parameters corresponds to what this ratio is over."""
        return bool(self.over) and all(as_text(parameters.get(name)) == value for name, value in self.over)

    def is_of_model(self, parameters: Mapping[str, Any]) -> bool:
        return not self.model or self.model == parameters.get("model")

    def may_stand_beside(self, parameters: Mapping[str, Any]) -> bool:
        """Whether it may be drawn, or tabled, as it is beside a cell of ours with these parameters: it is of the same model on as many
        devices, as its source says, or a rate per device."""
        return self.is_of_model(parameters) and (self.metric in PER_DEVICE or self.devices == parameters.get("devices", 1))

    def differences(self, parameters: Mapping[str, Any], device: str) -> list[str]:
        """What differs between this line and a cell of ours with these parameters on this device, in words for a report.

        A value that the source does not state is listed as such, but for the loader processes: no source but BridgeTower's speaks of them.
        """
        differences = [] if same_device(self.accelerator, device) else [f"device {self.accelerator}, ours {device}"]
        for name, word, theirs in (
            ("model", "model", self.model or parameters.get("model")),
            ("devices", "devices", self.devices),
            ("batch_size", "batch per device", self.batch),
            ("precision", "precision", self.precision),
            ("dataloader_workers", "dataloader workers", self.dataloader_workers),
        ):
            ours = parameters.get(name)
            if theirs is None:
                differences += [] if ours is None or name == "dataloader_workers" else [f"{word} not said"]
            elif ours is not None and ours != theirs:
                differences.append(f"{word} {theirs}, ours {ours}")
        if self.dataloader_workers and parameters.get("loader") == "threads":  # who publish a number of workers mean DataLoader's
            differences.append("loader processes, ours threads")
        says_which = self.cell and not self.quotient
        other = self.extra.partition("; ")[2] if says_which else self.extra
        return differences + ([other] if other else [])

    def gap(self, parameters: Mapping[str, Any], device: str) -> float:
        """How far what differs lies apart: factors of two in numbers of devices, batch and loader processes, and steps between devices.
        It orders lines that differ in as many things, and measures nothing."""
        pairs = (
            (self.devices, parameters.get("devices", 1)),
            (self.batch, parameters.get("batch_size")),
            (self.dataloader_workers, parameters.get("dataloader_workers")),
        )
        known = [(theirs, ours) for theirs, ours in pairs if theirs is not None and isinstance(ours, int | float)]
        return _steps_between(self.accelerator, device) + sum(abs(math.log2((1 + theirs) / (1 + ours))) for theirs, ours in known)


def as_text(value: Any) -> str:
    """A parameter's value as the csv and suites write it: `true`, `bf16`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def same_device(accelerator: str, device: str) -> bool:
    """Whether a published accelerator (`a100-80`) is the device that the environment names (`NVIDIA A100-SXM4-80GB`)."""
    ours = device.lower().replace("-", "").replace(" ", "")
    return all(part in ours for part in accelerator.lower().split("-"))


def _steps_between(accelerator: str, device: str) -> int:
    """0 for the same device, 1 for another of one architecture, 2 for another of one maker, else 3."""
    if same_device(accelerator, device):
        return 0
    ours, theirs = device.lower(), accelerator.lower()

    def shared(names: Mapping[str, str]) -> bool:
        return bool({names[name] for name in names if name in ours} & {names[name] for name in names if name in theirs})

    return 1 if shared(_KINDS) else 2 if shared(_MAKERS) else 3


@cache
def read_published(path: Path = PATH) -> tuple[LiteratureValue, ...]:
    """All lines. Raises ValueError, naming file, line and field, for one that cannot be read."""
    values = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            try:
                values.append(_parse(row))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise ValueError(f"{path.name}, line {len(values) + 2}: {error}") from error
    return tuple(values)


# published metric -> (our summary metric, factor from their unit to ours); `speedup` is over the suite's baseline and has no factor
OURS = {
    "throughput": ("throughput", 1.0),
    "max_batch_per_device": ("batch_size", 1.0),
    "epoch_time": ("epoch_time_s", 3600.0),
    "latency": ("latency_per_sample_s", 1.0),
    "tokens_per_s_per_device": ("tokens_per_s_per_device", 1.0),
}
PER_DEVICE = frozenset({"tokens_per_s_per_device"})
# of two cells of one sweep, over the one that the column `over` names
RATIOS = frozenset({"speedup", "max_batch_ratio", "model_size_ratio"})


def literature_for(workload: str, *, metric: str | None = "throughput") -> list[LiteratureValue]:
    """Published values of one workload and metric; of every metric with None."""
    return [entry for entry in read_published() if entry.workload == workload and metric in (None, entry.metric)]


def loader_ratios(entries: Sequence[LiteratureValue]) -> list[LiteratureValue]:
    """How many times the throughput without a loader process that with some is: quotients of lines that differ in nothing else."""

    def beside_workers(entry: LiteratureValue) -> LiteratureValue:
        return replace(entry, dataloader_workers=None, value=0.0)

    rates = [entry for entry in entries if entry.metric == "throughput" and entry.dataloader_workers is not None]
    without = {beside_workers(entry): entry for entry in rates if entry.dataloader_workers == 0}
    return [
        replace(
            entry,
            metric="speedup",
            value=entry.value / base.value,
            unit="x",
            cell=(*entry.cell, ("dataloader_workers", str(entry.dataloader_workers))),
            over=(("dataloader_workers", "0"),),
            quotient=f"over MP-0, of {entry.value:g} and {base.value:g} {entry.unit}",
        )
        for entry in rates
        if entry.dataloader_workers and (base := without.get(beside_workers(entry)))
    ]


def _parse(row: Mapping[str, str]) -> LiteratureValue:
    return LiteratureValue(
        row["workload"],
        row["model"],
        row["accelerator"],
        _whole(row, "devices"),
        row["precision"] or None,
        _whole(row, "batch_per_device"),
        _whole(row, "dataloader_workers"),
        row["extra"],
        row["metric"],
        float(row["value"]),
        row["unit"],
        row["source"],
        _settings(row, "cell"),
        _over(row),
    )


def _over(row: Mapping[str, str]) -> Settings:
    over = _settings(row, "over")
    if bool(over) != (row["metric"] in RATIOS):
        raise ValueError("over says what a ratio is over: a ratio needs it, and nothing else has it")
    return over


def _settings(row: Mapping[str, str], column: str) -> Settings:
    settings = []
    for text in (row.get(column) or "").split():
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{column} is {text!r}, wanted parameter=value or nothing")
        settings.append((name, value))
    return tuple(settings)


def _whole(row: Mapping[str, str], name: str) -> int | None:
    text = row[name].strip()
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{name} is {text!r}, wanted a whole number or nothing")
    return int(text)
