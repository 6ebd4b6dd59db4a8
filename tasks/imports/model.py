"""What others measured, as it is kept: imported.json. It is no plan and has no trials, so nothing that compares sweeps ever reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pydantic import Field, FiniteFloat

from experiments.config.strict import Strict
from experiments.trial import Scalar


class Origin(StrEnum):
    """Which program wrote the files."""

    MLPERF = "mlperf"
    OPTIMUM_BENCHMARK = "optimum-benchmark"
    PYTEST_BENCHMARK = "pytest-benchmark"


TITLES = {Origin.MLPERF: "MLPerf logs", Origin.OPTIMUM_BENCHMARK: "optimum-benchmark", Origin.PYTEST_BENCHMARK: "pytest-benchmark"}


class Value(Strict):
    """A figure by the name that its program gives it."""

    name: str
    value: FiniteFloat
    unit: str = ""


class OthersResult(Strict):
    """One run, scenario or test."""

    name: str
    file: str = Field(description="which of the originals it was read from")
    line: int | None = Field(None, description="where in it; null: JSON")
    outcome: str | None = Field(None, description="how it ended, in that program's word; null: it does not say")
    settings: dict[str, Scalar] = Field(default_factory=dict)
    values: list[Value]
    samples: dict[str, list[FiniteFloat]] = Field(default_factory=dict, description="single readings behind a value, by its name")


class Original(Strict):
    """A file that was read, as it lies in the folder of originals."""

    name: str
    read_from: str
    sha256: str
    size: int


class Imported(Strict):
    """imported.json."""

    schema_version: Literal[1] = 1
    sweep_id: str
    measured_by: Literal["others"] = "others"
    origin: Origin
    versions: list[str] = Field(description="of the program, where the files say it")
    imported_at: float = Field(description="Unix time, s")
    measured_at: float | None = Field(None, description="Unix time of the first result, s; null: the files do not say")
    environment: dict[str, str] = Field(
        description="on what it was measured, as the files say; values that differ between files are joined"
    )
    originals: list[Original]
    results: list[OthersResult]


@dataclass(frozen=True)
class Read:
    """What one file holds. `measured_at`: Unix time, s."""

    origin: Origin
    results: list[OthersResult]
    environment: dict[str, str] = field(default_factory=dict)
    version: str | None = None
    measured_at: float | None = None
