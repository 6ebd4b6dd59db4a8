"""Which installed packages differ between trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.analysis.cell import Cell
from tasks.analysis.trial_row import TrialRow

ABSENT = "not installed"
MOST = 12  # packages named one by one


def differing(rows: Sequence[TrialRow]) -> list[str]:
    """Names, sorted, of the packages that have not the same version in all rows; [] where a row does not tell its packages."""
    if not rows or not all(row.packages for row in rows):
        return []
    lists = list({id(row.packages): row.packages for row in rows}.values())  # most trials of a sweep share one
    names = {name for packages in lists for name in packages} if len(lists) > 1 else ()
    return sorted(name for name in names if len({packages.get(name) for packages in lists}) > 1)


def package_confounders(cells: Sequence[Cell], besides: Iterable[str]) -> list[tuple[str, list[tuple[str, list[Cell]]]]]:
    """(package, [(version, cells), ...]) of the packages that differ, without those in `besides`; of very many one entry, `packages`."""
    rows = [row for cell in cells for row in cell.measured]
    names = differing(rows)
    left_out = set(besides) if names else set()
    names = [name for name in names if name not in left_out]
    if len(names) > MOST:
        return [("packages", _groups(cells, names))]
    return [(name, _groups(cells, [name])) for name in names]


def _groups(cells: Sequence[Cell], names: Sequence[str]) -> list[tuple[str, list[Cell]]]:
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        for row in cell.measured:
            versions = [row.packages.get(name, ABSENT) for name in names]
            named = [f"{name} {version}" for name, version in zip(names[:MOST], versions, strict=False)]
            rest = f" and {len(names) - MOST} more that differ" if len(names) > MOST else ""
            group = groups.setdefault(versions[0] if len(names) == 1 else ", ".join(named) + rest, [])
            if cell not in group:
                group.append(cell)
    return list(groups.items())
