"""Runs every benchmark of a folder and prints a table of the JSON lines they print: one object with `name` and figures a line."""

import json
import subprocess
import sys
from pathlib import Path


def main(folder: Path) -> int:
    """Exit status 0 if every benchmark did; its standard error is shown as it comes."""
    failed = []
    for script in sorted(folder.glob("bench_*.py")):
        done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=False)
        print(f"\n{script.name}")
        for line in done.stdout.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            print("  " + (table_row(row) if isinstance(row, dict) else line))
        if done.returncode != 0:
            failed.append(script.name)
            print(f"  failed with exit status {done.returncode}")
    return 1 if failed else 0


def table_row(row: dict[str, object]) -> str:
    """One line: the name, then each figure with its own name."""
    name = str(row.pop("name", row.pop("benchmark", "")))
    return f"{name:34} " + "   ".join(f"{key} {shown}" for key, value in row.items() if (shown := figure(value)))


def figure(value: object) -> str:
    """A value in a few characters; an object in brackets, a list (raw values) not at all."""
    if isinstance(value, dict):
        return "(" + ", ".join(f"{key} {shown}" for key, item in value.items() if (shown := figure(item))) + ")"
    if isinstance(value, list):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
