"""How far the same cell in two sweeps may lie apart although nothing changed: what past sweeps show, or why it is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.stats.between_sweeps import both_sides
from experiments.stats.spread import Spread
from tasks.analysis.cell import Cell
from tasks.analysis.known_spread import place_of, places_of
from tasks.analysis.results import Sweep
from tasks.analysis.spread_history import KnownSpreads, learn
from tasks.analysis.spread_store import read_spreads

NOT_KNOWN = "how much sweeps of this workload differ from day to day on this pool is not known"
HOSTS_NOT_KNOWN = "measured on different hosts, and how much hosts of this kind differ is not known"
WHERE_NOT_KNOWN = "whether one host measured both is not known, nor how much hosts of this kind differ"


def known_beside(sweeps: Sequence[Sweep]) -> KnownSpreads:
    """What the other sweeps beside the last of these show of the places of all; the sweeps that are compared do not count."""
    places = list(dict.fromkeys(place for sweep in sweeps for place in places_of(sweep)))
    if not places:
        return KnownSpreads({})
    root = sweeps[-1].dir.parent
    past = read_spreads(root, devices={place.device for place in places}, without=[sweep.sweep_id for sweep in sweeps])
    return KnownSpreads({place: learn(past, place) for place in places})


def spread_between(a: Cell, b: Cell, known: KnownSpreads) -> tuple[list[Spread], str | None]:
    """(what adds to the error of comparing `a` with `b`, None); or nothing, and why that is not known. Both have a measured trial.

    On equal hosts it is the spread between sweeps, of each side. On different hosts with one kind of device, or where that is not known, it
    is the spread between hosts, which holds that of a host's sweeps. Between kinds of device, their difference is what is asked for, so
    each side's sweeps count. Past sweeps know all of these on the metric's own scale alone.
    """
    if not a.on_own_scale or not b.on_own_scale:
        return [], NOT_KNOWN
    places = [place_of(cell.measured[0], cell.metric.name) for cell in (a, b)]
    there = [known.at(place) for place in places]
    alike = _on_equal_hosts(a, b)
    if places[0].device == places[1].device and not alike:
        host = there[0].host
        return ([both_sides(host)], None) if host else ([], WHERE_NOT_KNOWN if alike is None else HOSTS_NOT_KNOWN)
    if there[0].sweep is None or there[1].sweep is None:
        return [], NOT_KNOWN
    return ([both_sides(there[0].sweep)] if places[0] == places[1] else [there[0].sweep, there[1].sweep]), None


def _on_equal_hosts(a: Cell, b: Cell) -> bool | None:
    """Whether the same hosts measured both, each the same share of the trials: by their ids, or by their names where a side is from before
    there were ids. None: not known."""
    for name in ("host_id", "host"):
        left, right = (Counter(row.environment.get(name) for row in cell.measured) for cell in (a, b))
        if None not in left | right:
            return all(left[host] * right.total() == right[host] * left.total() for host in left | right)
    return None
