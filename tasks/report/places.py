"""What a report says of a sweep whose trials are not all of one host, one code and one sitting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import APART, ONE_BESIDE
from tasks.analysis.stretches import PAUSE_S, Stretch, stretches
from tasks.report.text_format import listed, plural

_NAMED = 4  # stretches, and cells


def caution_of_places(cells: Sequence[Cell]) -> list[str]:
    """For each pool whose trials are of several stretches: what these are, and how far cells were compared; then which were not.

    `cells`: those that have a value.
    """
    lines = []
    for pool in dict.fromkeys(cell.trial.pool for cell in cells):
        found = stretches(row for cell in cells if cell.trial.pool == pool for row in cell.measured)
        if len(found) > 1:
            lines.append(_of_pool(pool, found))
    for why in (APART, ONE_BESIDE):
        names = [f"{cell.short} and {cell.baseline.short}" for cell in cells if cell.why_undecided == why and cell.baseline]
        if names:
            lines.append(f"Undecided since {_WHY[why]}: {listed(names, _NAMED)}. Repeats of both on one host would compare them.")
    return lines


_WHY = {
    APART: "host or sitting differ as the cells do, so that the one cannot be told from the other",
    ONE_BESIDE: "only one trial ran beside the other cell's",
}


def _of_pool(pool: str, found: Sequence[Stretch]) -> str:
    hosts, codes = {one.host for one in found}, {one.tree for one in found}
    differ = [word for word, values in (("host", hosts), ("code", codes)) if len(values) > 1] or ["time"]
    which = listed([_named(one, differ) for one in found], _NAMED)
    return (
        f"The trials of pool {pool} differ in {listed(differ)}: {which}. Trials of one host and code without a pause of "
        f"{PAUSE_S / 60:.0f} minutes are compared with each other, so verdicts leave out what differs between these; a cell's own value "
        "and the order of values do not."
    )


def _named(one: Stretch, differ: Sequence[str]) -> str:
    at = datetime.fromtimestamp(one.began, UTC).strftime("%Y-%m-%d %H:%M UTC")
    host = [f"host {one.host or 'unknown'}"] if "host" in differ else []
    code = [f"tree {one.tree or 'unknown'}"] if "code" in differ else []
    return f"{plural(len(one.rows), 'trial')} ({', '.join([*host, *code, f'from {at}'])})"
