"""A search for the largest batch is over once its sweep's time is: it measures nothing, and a later attempt goes on from its answers, which
the worker keeps (cluster/worker/kept_sizes.py): on a cluster each node its own, so on another node it starts anew. A trial that measures
goes on to its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cluster.journal.lines import Record
from experiments.trial import Trial


@dataclass(frozen=True)
class SearchLimit:
    """Shared by the threads of a sweep. `left_s`: how much of the sweep's time is left, s. `cut`: the trials that this cut off, by key."""

    left_s: Callable[[], float] = lambda: math.inf
    cut: set[str] = field(default_factory=set)

    def cut_off(self, trial: Trial, search: BatchSearch) -> str | None:
        """Why the trial's search is to end now; None while it may go on. It has one answer at least: so each attempt comes further."""
        if search.known is None or self.left_s() >= trial.least_s:
            return None
        self.cut.add(trial.key)
        why = f"no time was left for what it was to measure ({known_text(search.known)})"
        return f"batch_size max: the search was cut off, since {why}; a later attempt on the same node goes on from there"


class BatchSearch:
    """What an attempt's journal says of its search. `known`: what it knows by now; None where there is none, or it is over."""

    def __init__(self) -> None:
        self.known: Mapping[str, int | None] | None = None

    def add(self, record: Record) -> None:
        """The next record of the journal. The search has a section of its own there, which is closed when it is over."""
        if record["kind"] in ("attempt", "close"):
            self.known = None
        elif record["kind"] == "note" and "batch_search" in record:
            self.known = record["batch_search"]


def known_text(search: Mapping[str, int | None]) -> str:
    """What a search knows, in samples: `57 fits, 140 does not`."""
    fits, too_large = search["fits"], search["too_large"]
    return ", ".join([*([f"{fits} fits"] if fits else []), *([f"{too_large} does not{'' if fits else ' fit'}"] if too_large else [])])
