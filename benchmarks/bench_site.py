"""Seconds, memory and page sizes of `sweep site`, by cells and nights. `make bench-scale`.

The nights are those of benchmarks/made_up_nights.py, four metrics a cell. `again` finds a site of the same nights, and writes no page of a
cell anew. Prints a JSON line each; exit status 1 where a limit is not met.

    python -m benchmarks.bench_site --cells 500 --nights 365
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

LIMIT_CPU_S, LIMIT_PEAK_MIB, LIMIT_PAGE = 60.0, 1024, 300_000  # of 500 cells x 365 nights, on a free machine
LIMIT_OF = 500 * 365


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=50)
    parser.add_argument("--nights", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SWEEPBENCH_RUNS"] = str(Path(folder) / "runs")
        met = True
        for row in rows(options.cells, options.nights, Path(folder) / "site"):
            met &= say(row, options.cells, options.nights)
        return 0 if met else 1


def rows(cells: int, nights: int, site: Path) -> list[dict[str, Any]]:
    """The first site, the same again, and its pages."""
    from benchmarks.bench_scale import timed
    from benchmarks.made_up_nights import write_nights

    write_nights("made-up", cells, nights)
    first, again = (timed(name, "site", "--out", str(site)) for name in ("site, first", "site, again"))
    sizes = {str(path.relative_to(site)): path.stat().st_size for path in site.rglob("*.html")}
    largest = max(sizes.values())
    pages = {"name": "pages", "pages": len(sizes), "largest": largest, "index": sizes["index.html"], "met": largest < LIMIT_PAGE}
    return [first, again, {**pages, "mib": round(sum(sizes.values()) / 2**20, 1)}]


def say(row: dict[str, Any], cells: int, nights: int) -> bool:
    """Print a row with its limits. Returns whether they are met."""
    if "cpu_s" in row and cells * nights <= LIMIT_OF:
        met = row["cpu_s"] <= LIMIT_CPU_S and row["peak_mib"] <= LIMIT_PEAK_MIB
        row |= {"limit_cpu_s": LIMIT_CPU_S, "limit_peak_mib": LIMIT_PEAK_MIB, "met": met}
    print(json.dumps({"benchmark": "site", "cells": cells, "nights": nights, **row, "load": round(os.getloadavg()[0], 1)}), flush=True)
    return bool(row.get("met", True))


if __name__ == "__main__":
    sys.exit(main())
