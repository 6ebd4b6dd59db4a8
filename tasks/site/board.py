"""What the index says of one branch of a definition: the last night in a sentence, and what changed in it, first of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date

from markupsafe import Markup

from experiments.regression.definition import METRICS
from tasks.nightly.report import change_of
from tasks.nightly.store import AA_CONTROL, CHANGED, SLOWED_CONTROL
from tasks.report.text_format import plural
from tasks.site.addresses import cell_page
from tasks.site.culprit import culprit_of, reasons
from tasks.site.history import CellHistory, NightFacts, Track
from tasks.site.state import CellState, Kind
from tasks.site.words import Commits

_MOST_MOVED = 40  # rows of what changed
_OLD_DAYS = 2  # after which the last night is said to be old


@dataclass(frozen=True)
class Stand:
    """A cell of a branch, and how it stands."""

    track: Track
    cell: CellHistory
    state: CellState

    @property
    def address(self) -> str:
        return cell_page(self.track, self.cell.cell.cell)


@dataclass(frozen=True)
class Board:
    """`said`: the last judged night in a sentence. `moved`: a row for each metric that changed in it; `more_moved`: how many are cut."""

    title: str
    said: str
    worse: bool
    counts: list[tuple[int, str]] = field(default_factory=list)
    lines: list[Markup | str] = field(default_factory=list)
    moved: list[dict[str, str]] = field(default_factory=list)
    more_moved: int = 0
    remarks: list[str] = field(default_factory=list)


def board_of(track: Track, stands: Sequence[Stand], commits: Commits, today: date) -> Board:
    """`today`: by which a last night is old."""
    gone = [] if track.history.known else [f"There is no definition {track.history.name} any more: it was renamed or removed."]
    if track.last_judged is None:
        return Board(track.title, "No night was judged yet", worse=False, lines=[*_later(track), *gone])
    night = track.history.nights[track.last_judged]
    counts = Counter(stand.state.kind for stand in stands)
    moved = _moved(stands, commits)
    return Board(
        title=track.title,
        said=_said(counts, sum(count for kind, count in counts.items() if kind is not Kind.GONE), night),
        worse=bool(counts[Kind.WORSE]),
        counts=[(counts[kind], kind.title) for kind in Kind if counts[kind]],
        lines=[*_about(night, commits), *_later(track), *_old(track, today), *gone],
        moved=moved[:_MOST_MOVED],
        more_moved=max(0, len(moved) - _MOST_MOVED),
        remarks=night.night.remarks,
    )


def _said(counts: Counter[Kind], planned: int, night: NightFacts) -> str:
    worse = counts[Kind.WORSE]
    if worse:
        return f"{worse} of {plural(planned, 'cell')} {'is' if worse == 1 else 'are'} worse on {night.date}"
    if counts[Kind.RECORDED] == planned:
        return _recorded(planned, night)
    return f"None of {plural(planned, 'cell')} is worse on {night.date}"


def _recorded(planned: int, night: NightFacts) -> str:
    """Of a night on which no cell could be judged. Verdicts do not begin by more nights that do not count."""
    if not (lost := night.uncounted):
        return f"{plural(planned, 'cell')} recorded on {night.date}: verdicts begin once there are nights to compare with"
    which = plural(planned, "cell") if lost == planned else f"{lost} of {plural(planned, 'cell')}"
    return f"Not counted on {night.date}: {which}, since other work disturbed every trial"


def _about(night: NightFacts, commits: Commits) -> list[Markup | str]:
    """The night's commit, what its controls say, and nodes that moved."""
    lines: list[Markup | str] = [Markup("Commit {}").format(commits.of(night.code))]
    if text := controls(night):
        lines[0] += Markup("; {}").format(text)
    return [*lines, *nodes(night)]


def controls(night: NightFacts) -> str:
    """`A/A control same, slowed control slower`; nothing where neither was judged."""
    names = {AA_CONTROL: "A/A control", SLOWED_CONTROL: "slowed control"}
    return ", ".join(f"{title} {night.night.probes[role]}" for role, title in names.items() if role in night.night.probes)


def nodes(night: NightFacts) -> list[str]:
    """A sentence for each node that its canary found slower or faster."""
    moved = [node for node in night.night.nodes if node.verdict in CHANGED and node.ratio is not None]
    return [f"Node {node.host} ({node.pool}) is {abs((node.ratio or 1) - 1):.1%} {node.verdict}".replace("%", " %") for node in moved]


def _later(track: Track) -> list[str]:
    """Nights after the last judged one."""
    judged = -1 if track.last_judged is None else track.last_judged
    later = [track.history.nights[index] for index in track.nights if index > judged]
    return [f"Night {night.date} {without_verdicts(night)}." for night in later[-3:]]


def without_verdicts(night: NightFacts) -> str:
    """Of a night that has none."""
    return "ended without verdicts" if night.closed else "is not judged yet: it runs, or was interrupted"


def _old(track: Track, today: date) -> list[str]:
    days = (today - date.fromisoformat(track.facts[-1].date)).days
    return [f"The last night is {plural(days, 'day')} old."] if days > _OLD_DAYS else []


def _moved(stands: Sequence[Stand], commits: Commits) -> list[dict[str, str]]:
    """What changed on the last night: what got worse before what got better, of each what is newest first."""
    rows = []
    for stand in stands:
        for item in stand.state.moved:
            culprit = culprit_of(stand.track, stand.cell, item)
            rows.append(
                {
                    "address": stand.address,
                    "name": stand.cell.cell.name,
                    "what": f"{METRICS[item.metric].label} {item.word}",
                    "tone": str(item.verdict),
                    "change": change_of(item),
                    "since": item.alarm_since or "",
                    "commits": culprit.shown(commits),
                    "why": "; ".join(reasons(item, culprit)),
                }
            )
    newest = sorted(rows, key=lambda row: row["since"], reverse=True)
    return sorted(newest, key=lambda row: row["tone"] != "slower")
