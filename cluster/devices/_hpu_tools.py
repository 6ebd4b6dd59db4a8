"""Facts about the Gaudi accelerators here, from hl-smi's CSV query and from HLML (habana-pyhlml) if it is installed. No torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

# The bridge's message when device memory is full; it has no exception type. First the allocator's, then the graph compiler's workspace's
OUT_OF_MEMORY = re.compile(r"MODULE:\w*DEVMEM\w* Allocation failed for size|workspace Allocation of size\s*::\s*\d+\s*failed", re.I)

COLUMNS = ("index", "module_id", "name", "driver_version", "memory.total", "clocks.max.soc", "power.max")
_REQUIRED = ("index", "module_id", "name", "driver_version", "memory.total")  # columns that every hl-smi has
_TIMEOUT_S = 20.0
_SCALE = {"": 1.0, "MHZ": 1.0, "W": 1.0, "C": 1.0, "MIB": 2.0**20, "MB": 2.0**20, "GIB": 2.0**30, "GB": 2.0**30}
_NUMBER = re.compile(r"(-?[0-9.]+)\s*([A-Za-z]*)\Z")


class ToolError(Exception):
    """hl-smi is not installed, failed, or gave output that cannot be parsed."""


def parse(text: str, columns: Sequence[str]) -> list[dict[str, str | None]]:
    """Rows of `hl-smi -Q <columns> -f csv,noheader`, as column -> cell, None for N/A. Raises ToolError for a malformed line."""
    rows: list[dict[str, str | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(columns):
            raise ToolError(f"hl-smi, line {number}: {len(cells)} values for {len(columns)} columns: {line.strip()[:120]!r}")
        values = (None if cell.upper() in ("", "N/A", "[N/A]") else cell for cell in cells)
        rows.append(dict(zip(columns, values, strict=True)))
    return rows


def number(cell: str | None) -> float | None:
    """`98304 MiB` in bytes, `1650 MHz` in MHz, `600 W` in watts, `52 C` in °C; None for no number or an unknown unit."""
    match = _NUMBER.match(cell or "")
    if match is None or match[2].upper() not in _SCALE:
        return None
    return float(match[1]) * _SCALE[match[2].upper()]


def hl_smi(columns: Sequence[str] = COLUMNS) -> list[dict[str, str | None]]:
    """One row per accelerator of this machine. If hl-smi lacks an optional column, asks for the required ones. Raises ToolError."""
    try:
        return parse(ask(columns), columns)
    except ToolError:
        if set(columns) <= set(_REQUIRED):
            raise
    return parse(ask(_REQUIRED), _REQUIRED)


def own_row(rows: Sequence[Mapping[str, str | None]], environment: Mapping[str, str] = os.environ) -> Mapping[str, str | None]:
    """The row of this process's accelerator: that of HLS_MODULE_ID, else of the first visible module, else the first; {} for no rows."""
    visible = [one for one in environment.get("HABANA_VISIBLE_MODULES", "").split(",") if one and one != "all"]
    module_id = environment.get("HLS_MODULE_ID") or (visible[0] if visible else None)
    return next((row for row in rows if row["module_id"] == module_id), rows[0] if rows else {})


def own_rows(
    rows: Sequence[Mapping[str, str | None]], count: int, environment: Mapping[str, str] = os.environ
) -> list[Mapping[str, str | None]]:
    """The rows of the first `count` accelerators that HABANA_VISIBLE_MODULES shows; without it the first `count` rows."""
    visible = [one for one in environment.get("HABANA_VISIBLE_MODULES", "").split(",") if one and one != "all"]
    by_module = {row["module_id"]: row for row in rows}
    own = [by_module[module] for module in visible if module in by_module] if visible else list(rows)
    return own[:count]


def command(columns: Sequence[str]) -> list[str]:
    """The command line of hl-smi's CSV query. Raises ToolError if hl-smi is not on this machine."""
    beside = str(Path(sys.executable).parent)  # a Python environment that is not on PATH may have its own
    program = shutil.which("hl-smi", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if program is None:
        raise ToolError("hl-smi is not on this machine")
    return [program, "-Q", ",".join(columns), "-f", "csv,noheader"]


def ask(columns: Sequence[str]) -> str:
    """hl-smi's answer to a CSV query. Raises ToolError."""
    try:
        process = subprocess.run(command(columns), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"hl-smi did not answer: {error}") from error
    if process.returncode:
        raise ToolError(f"hl-smi failed: {(process.stderr or process.stdout).strip()[:200]}")
    return process.stdout


class Hlml:
    """HLML's energy counter of one accelerator; without habana-pyhlml the energy is unknown."""

    def __init__(self, index: int) -> None:
        self._device: Any = None
        try:
            import pyhlml

            pyhlml.hlmlInit()
            self._device, self._library = pyhlml.hlmlDeviceGetHandleByIndex(index), pyhlml
        except Exception:  # not installed, or no driver; the library raises its own exception types
            return

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded (HLML counts millijoules); None if unknown."""
        if self._device is None:
            return None
        try:
            return float(self._library.hlmlDeviceGetTotalEnergyConsumption(self._device)) / 1000
        except Exception:
            return None


def versions() -> dict[str, str | None]:
    """Versions of the Gaudi software: the PyTorch bridge, optimum-habana and accelerate; None if not installed."""
    installed: dict[str, str | None] = {}
    for name in ("habana-torch-plugin", "optimum-habana", "accelerate"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = None
    return installed
