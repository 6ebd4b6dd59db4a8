"""Published results of others (published.csv). Reports show them beside ours with what differs, and never compute with both."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("published.csv")


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
    cell: tuple[str, str] | None = None  # parameter and value of our cells that it belongs to; None: any

    def is_of(self, parameters: Mapping[str, Any]) -> bool:
        """Whether a cell of ours with these parameters corresponds to this line, apart from the `differences`."""
        return self.cell is None or str(parameters.get(self.cell[0])) == self.cell[1]

    def may_stand_beside(self, parameters: Mapping[str, Any]) -> bool:
        """Whether it is of the same model on as many devices as a cell of ours with these parameters, as its source says.

        A rate per device may be of another number, which is then one of the `differences`.
        """
        return self.model == parameters.get("model") and (self.metric in PER_DEVICE or self.devices == parameters.get("devices", 1))

    def differences(self, parameters: Mapping[str, Any], device: str) -> list[str]:
        """What differs between this line and a cell of ours with these parameters on this device, in words for a report.

        A value that the source does not state is listed as such.
        """
        differences = [] if same_device(self.accelerator, device) else [f"device {self.accelerator}, ours {device}"]
        for name, word, theirs in (
            ("model", "model", self.model),
            ("devices", "devices", self.devices),
            ("batch_size", "batch per device", self.batch),
            ("precision", "precision", self.precision),
            ("dataloader_workers", "dataloader workers", self.dataloader_workers),
        ):
            ours = parameters.get(name)
            if theirs is None:
                differences.append(f"{word} not said")
            elif ours is not None and ours != theirs:
                differences.append(f"{word} {theirs}, ours {ours}")
        if self.dataloader_workers and parameters.get("loader") == "threads":  # who publish a number of workers mean DataLoader's
            differences.append("loader processes, ours threads")
        return differences + ([self.extra] if self.extra and self.cell is None else [])  # else it says which of our cells this is


def same_device(accelerator: str, device: str) -> bool:
    """Whether a published accelerator (`a100-80`) is the device that the environment names (`NVIDIA A100-SXM4-80GB`)."""
    ours = device.lower().replace("-", "").replace(" ", "")
    return all(part in ours for part in accelerator.lower().split("-"))


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


def literature_for(workload: str, *, metric: str | None = "throughput") -> list[LiteratureValue]:
    """Published values of one workload and metric; of every metric with None."""
    return [entry for entry in read_published() if entry.workload == workload and metric in (None, entry.metric)]


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
        _cell(row.get("cell") or ""),
    )


def _cell(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"cell is {text!r}, wanted parameter=value or nothing")
    return name, value


def _whole(row: Mapping[str, str], name: str) -> int | None:
    text = row[name].strip()
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{name} is {text!r}, wanted a whole number or nothing")
    return int(text)
