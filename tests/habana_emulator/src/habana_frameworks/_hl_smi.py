"""hl-smi: the summary that optimum-habana reads the driver's version from, and the CSV query."""

import os
import sys

DRIVER = "1.24.1-emulated"
VALUES = {"name": "HL-225", "driver_version": DRIVER, "memory.total": "98304 MiB", "memory.used": "768 MiB", "power.draw": "90 W"}
KNOWN = {"index", "module_id", "uuid", "clocks.current.soc", "clocks.max.soc", "power.max", *VALUES}


def main() -> int:
    """Exit status 1 for a column that hl-smi does not have, as the real one."""
    arguments = sys.argv[1:]
    if "-Q" not in arguments:
        line = "+" + "-" * 77 + "+"
        print(line, f"| {'HL-SMI Version:':36} {'hl-1.24.1-fw-62.0.0.0':38} |", f"| {'Driver Version:':36} {DRIVER:38} |", line, sep="\n")
        return 0
    columns = arguments[arguments.index("-Q") + 1].split(",")
    unknown = [column for column in columns if column not in KNOWN]
    if unknown:
        print(f"invalid query: {unknown[0]}", file=sys.stderr)
        return 1
    if "csv,noheader" not in arguments:
        print(", ".join(columns))
    for index in range(int(os.environ.get("HABANA_EMU_DEVICES", "8"))):
        own = {"index": str(index), "module_id": str(index), "uuid": f"01P0-HL2080A0-15-TEMU00-{index:02}-07-01"}
        clocks = {"clocks.current.soc": "1650 MHz", "clocks.max.soc": "1650 MHz", "power.max": "600 W"}
        print(", ".join({**VALUES, **clocks, **own}[column] for column in columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
