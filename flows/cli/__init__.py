"""The command line `sweep`: commands.py and nightly.py hold its commands, the other files what these show and start."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Entry point of `sweep` and of `python -m flows.cli`."""
    gc.set_threshold(50_000)  # instead of 700: thousands of trials have very many objects and few cycles, and imports make no garbage
    try:
        from flows.cli.commands import main as run
    except KeyboardInterrupt:  # before there is anybody who could say more
        sys.exit(130)
    run()
