"""The command line `sweep`: commands.py and nightly.py hold its commands, the other files what these show and start."""

from __future__ import annotations


def main() -> None:
    """Entry point of `sweep` and of `python -m flows.cli`."""
    from flows.cli.commands import main as run

    run()
