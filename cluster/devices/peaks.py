"""Peak FLOP/s by device and precision, each with its source. For a device or a precision outside the table no MFU is computed.

MFU is model FLOP utilisation, the share of the peak that a trial reaches. All peaks are dense: vendors often state twice as much, for 2:4
structured sparsity, which these workloads do not use. fp32 is without tensor cores, torch's default. int8 counts integer operations.

clock_mhz is the clock that the peak holds at: the peak / (multiprocessors x FLOPs of each in a clock), which the whitepapers' tables give.
Tensor cores have a lower one than the rest of an H100. Empty where it is not known.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

TABLE = Path(__file__).with_name("peaks.csv")


def peak_flops(device_name: str | None, precision: str) -> tuple[float, str] | tuple[None, None]:
    """(peak dense FLOP/s of one device, source of the number), or (None, None) if unknown. Ignores the name's case.

    A MIG slice has less than the whole device and is not in the table.
    """
    row = _row(device_name, precision)
    return (float(row["peak_tflops"]) * 1e12, f"{row['source']}, {row['url']}") if row else (None, None)


def peak_of_work(device_name: str | None, flops: Mapping[str, float]) -> tuple[float, str] | tuple[None, None]:
    """(peak dense FLOP/s of one device for work of several precisions, sources), or (None, None) if a peak is unknown or there is no work.

    `flops`: precision -> FLOPs computed in it. The peak is all FLOPs over the time that each precision's take at its own peak: the
    harmonic mean of the peaks, weighted by FLOPs.
    """
    seconds, sources = [], []
    for precision, count in flops.items():
        peak, source = peak_flops(device_name, precision)
        if peak is None or source is None:
            return None, None
        seconds.append(count / peak)
        sources.append(source)
    total = math.fsum(seconds)
    return (math.fsum(flops.values()) / total, "; ".join(sources)) if total > 0 else (None, None)


def clock_of_peak(device_name: str | None, flops: Mapping[str, float]) -> float | None:
    """The clock (MHz) that `peak_of_work` holds at, or None if one is unknown: at another clock the peak changes in proportion.

    The mean of the precisions' clocks, weighted by the time that each one's FLOPs take at its peak.
    """
    clocks, seconds = [], []
    for precision, count in flops.items():
        row = _row(device_name, precision)
        if row is None or not row["clock_mhz"]:
            return None
        clocks.append(float(row["clock_mhz"]))
        seconds.append(count / float(row["peak_tflops"]))
    total = math.fsum(seconds)
    return math.fsum(clock * spent for clock, spent in zip(clocks, seconds, strict=True)) / total if total > 0 else None


def _row(device_name: str | None, precision: str) -> dict[str, str] | None:
    if device_name is not None and " MIG " not in device_name.upper():
        with open(TABLE, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["precision"] == precision and fnmatchcase(device_name.upper(), row["device"].upper()):
                    return row
    return None
