"""The comment of an A/B sweep for a pull request: to a file, or to standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.sweep.store import Plan, SweepStore

STDOUT = "-"


def check_comment_file(name: str) -> None:
    """Raise ConfigError where the comment could not be written once the sweep is over."""
    from flows.cli.output import check_file

    if name != STDOUT:
        check_file("--markdown", Path(name))


def check_comment(name: str, plan: Plan) -> None:
    """As `check_comment_file`. Raises ConfigError also for a sweep that is no A/B sweep."""
    from experiments.config.errors import ConfigError

    if plan.ab is None:
        raise ConfigError.one("--markdown", None, plan.sweep_id, "is no A/B sweep", "give the id of a sweep of `sweep ab`")
    check_comment_file(name)


def write_comment(name: str, store: SweepStore) -> None:
    """Write it. Raises ResultsError, OSError."""
    from tasks.report.ab_summary import pull_request_comment

    write_text(name, pull_request_comment(store.dir))


def write_text(name: str, text: str) -> None:
    """To the file, or to standard output. Raises OSError."""
    from experiments.atomic_file import atomic_write

    if name == STDOUT:
        sys.stdout.write(text)
    else:
        atomic_write(Path(name), text)
