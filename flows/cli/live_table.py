"""The live table of `sweep run`: trials, their state, step, samples/s, loss, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from experiments.metrics import metric_of
from experiments.trial import Outcome
from flows.runtime.progress import SweepProgress, TrialProgress
from tasks.report.text_format import clock, plural

_COLOUR = {Outcome.OK: "green", Outcome.DOES_NOT_FIT: "yellow", Outcome.UNSUPPORTED: "yellow", Outcome.CANCELLED: "magenta"}
_PLAIN_S = 2.0
_RATE = metric_of("throughput").unit


@contextmanager
def show(progress: SweepProgress, console: Console) -> Iterator[None]:
    """Draw the progress until the block ends: in place on a terminal, as one line for each change elsewhere."""
    stop = threading.Event()
    if console.is_terminal:
        with Live(get_renderable=lambda: render(progress, console.height), console=console, refresh_per_second=4, transient=True):
            yield
        return
    thread = threading.Thread(target=_lines, args=(progress, console, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def render(progress: SweepProgress, height: int) -> Group:
    """The table, cut to the rows around the running trials where the terminal is short."""
    with progress.lock:
        rows, problems = list(progress.rows.values()), progress.problems()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (("trial", "left"), ("state", "left"), ("step", "right"), (_RATE, "right"), ("loss", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    room = max(5, height - 6 - len(problems))
    first = next((i for i, row in enumerate(rows) if row.ended is None), len(rows))
    start = max(0, min(first - room // 2, len(rows) - room))
    for row in rows[start : start + room]:
        table.add_row(*_cells(row))
    finished = sum(row.ended is not None for row in rows)
    eta_s = progress.seconds_left()
    footer = f"{finished} of {plural(len(rows), 'trial')}" + (
        f", about {clock(eta_s)} left" if eta_s is not None and finished < len(rows) else ""
    )
    down = [Text(f"{name}: {problem}", style="red") for name, problem in problems.items()]
    return Group(table, *down, Text(f"{footer}. {progress.note}".strip(), style="bold"))


def _cells(row: TrialProgress) -> tuple[str | Text, ...]:
    state = Text(str(row.outcome) if row.outcome else row.state, style=_COLOUR.get(row.outcome, "red") if row.outcome else "")
    if row.emulated:
        state.append(" (emulated)", style="dim")
    if row.attempt > 1:
        state.append(f" (attempt {row.attempt})", style="dim")
    return (
        row.trial.name,
        state,
        f"{row.step}/{row.steps}{'+' if row.open_ended else ''}" if row.step else "",
        f"{row.samples_per_s:.1f}" if row.samples_per_s else "",
        f"{row.loss:.4f}" if row.loss is not None else "",
    )


def _lines(progress: SweepProgress, console: Console, stop: threading.Event) -> None:
    seen: dict[str, str] = {}
    last_problems: dict[str, str] = {}
    while True:
        last = stop.is_set()
        with progress.lock:
            rows, problems = list(progress.rows.values()), progress.problems()
        for name in last_problems.keys() | problems.keys():
            if last_problems.get(name) != problems.get(name):
                text = f"{time.strftime('%H:%M:%S')} {name}: {problems.get(name, 'answers again')}"
                console.print(text, highlight=False, soft_wrap=True)
        last_problems = problems
        for number, row in enumerate(rows, 1):
            if row.outcome is None or seen.get(row.trial.key) == row.outcome:
                continue
            seen[row.trial.key] = row.outcome
            rate = f", {row.samples_per_s:.1f} {_RATE}{' (emulated)' if row.emulated else ''}" if row.samples_per_s else ""
            console.print(
                f"{time.strftime('%H:%M:%S')} {number}/{len(rows)} {row.trial.name}: {row.outcome}{rate}"
                + (f" ({row.reason})" if row.reason else ""),
                highlight=False,
                soft_wrap=True,
            )
        if last:
            return
        stop.wait(_PLAIN_S)
