"""What Habana's tools say of the accelerators here: hl-smi's CSV query, and HLML (habana-pyhlml) where it is installed. No torch."""

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

# What the bridge says when the device is full; it has no exception type for it. The allocator, then the graph compiler's workspace
OUT_OF_MEMORY = re.compile(r"MODULE:\w*DEVMEM\w* Allocation failed for size|workspace Allocation of size\s*::\s*\d+\s*failed", re.I)

COLUMNS = ("index", "module_id", "name", "driver_version", "memory.total", "clocks.max.soc", "power.max")
_REQUIRED = ("index", "module_id", "name", "driver_version", "memory.total")  # that every hl-smi has
_TIMEOUT_S = 20.0
_SCALE = {"": 1.0, "MHZ": 1.0, "W": 1.0, "MIB": 2.0**20, "MB": 2.0**20, "GIB": 2.0**30, "GB": 2.0**30}
_NUMBER = re.compile(r"(-?[0-9.]+)\s*([A-Za-z]*)\Z")


class ToolError(Exception):
    """hl-smi is not there, failed, or said what cannot be read."""


def parse(text: str, columns: Sequence[str]) -> list[dict[str, str | None]]:
    """Rows of `hl-smi -Q <columns> -f csv,noheader` by column; None for N/A. Raises ToolError naming the line that is not one."""
    rows: list[dict[str, str | None]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(columns):
            raise ToolError(f"hl-smi, line {number}: {len(cells)} values for {len(columns)} columns: {line.strip()[:120]!r}")
        known = (None if cell.upper() in ("", "N/A", "[N/A]") else cell for cell in cells)
        rows.append(dict(zip(columns, known, strict=True)))
    return rows


def number(cell: str | None) -> float | None:
    """`98304 MiB` in bytes, `1650 MHz` in MHz, `600 W` in watts; None where there is none or the unit is unknown."""
    found = _NUMBER.match(cell or "")
    if found is None or found[2].upper() not in _SCALE:
        return None
    return float(found[1]) * _SCALE[found[2].upper()]


def hl_smi(columns: Sequence[str] = COLUMNS) -> list[dict[str, str | None]]:
    """One row for each accelerator of this machine. An hl-smi that lacks an optional column is asked again without. Raises ToolError."""
    try:
        return parse(_ask(columns), columns)
    except ToolError:
        if set(columns) <= set(_REQUIRED):
            raise
    return parse(_ask(_REQUIRED), _REQUIRED)


def mine(rows: Sequence[Mapping[str, str | None]], environment: Mapping[str, str] = os.environ) -> Mapping[str, str | None]:
    """The row of this process's accelerator: that of HLS_MODULE_ID, else of the first visible module, else the first. {} for no rows."""
    visible = [one for one in environment.get("HABANA_VISIBLE_MODULES", "").split(",") if one and one != "all"]
    wanted = environment.get("HLS_MODULE_ID") or (visible[0] if visible else None)
    return next((row for row in rows if row["module_id"] == wanted), rows[0] if rows else {})


def _ask(columns: Sequence[str]) -> str:
    beside = str(Path(sys.executable).parent)  # a Python environment that is not on PATH may bring its own
    program = shutil.which("hl-smi", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if program is None:
        raise ToolError("hl-smi is not on this machine")
    try:
        done = subprocess.run(
            [program, "-Q", ",".join(columns), "-f", "csv,noheader"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"hl-smi did not answer: {error}") from error
    if done.returncode:
        raise ToolError(f"hl-smi failed: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout


class Hlml:
    """HLML's energy counter of one accelerator. Knows nothing where habana-pyhlml is not installed or does not tell."""

    def __init__(self, index: int) -> None:
        self._device: Any = None
        try:
            import pyhlml

            pyhlml.hlmlInit()
            self._device, self._library = pyhlml.hlmlDeviceGetHandleByIndex(index), pyhlml
        except Exception:  # not installed, or no driver: the library has exceptions of its own for each
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
    """Of the distributions that make the Gaudi software: the PyTorch bridge (its version is the software's), optimum-habana, accelerate."""
    found: dict[str, str | None] = {}
    for name in ("habana-torch-plugin", "optimum-habana", "accelerate"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
