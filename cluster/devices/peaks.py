"""Peak FLOP/s by device and precision, each with its source. For a device or a precision outside the table no MFU is computed.

MFU is model FLOP utilisation, the share of the peak that a trial reaches. All peaks are dense: vendors often state twice as much, for 2:4
structured sparsity, which these workloads do not use. fp32 is without tensor cores, torch's default. int8 counts integer operations.
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
    if device_name is not None and " MIG " not in device_name.upper():
        with open(TABLE, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["precision"] == precision and fnmatchcase(device_name.upper(), row["device"].upper()):
                    return float(row["peak_tflops"]) * 1e12, f"{row['source']}, {row['url']}"
    return None, None


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
