"""A night's report: its verdicts, how reliable they are, and each cell's history; as Markdown, as an HTML page and as a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from experiments.atomic_file import atomic_write
from experiments.regression.definition import METRICS, NightFile
from experiments.regression.history_segments import Change
from experiments.stats.coverage import rate_interval
from experiments.stats.verdict import Verdict
from tasks.nightly.cell_counts import cell_counts
from tasks.nightly.figures import course, draw_course
from tasks.nightly.history import History
from tasks.nightly.pair_text import by_pairs, change, commit_of, pair_sentence
from tasks.nightly.recording import judged, nothing_to_do, recorded, records_only
from tasks.nightly.store import AA_CONTROL, CHANGED, SLOWED_CONTROL, CellVerdict, Night, NightStore, NodeState, Role, verdicts_of
from tasks.report.comparison_table import TextTable
from tasks.report.figures.inline_svg import inline_svg
from tasks.report.html import render_page
from tasks.report.markdown import md, table_markdown
from tasks.report.text_format import listed, percent, plural, quantity, signed

_ORDER = {Verdict.SLOWER: 0, Verdict.FASTER: 1, Verdict.UNDECIDED: 2, Verdict.SAME: 3}


@dataclass(frozen=True)
class ControlCounts:
    """How the verdicts on the controls came out, over many nights: of A/A controls, and of slow-downs injected on purpose."""

    same: int
    false_alarms: int
    aa: int
    slow_downs_found: int
    injected: int

    @property
    def sentences(self) -> list[str]:
        """The rates with exact 95 % intervals."""
        if not self.aa:
            return ["Neither the A/A pair nor the injected slow-down could be judged yet: their history is too short."]
        low, high = rate_interval(self.false_alarms, self.aa)
        alarms = f"False alarms: {self.false_alarms} of {plural(self.aa, 'A/A pair')} so far ({percent(low)} to {percent(high)}, 95 %)"
        lines = [f"{alarms}; {self.same} were called the same, the rest undecided."]
        if self.injected:
            low, high = rate_interval(self.slow_downs_found, self.injected)
            rate = f"{self.slow_downs_found} of {self.injected} ({percent(low)} to {percent(high)}, 95 %)"
            lines.append(f"Injected slow-downs found: {rate}.")
        return lines


def control_counts(nights: Sequence[Night]) -> ControlCounts:
    """Over the nights on which a control had a baseline."""
    unchanged = [item.verdict for night in nights for item in _control_verdicts(night, AA_CONTROL)]
    slowed = [item.verdict for night in nights for item in _control_verdicts(night, SLOWED_CONTROL)]
    alarms = sum(verdict in CHANGED for verdict in unchanged)
    return ControlCounts(unchanged.count(Verdict.SAME), alarms, len(unchanged), slowed.count(Verdict.SLOWER), len(slowed))


def _control_verdicts(night: Night, role: Role) -> list[CellVerdict]:
    """The verdict on a control's first metric; none without a baseline."""
    first = {cell.metrics[0] for cell in night.cells if cell.role == role}
    return [item for item in night.judgements if item.role == role and item.metric in first and item.ratio is not None]


def headline(night: Night) -> str:
    """One line: how many cells are worse, better and undecided, in which metrics, and how many the same; of first nights how many are
    recorded, and when verdicts begin."""
    worse = night.worse()
    parts = [count.text for count in cell_counts(night)]
    missed = f"; {plural(len(night.missed), 'cell')} missed" if night.missed else ""
    commits = list(dict.fromkeys(found.commit[:12] for found in night.bisections if found.commit))
    missed = (f"; first bad commit {listed(commits, 2)}" if commits else "") + missed
    first = recorded(night)
    said = "; ".join([", ".join(parts), *(line[:1].lower() + line[1:] for line in first)] if parts else first) or "nothing was judged"
    return (
        f"{'REGRESSION: ' if worse else ''}{night.name} {night.date}: {said}{missed or ('. Nothing to do' if nothing_to_do(night) else '')}"
    )


def verdict_table(night: Night) -> TextTable:
    """Changes first, then what is undecided; a cell whose metrics are all the same is one line, and what cannot be judged yet none."""
    rows = []
    first = {cell.cell: cell.metrics[0] for cell in night.cells}
    for item in sorted(judged(night), key=lambda item: _ORDER[item.verdict]):
        if item.verdict is Verdict.SAME and item.metric != first.get(item.cell) and item.pairs is None:
            continue  # counted below the table
        value = quantity(item.value, METRICS[item.metric]) if item.value else "–"
        found = commit_of(night, item)
        parts = (pair_sentence(item), item.why, found.sentence if found else None, *item.causes)
        notes = "; ".join(part.removesuffix(".") for part in parts if part)
        rows.append(
            [item.name, item.metric.replace("_", " "), item.word, change_of(item), value, item.where or "–", _detects(item), notes or "–"]
        )
    return TextTable(["cell", "metric", "verdict", "change, 95 % interval", "tonight", "where", "finds from", "what else"], rows)


def change_of(item: CellVerdict) -> str:
    """+5.3 % (+3.9 to +6.8), in the metric's own direction, by pairs where they decided; a dash where nothing is known."""
    told = item.pairs if item.pairs and by_pairs(item) else item
    if told.ratio is None or told.low is None or told.high is None:
        return "–"
    middle, low, high = (100 * change(value, item.metric) for value in (told.ratio, told.low, told.high))
    return signed(middle, min(low, high), max(low, high))


def _detects(item: CellVerdict | NodeState) -> str:
    return percent(item.detectable) if item.detectable is not None else "–"


def node_table(night: Night) -> TextTable:
    """A line for each node on which a canary ran."""
    rows = []
    for node in night.nodes:
        change = "–"
        if node.ratio is not None and node.low is not None and node.high is not None:
            change = signed(*(100 * (value - 1) for value in (node.ratio, node.low, node.high)))
        rows.append([node.host, node.pool, str(node.verdict), change, _detects(node), node.note or "–"])
    return TextTable(["node", "pool", "verdict", "canary's change, 95 % interval", "finds from", "note"], rows)


def remarks(night: Night, nights: Sequence[Night], changes: Sequence[Change]) -> list[str]:
    """What a reader must know besides the table, a sentence each. `nights`: all nights so far, for the rates of the controls."""
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
    for role, control, expected in ((AA_CONTROL, "A/A control", Verdict.SAME), (SLOWED_CONTROL, "injected slow-down", Verdict.SLOWER)):
        lines += [
            f"Read with care: the {control} was called {item.word}, not {expected} ({change_of(item)})."
            for item in _control_verdicts(night, role)
            if item.verdict is not expected
        ]
    return lines if records_only(night) else [*lines, *control_counts(nights).sentences]


def by_whom(change: Change) -> str:
    """`by itself: held for 5 nights`, `by ann: the new tokenizer is worth it`."""
    who = "itself" if change.by == "nights" else change.by
    return f"by {who}{f': {change.note}' if change.note else ''}"


def _name_of(night: Night, cell: str) -> str:
    return next((known.name for known in night.cells if known.cell == cell), cell)


def markdown(night: Night, nights: Sequence[Night], changes: Sequence[Change], figures: Sequence[tuple[str, Path]] = ()) -> str:
    """The night as Markdown: Prefect's artifact, MLflow's page."""
    table, remarked = verdict_table(night), remarks(night, nights, changes)
    same = sum(item.verdict is Verdict.SAME for item in night.cell_verdicts)
    blocks = [f"# {md(headline(night))}"]
    if not records_only(night):
        blocks += [table_markdown(table), *([f"{plural(same, 'metric')} of all cells the same."] if same else [])]
    if night.nodes:
        blocks += ["## Nodes", table_markdown(node_table(night))]
    if remarked:
        blocks += ["## How far to trust this", "\n".join(f"- {md(line)}" for line in remarked)]
    if figures:
        blocks += ["## History", *(f"![{md(title)}](figures/{path.name})" for title, path in figures)]
    blocks.append(md(what_ran(night)))
    return "\n\n".join(blocks) + "\n"


def what_ran(night: Night) -> str:
    """`Sweep ID, commit 4d3c2b1a0f9e of branch main.`: the commit where the night recorded it."""
    code = night.code
    if code is None or code.commit is None:
        return f"Sweep {night.sweep_id}."
    branch = f" of branch {code.branch}" if code.branch else ""
    return f"Sweep {night.sweep_id}, commit {code.commit[:12]}{branch}{' with uncommitted changes' if code.dirty else ''}."


def message(night: Night, nights: Sequence[Night], changes: Sequence[Change], links: Sequence[tuple[str, str]]) -> str:
    """The night's one message, plain text: what changed, what is undecided, how reliable that is, and `links` as (name, address)."""
    lines = [headline(night), ""]
    for item in sorted(night.cell_verdicts, key=lambda item: _ORDER[item.verdict]):
        if (item.verdict is not Verdict.SAME or item.pairs or item.not_paired) and item.ratio is not None:
            where = f", {item.where}" if item.where else ""
            since = f", since {item.alarm_since}" if item.alarm_since and item.alarm_since != night.date else ""
            lines.append(f"{item.word.upper()}: {item.name}, {item.metric} {change_of(item)}{where}{since}")
            lines += [f"  {sentence}" for sentence in (pair_sentence(item),) if sentence]
            lines += [f"  commit: {found.sentence}" for found in (commit_of(night, item),) if found]
            lines += [f"  suspected: {cause}" for cause in item.causes]
    lines += [f"node {node.host} ({node.pool}): {node.verdict}" for node in night.nodes if node.verdict in CHANGED]
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
    inline_figures = [(title, Markup(inline_svg(path, title, f"f{index}"))) for index, (title, path) in enumerate(figures)]  # noqa: S704
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
            ran=what_ran(night),
            figures=inline_figures,
        ),
    )
    return text, page


def _figures(
    night: Night, nights: Sequence[Night], past: History, now: History, changes: Sequence[Change], folder: Path
) -> list[tuple[str, Path]]:
    """(title, path) of a figure of each cell's first metric, and of every other one that changed."""
    figures = []
    canaries = {cell.pool: cell.cell for cell in night.cells if cell.role == "canary"}
    verdicts = {(item.cell, item.metric): item for item in night.cell_verdicts}
    for cell in night.cells:
        if cell.role not in ("history", "canary"):
            continue
        for metric in cell.metrics:
            verdict = verdicts.get((cell.cell, metric))
            if metric != cell.metrics[0] and not (verdict and verdict.verdict in CHANGED):
                continue
            trials = {**past.of(cell.cell, cell.role), **now.of(cell.cell, cell.role)}
            canary = canaries.get(cell.pool) if cell.role == "history" and METRICS[metric].depends_on_node else None
            beside = {**past.of(canary, "canary"), **now.of(canary, "canary")} if canary else {}
            share = verdict.share if verdict and verdict.share is not None else 0.0
            accepted = [change for change in changes if (change.cell, change.metric) == (cell.cell, metric)]
            nightly = course(cell.name, metric, trials, beside, share, verdicts_of(nights, cell.cell, metric), accepted)
            if nightly.dates:
                figures.append(draw_course(nightly, folder, f"{cell.cell}-{metric}"))
    return figures
