"""`python -m cluster.stack up|down|status`. Exit status 0 on success (for status: if all components run), else 1; 130 if interrupted."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cluster.stack import control
from experiments.config.errors import UserError
from experiments.config.paths import REPOSITORY


def main(arguments: list[str] | None = None) -> int:
    """Carry out one command and return the exit status. With --json, `up` and `down` print their messages to standard error."""
    parser = argparse.ArgumentParser(prog="python -m cluster.stack", description="The long-lived stack on this machine, loopback only.")
    parser.add_argument("command", choices=["up", "down", "status"])
    parser.add_argument(
        "--root",
        type=Path,
        default=REPOSITORY,
        help="repository: holds prefect.yaml and, unless SWEEPBENCH_RUNS is set, runs/",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)

    try:
        if options.command == "down":
            stopped = control.down(options.root, say)
            if options.json:
                print(json.dumps({"stopped": stopped}))
            return 0
        rows = control.up(options.root, say) if options.command == "up" else control.status(options.root)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps(rows, indent=1))
    elif options.command == "status":
        for row in rows:
            print(f"{row['title']:15} {row['state']:13} {row['url'] or '':24} {'pid ' + str(row['pid']) if row['pid'] else ''}".rstrip())
    return 0 if all(row["state"] == "running" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
