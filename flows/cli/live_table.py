"""The live table of `sweep run`: trials, their state, time, steps, samples/s, loss, the ratio so far, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from experiments.metrics import metric_of
from experiments.spec.schema import Suite
from experiments.trial import Outcome
from flows.cli.ratios import Ratios
from flows.runtime.progress import IN_USE_BY, SEARCHING, SweepProgress, TrialProgress
from tasks.report.text_format import clock, number, plural, quantity

_COLOUR = {Outcome.OK: "green", Outcome.DOES_NOT_FIT: "yellow", Outcome.UNSUPPORTED: "yellow", Outcome.CANCELLED: "magenta"}
_PLAIN_S = 2.0
_RATE = metric_of("throughput")
_BAR = 8  # characters
# After a state, before its reason or what is known so far, which stands below the table: its column would take the others' room
_WHY = ": "


@contextmanager
def show(progress: SweepProgress, console: Console, suite: Suite | None = None) -> Iterator[None]:
    """Draw the progress until the block ends: in place on a terminal, elsewhere as one line for each trial's end and each size that a
    search for the largest batch has tried, and one for all trials that had ended before.

    `suite`: whose baseline the cells are compared with while they run; None for what is not compared within the sweep, such as a night.
    """
    stop = threading.Event()
    if console.is_terminal:
        ratios = Ratios(suite)
        with Live(get_renderable=lambda: render(progress, console.height, ratios), console=console, refresh_per_second=4, transient=True):
            yield
        return
    thread = threading.Thread(target=_lines, args=(progress, console, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def render(progress: SweepProgress, height: int, ratios: Ratios | None = None) -> Group:
    """The table, cut to the rows around the running trials where the terminal is short."""
    with progress.lock:
        rows, problems = list(progress.rows.values()), progress.problems()
    compared = ratios.of(rows) if ratios else {}
    reasons = [f"{row.trial.name}: {row.state}" for row in rows if row.ended is None and _WHY in row.state]
    room = max(5, height - 6 - len(problems) - 2 * len(reasons))
    first = next((i for i, row in enumerate(rows) if row.ended is None), len(rows))
    start = max(0, min(first - room // 2, len(rows) - room))
    down = [Text(f"{name}: {problem}", style="red") for name, problem in problems.items()]
    why = [Text(text, style="yellow") for text in reasons]
    return Group(_table(rows[start : start + room], compared), *why, *down, Text(_footer(progress, rows), style="bold"))


def _table(rows: Sequence[TrialProgress], compared: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = [("trial", "left"), ("state", "left"), ("time", "right"), ("steps", "left"), (_RATE.unit, "right"), ("loss", "right")]
    for heading, justify in [*headings, *([("ratio so far", "left")] if compared else [])]:
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        ratio = [Text(compared.get(row.trial.key, ""), style="dim")] if compared else []  # nothing is decided before the end
        table.add_row(*_cells(row), *ratio)
    return table


def _footer(progress: SweepProgress, rows: Sequence[TrialProgress]) -> str:
    """How far it is: `27 of 30 trials so far (at most 40), 4:10 elapsed, about 0:40 left in this round. round 3 of up to 4`."""
    finished = sum(row.ended is not None for row in rows)
    total = plural(len(rows), "trial")
    if progress.grows:
        total += " so far" + (f" (at most {progress.most})" if progress.most else "")
    parts = [f"{finished} of {total}", f"{clock(time.monotonic() - progress.began)} elapsed"]
    left_s = progress.seconds_left()
    if left_s is not None and finished < len(rows):
        parts.append(f"about {clock(left_s)} left{' in this round' if progress.grows else ''}")
    return f"{', '.join(parts)}. {progress.note}".strip()


def _cells(row: TrialProgress) -> tuple[str | Text, ...]:
    state = Text(
        str(row.outcome) if row.outcome else row.state.partition(_WHY)[0], style=_COLOUR.get(row.outcome, "red") if row.outcome else ""
    )
    if row.emulated:
        state.append(" (emulated)", style="dim")
    if row.attempt > 1:
        state.append(f" (attempt {row.attempt})", style="dim")
    return (
        row.trial.name,
        state,
        clock(row.elapsed_s) if row.elapsed_s is not None else "",
        _steps(row),
        number(row.samples_per_s) if row.samples_per_s else "",
        f"{row.loss:.4f}" if row.loss is not None else "",
    )


def _steps(row: TrialProgress) -> Text:
    """A bar while it runs, and the steps: `━━━━──── 230/440`; of one that is to last some seconds `230/200+`."""
    if not row.step:
        return Text()
    text = Text()
    if row.ended is None:
        done = int(_BAR * row.share)
        text.append("━" * done, style="cyan").append("─" * (_BAR - done), style="dim").append(" ")
    return text.append(f"{row.step}/{row.steps}{'+' if row.trial.least_s else ''}")


def _lines(progress: SweepProgress, console: Console, stop: threading.Event) -> None:
    seen: set[str] = set()
    searches: dict[str, str] = {}
    last_problems: dict[str, str] = {}
    while True:
        last = stop.is_set()
        with progress.lock:
            rows, problems = list(progress.rows.values()), progress.problems()
        for name in last_problems.keys() | problems.keys():
            if last_problems.get(name) != problems.get(name):
                over = "is free" if last_problems.get(name, "").startswith(IN_USE_BY) else "answers again"
                text = f"{time.strftime('%H:%M:%S')} {name}: {problems.get(name, over)}"
                console.print(text, highlight=False, markup=False, soft_wrap=True)
        last_problems = problems
        before = {row.trial.key for row in rows if row.earlier} - seen
        if before:  # whoever ran them was told of each; that they have no lines of their own keeps this run's apart
            seen |= before
            console.print(f"{len(before)} of {plural(len(rows), 'trial')} ended earlier", highlight=False, soft_wrap=True)
        for row in rows:
            if row.ended is None and row.state.startswith(SEARCHING) and searches.get(row.trial.key) != row.state:
                searches[row.trial.key] = row.state  # it may take a quarter of an hour, without a step that would show
                console.print(f"{time.strftime('%H:%M:%S')} {row.trial.name}: {row.state}", highlight=False, markup=False, soft_wrap=True)
        for place, row in enumerate(rows, 1):
            if row.result is not None and row.trial.key not in seen:
                seen.add(row.trial.key)
                total = f"{len(rows)}{'+' if progress.grows else ''}"
                console.print(f"{place}/{total} ".join(_end_of(row)), highlight=False, markup=False, soft_wrap=True)
        if last:
            return
        stop.wait(_PLAIN_S)


def _end_of(row: TrialProgress) -> tuple[str, str]:
    """(when a trial ended, how). One that ended before this flow found it has the time at which it did, and its day if that was another."""
    assert row.result is not None
    at = time.localtime(row.result.finished_at)
    today = at[:3] == time.localtime()[:3]
    rate = f", {quantity(row.samples_per_s, _RATE)}{' (emulated)' if row.emulated else ''}" if row.samples_per_s else ""
    remark = f" ({row.result.remark})" if row.result.remark else ""
    return time.strftime("%H:%M:%S " if today else "%Y-%m-%d %H:%M:%S ", at), f"{row.trial.name}: {row.outcome}{rate}{remark}"
