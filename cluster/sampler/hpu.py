"""The trial's Gaudi accelerators, from hl-smi's CSV query.

hl-smi is a program and takes a while, so it runs beside the samples, about once a second. A sample holds what its last run gave.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.devices import _hpu_tools
from experiments.device_state import POWER, THERMAL

COLUMNS = (
    *("index", "module_id", "uuid", "driver_version", "clocks.current.soc", "power.draw", "temperature.aip"),
    *("stats.violation.power", "stats.violation.thermal"),
)
_REQUIRED = ("index", "module_id", "uuid", "driver_version", "clocks.current.soc", "power.draw")  # of an older hl-smi
_VIOLATIONS = {"stats.violation.power": POWER, "stats.violation.thermal": THERMAL}
EVERY_S = 1.0  # between two starts of hl-smi
STALE_S = 5.0  # a run that takes longer is given up


class HpuSource:
    """Reads the accelerators that this process's environment shows, the first `count` of them."""

    name = "devices"

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ToolError if hl-smi is missing, or fails."""
        self._count, self._clock = count, clock
        self._columns: Sequence[str] = COLUMNS
        try:
            rows = _hpu_tools.parse(_hpu_tools.ask(COLUMNS), COLUMNS)
        except _hpu_tools.ToolError:
            self._columns = _REQUIRED
            rows = _hpu_tools.parse(_hpu_tools.ask(_REQUIRED), _REQUIRED)
        self._previous: list[Mapping[str, str | None]] = []
        self._rows = _hpu_tools.own_rows(rows, count)
        self.emulated = any("emulated" in (row["driver_version"] or "") for row in rows)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe could fill up while nobody reads it
        self._started_at = clock()

    def missing(self) -> dict[str, str]:
        """What this hl-smi does not tell."""
        return {f"devices.{name}": "hl-smi has no such column" for name in COLUMNS if name not in self._columns}

    def read(self) -> list[dict[str, Any]]:
        """The field `devices` of a state record. Raises ToolError for output that cannot be parsed, and for a run that takes too long."""
        self._advance()
        return devices(self._rows, self._previous)

    def _advance(self) -> None:
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                if self._clock() - self._started_at > STALE_S:
                    self._end()
                    raise _hpu_tools.ToolError(f"hl-smi did not answer within {STALE_S:.0f} s")
                return
            self._process = None
            self._output.seek(0)
            text = self._output.read().decode(errors="replace")
            if status:
                raise _hpu_tools.ToolError(f"hl-smi failed: {text.strip()[:200]}")
            self._previous, self._rows = self._rows, _hpu_tools.own_rows(_hpu_tools.parse(text, self._columns), self._count)
        if self._clock() - self._started_at >= EVERY_S:
            self._started_at = self._clock()
            self._output.seek(0)
            self._output.truncate()
            command = _hpu_tools.command(self._columns)
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End a run that has not finished."""
        self._end()
        self._output.close()


def devices(rows: Sequence[Mapping[str, str | None]], previous: Sequence[Mapping[str, str | None]]) -> list[dict[str, Any]]:
    """Readings from hl-smi's rows. Capped: its count of violations is above that of `previous`. Other processes are not in its query."""
    before = {row["uuid"]: row for row in previous}
    number = _hpu_tools.number
    readings = []
    for row in rows:
        grown = [(word, _count(row.get(column)), _count(before.get(row["uuid"], {}).get(column))) for column, word in _VIOLATIONS.items()]
        known = [(word, now > then) for word, now, then in grown if now is not None and then is not None]
        readings.append(
            {
                "index": int(row["index"] or 0),
                "uuid": row["uuid"],
                "sm_mhz": number(row.get("clocks.current.soc")),
                "memory_mhz": None,
                "power_w": number(row.get("power.draw")),
                "temperature_c": number(row.get("temperature.aip")),
                "capped_by": [word for word, more in known if more] if known else None,
                "others": None,
            }
        )
    return readings


def _count(cell: str | None) -> float | None:
    """A counter, with or without a unit: only its growth counts."""
    try:
        return float((cell or "").split()[0])
    except (ValueError, IndexError):
        return None
