"""What a terminal shows while Prefect starts: what is waited for, for how long, and how far the first trial is meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from cluster.journal.journal import JournalFollower
from cluster.trial_layout import JOURNAL
from experiments.config.errors import DamagedFile
from experiments.trial import Trial
from flows.runtime.progress import SEARCHING
from tasks.report.text_format import clock

_HELD = {"hold": "waits for the flow", "max_batch": SEARCHING}  # phases of a trial in other words


class TrialLook:
    """The phase and the step of a trial that runs, by its journal."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self._trial, self._records = trial, JournalFollower(folder / JOURNAL, trial.key)
        self._phase, self._step = "starts", 0

    @property
    def text(self) -> str:
        """`cpu · fp32 · #1: warmup, step 12`."""
        with suppress(DamagedFile, OSError):  # the flow meets it again and says it
            for record in self._records.poll():
                if record["kind"] == "phase":
                    self._phase = str(record.get("name", self._phase))
                elif record["kind"] == "step":
                    self._step = int(record["step"])
        step = f", step {self._step}" if self._step else ""
        return f"{self._trial.name}: {_HELD.get(self._phase, self._phase)}{step}"


@contextmanager
def starting(console: Console, first: TrialLook | None = None) -> Iterator[Callable[[str], None]]:
    """Draw a line until the block ends; nothing where there is no terminal. Gives what sets its words."""
    began, words = time.monotonic(), ["Prefect starts"]

    def say(text: str) -> None:
        words[0] = text

    spinner = Spinner("dots")

    def line() -> Spinner:
        trial = f"; {first.text}" if first else ""
        spinner.update(text=Text(f"{words[0]}, {clock(time.monotonic() - began)}{trial}"))
        return spinner

    if not console.is_terminal:
        yield say
        return
    with Live(get_renderable=line, console=console, refresh_per_second=5, transient=True):
        yield say
