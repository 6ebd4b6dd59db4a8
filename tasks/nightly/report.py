"""What a night says: the table of verdicts, how well the night judges, each cell's history; as Markdown, as a page and as a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from experiments.atomic_file import atomic_write
from experiments.regression.decision import rate_interval
from experiments.regression.definition import METRICS, NightFile
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.figures import course, draw_course
from tasks.nightly.history import History
from tasks.nightly.store import Judgement, Night, NightStore, verdicts_of
from tasks.report.comparison_table import TextTable
from tasks.report.figures.draw import inline_svg
from tasks.report.html import render_page
from tasks.report.markdown import md, table_markdown
from tasks.report.text_format import listed, percent, plural, quantity

_FIRST = {Verdict.SLOWER: 0, Verdict.FASTER: 1, Verdict.UNDECIDED: 2, Verdict.SAME: 3}


@dataclass(frozen=True)
class Rates:
    """How the verdicts have done so far, over all nights: of A/A pairs and of slow-downs that were made on purpose."""

    same: int
    false_alarms: int
    aa: int
    found: int
    injected: int

    @property
    def sentences(self) -> list[str]:
        if not self.aa:
            return ["Neither the A/A pair nor the injected slow-down could be judged yet: their history is too short."]
        low, high = rate_interval(self.false_alarms, self.aa)
        said = f"False alarms: {self.false_alarms} of {plural(self.aa, 'A/A pair')} so far ({percent(low)} to {percent(high)}, 95 %)"
        lines = [f"{said}; {self.same} were called the same, the rest undecided."]
        if self.injected:
            low, high = rate_interval(self.found, self.injected)
            lines.append(f"Injected slow-downs found: {self.found} of {self.injected} ({percent(low)} to {percent(high)}, 95 %).")
        return lines


def rates(nights: Sequence[Night]) -> Rates:
    """Over the nights on which a probe could be judged."""
    twins = [item for night in nights for item in night.judgements if _is_first(night, item, "twin") and item.ratio is not None]
    slowed = [item for night in nights for item in night.judgements if _is_first(night, item, "injected") and item.ratio is not None]
    alarms = sum(item.verdict in (Verdict.SLOWER, Verdict.FASTER) for item in twins)
    same = sum(item.verdict is Verdict.SAME for item in twins)
    return Rates(same, alarms, len(twins), sum(item.verdict is Verdict.SLOWER for item in slowed), len(slowed))


def _is_first(night: Night, item: Judgement, role: str) -> bool:
    """Whether it is the metric that decides of the cell with that role."""
    return item.role == role and any(cell.role == role and cell.metrics[0] == item.metric for cell in night.cells)


def headline(night: Night) -> str:
    """One line: how many cells are slower, faster, undecided, the same."""
    worse = night.worse()
    words = Counter(item.word for item in night.judgements if item.role == "history")
    parts = [f"{count} {word}" for word, count in words.items() if word not in ("same", "undecided")]
    parts += [f"{words[word]} {word}" for word in ("undecided", "same") if words[word]]
    said = ", ".join(parts) or "nothing was judged"
    missed = f"; {plural(len(night.missed), 'cell')} missed" if night.missed else ""
    return f"{'REGRESSION: ' if worse else ''}{night.name} {night.date}: {said}{missed}"


def verdict_table(night: Night) -> TextTable:
    """Changes first, then what is undecided; a cell that is the same in everything is one line."""
    rows = []
    items = [item for item in night.judgements if item.role == "history"]
    first = {cell.cell: cell.metrics[0] for cell in night.cells}
    for item in sorted(items, key=lambda item: _FIRST[item.verdict]):
        if item.verdict is Verdict.SAME and item.metric != first.get(item.cell):
            continue  # counted below the table
        value = quantity(item.value, METRICS[item.metric]) if item.value else "–"
        notes = "; ".join(part for part in (item.why, *item.causes) if part)
        rows.append(
            [item.name, item.metric.replace("_", " "), item.word, change_of(item), value, item.where or "–", _detects(item), notes or "–"]
        )
    return TextTable(["cell", "metric", "verdict", "change, 95 % interval", "tonight", "where", "finds from", "what else"], rows)


def change_of(item: Judgement) -> str:
    """+5.3 % (+3.9 to +6.8), in the metric's own direction; a dash where nothing is known."""
    if item.ratio is None or item.low is None or item.high is None:
        return "–"
    power = 1 if METRICS[item.metric].higher_is_better else -1
    middle, low, high = (100 * (value**power - 1) for value in (item.ratio, item.low, item.high))
    return f"{middle:+.1f} % ({min(low, high):+.1f} to {max(low, high):+.1f})"


def _detects(item: Judgement) -> str:
    return percent(item.detectable) if item.detectable is not None else "–"


def node_table(night: Night) -> TextTable:
    rows = []
    for node in night.nodes:
        change = "–"
        if node.ratio is not None and node.low is not None and node.high is not None:
            middle, low, high = (100 * (value - 1) for value in (node.ratio, node.low, node.high))
            change = f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"
        rows.append([node.host, node.pool, str(node.verdict), change, node.note or "–"])
    return TextTable(["node", "pool", "verdict", "canary's change, 95 % interval", "note"], rows)


def remarks(night: Night, nights: Sequence[Night], changes: Sequence[Change]) -> list[str]:
    """Everything beside the table that a reader must know."""
    lines = list(night.remarks)
    by_why: dict[str, list[str]] = {}
    for entry in night.missed:
        by_why.setdefault(entry.why, []).append(entry.name)
    lines += [f"Missed ({why}): {listed(names, 8)}." for why, names in by_why.items()]
    lines += [f"Dropped: {entry.name} ({entry.why})." for entry in night.dropped]
    lines += [
        f"{_name_of(night, change.cell)}: {change.metric} since {change.since} was accepted as the new baseline ({by_whom(change)})."
        for change in changes
        if change.accepted_on == night.date
    ]
    lines += [
        f"{item.name}: {item.metric} has been {item.word} since {item.alarm_since}. `sweep accept` makes it the new baseline, "
        "`sweep bisect` finds the commit."
        for item in night.worse()
        if item.alarm_since and item.alarm_since < night.date
    ]
    for role, want in (("twin", Verdict.SAME), ("injected", Verdict.SLOWER)):
        for item in night.judgements:
            if _is_first(night, item, role) and item.ratio is not None and item.verdict is not want:
                what = "the A/A twin" if role == "twin" else "the injected slow-down"
                lines.append(f"Read with care: {what} was called {item.word}, not {want} ({change_of(item)}).")
    return [*lines, *rates(nights).sentences]


def by_whom(change: Change) -> str:
    """`by itself: held for 5 nights`, `by ann: the new tokenizer is worth it`."""
    who = "itself" if change.by == "nights" else change.by
    return f"by {who}{f': {change.note}' if change.note else ''}"


def _name_of(night: Night, cell: str) -> str:
    return next((found.name for found in night.cells if found.cell == cell), cell)


def markdown(night: Night, nights: Sequence[Night], changes: Sequence[Change], figures: Sequence[tuple[str, Path]] = ()) -> str:
    """The night as Markdown: Prefect's artifact, MLflow's page."""
    table = verdict_table(night)
    same = sum(item.role == "history" and item.verdict is Verdict.SAME for item in night.judgements)
    blocks = [f"# {md(headline(night))}", table_markdown(table), f"{plural(same, 'metric')} of all cells the same."]
    if night.nodes:
        blocks += ["## Nodes", table_markdown(node_table(night))]
    blocks += ["## How far to trust this", "\n".join(f"- {md(line)}" for line in remarks(night, nights, changes))]
    if figures:
        blocks += ["## History", *(f"![{md(title)}](figures/{path.name})" for title, path in figures)]
    blocks.append(f"Sweep {md(night.sweep_id)}.")
    return "\n\n".join(blocks) + "\n"


def message(night: Night, nights: Sequence[Night], changes: Sequence[Change], links: Sequence[tuple[str, str]]) -> str:
    """The night's one message: what changed, what is undecided, how far to trust it, links. Plain text that reads well everywhere."""
    lines = [headline(night), ""]
    for item in sorted((item for item in night.judgements if item.role == "history"), key=lambda item: _FIRST[item.verdict]):
        if item.verdict is not Verdict.SAME and item.ratio is not None:
            where = f", {item.where}" if item.where else ""
            since = f", since {item.alarm_since}" if item.alarm_since and item.alarm_since != night.date else ""
            lines.append(f"{item.word.upper()}: {item.name}, {item.metric} {change_of(item)}{where}{since}")
            lines += [f"  suspected: {cause}" for cause in item.causes]
    lines += [f"node {node.host} ({node.pool}): {node.verdict}" for node in night.nodes if node.verdict in (Verdict.SLOWER, Verdict.FASTER)]
    lines += ["", *remarks(night, nights, changes), ""]
    lines += [f"{name}: {address}" for name, address in links]
    return "\n".join(lines).strip() + "\n"


def write_night(
    store: NightStore, definition: NightFile, night: Night, past: History, now: History, changes: Sequence[Change]
) -> tuple[Path, Path]:
    """report.md and report.html of a night, with the history of every cell, into its folder. Returns both paths."""
    folder = store.folder(night.date)
    nights = [other for other in store.all() if other.date < night.date] + [night]
    figures = _figures(night, nights, past, now, changes, folder / "figures")
    text, page = folder / "report.md", folder / "report.html"
    atomic_write(text, markdown(night, nights, changes, figures))
    drawn = [(title, Markup(inline_svg(path, title, f"f{index}"))) for index, (title, path) in enumerate(figures)]  # noqa: S704
    atomic_write(
        page,
        render_page(
            "night.html",
            night=night,
            definition=definition,
            headline=headline(night),
            table=verdict_table(night),
            nodes=node_table(night),
            remarks=remarks(night, nights, changes),
            drawn=drawn,
        ),
    )
    return text, page


def _figures(
    night: Night, nights: Sequence[Night], past: History, now: History, changes: Sequence[Change], folder: Path
) -> list[tuple[str, Path]]:
    """Each cell's first metric, and every other one that changed."""
    made = []
    canaries = {cell.pool: cell.cell for cell in night.cells if cell.role == "canary"}
    changed = {
        (item.cell, item.metric) for item in night.judgements if item.role == "history" and item.verdict in (Verdict.SLOWER, Verdict.FASTER)
    }
    for cell in night.cells:
        if cell.role not in ("history", "canary"):
            continue
        metrics = [metric for metric in cell.metrics if metric == cell.metrics[0] or (cell.cell, metric) in changed]
        for metric in metrics:
            trials = {**past.of(cell.cell, cell.role), **now.of(cell.cell, cell.role)}
            canary = canaries.get(cell.pool) if cell.role == "history" and METRICS[metric].depends_on_node else None
            beside = {**past.of(canary, "canary"), **now.of(canary, "canary")} if canary else {}
            mine = next((item for item in night.judgements if (item.cell, item.metric, item.role) == (cell.cell, metric, "history")), None)
            share = mine.share if mine and mine.share is not None else 0.0
            own = [change for change in changes if (change.cell, change.metric) == (cell.cell, metric)]
            found = course(cell.name, metric, trials, beside, share, verdicts_of(list(nights), cell.cell, metric), own)
            if found.dates:
                made.append(draw_course(found, folder, f"{cell.cell}-{metric}"))
    return made
