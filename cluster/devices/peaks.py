"""Peak FLOP/s by device and precision, each with its source. Not in the table: unknown, and no MFU is computed.

All are dense: the makers often print what 2:4 structured sparsity would give, twice as much, and these workloads have none. fp32 is
without tensor cores, as torch computes it unless told otherwise.
"""

from __future__ import annotations

import csv
from fnmatch import fnmatchcase
from pathlib import Path

TABLE = Path(__file__).with_name("peaks.csv")


def peak_flops(device_name: str | None, precision: str) -> tuple[float, str] | tuple[None, None]:
    """(peak dense FLOP/s of one device, where the number is from), or (None, None). The name's case does not matter.

    A slice of a device (MIG) has less than the whole and is not in the table.
    """
    if device_name is not None and " MIG " not in device_name.upper():
        with open(TABLE, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["precision"] == precision and fnmatchcase(device_name.upper(), row["device"].upper()):
                    return float(row["peak_tflops"]) * 1e12, f"{row['source']}, {row['url']}"
    return None, None
