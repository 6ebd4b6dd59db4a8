"""The nights of a definition, read one after the other: what the site shows of each night, and the history of each cell."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from experiments.config.errors import ConfigError, DamagedFile, UserError
from experiments.regression.definition import nights as definitions
from experiments.regression.history_segments import Change
from tasks.nightly.recording import uncounted
from tasks.nightly.report import headline
from tasks.nightly.store import Dropped, Night, NightCell, NightCode, NightStore
from tasks.site.series import Series
from tasks.site.words import environment_change
from tasks.sweep.store import SweepStore

UNKNOWN = "unknown"  # branch of a night from before branches were recorded, where that may be any of several


@dataclass(frozen=True)
class NightFacts:
    """What the site shows of a night as a whole. `environments`: pool -> what the trials ran on there.

    `uncounted`: of how many cells without a verdict other work disturbed every trial.
    """

    date: str
    sweep_id: str
    headline: str
    judged: bool
    worse: bool
    closed: bool
    code: NightCode
    environments: dict[str, dict[str, str]]
    uncounted: int
    night: Night  # without its verdicts, which are in the series


@dataclass
class CellHistory:
    """A cell over the nights. `planned`: indices of the nights whose plan had it; `absent`: of those that did not measure it, and why."""

    cell: NightCell  # of the last night that had it
    series: dict[str, Series] = field(default_factory=dict)
    planned: list[int] = field(default_factory=list)
    absent: dict[int, str] = field(default_factory=dict)


@dataclass
class DefinitionHistory:
    """The last nights of a definition, oldest first. `problems`: a sentence for each file that is damaged, and left out."""

    name: str
    known: bool  # whether a definition of this name is there: if not, it was renamed or removed
    nights: list[NightFacts] = field(default_factory=list)
    cells: dict[str, CellHistory] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Track:
    """The nights of a definition on one branch: what has a history of its own on the site. `nights`: their indices, oldest first."""

    history: DefinitionHistory
    branch: str
    nights: tuple[int, ...]

    @property
    def title(self) -> str:
        """`regression on main`; only the definition's name where no branch is known."""
        return self.history.name if self.branch == UNKNOWN else f"{self.history.name} on {self.branch}"

    @cached_property
    def facts(self) -> list[NightFacts]:
        return [self.history.nights[index] for index in self.nights]

    @cached_property
    def last_judged(self) -> int | None:
        """The index of the last night that has verdicts."""
        return next((index for index in reversed(self.nights) if self.history.nights[index].judged), None)

    @cached_property
    def environment_changes(self) -> dict[str, dict[int, str]]:
        """Pool -> index of a night -> what differs from the branch's last night before it whose environment is known."""
        changes: dict[str, dict[int, str]] = {}
        before: dict[str, dict[str, str]] = {}
        for index, night in zip(self.nights, self.facts, strict=True):
            for pool, facts in night.environments.items():
                if text := environment_change(before.get(pool, {}), facts):
                    changes.setdefault(pool, {})[index] = text
                before[pool] = facts
        return changes


def read_history(name: str, most: int, root: Path | None = None) -> DefinitionHistory:
    """The last `most` nights of a definition. Only one night's record is held at a time. What is damaged is named and left out."""
    store = NightStore(name, root)
    history = DefinitionHistory(name, known=name in _definitions())
    with _without_collector():
        for date in store.dates()[-most:]:
            try:
                night = store.load(date)
            except UserError as error:
                history.problems.append(str(error))
                continue
            _add(history, night, root)
    try:
        history.changes = store.changes()
    except DamagedFile as error:
        history.problems.append(str(error))
    return history


def tracks(history: DefinitionHistory) -> list[Track]:
    """One for each branch, that of the last night first.

    Nights whose branch nobody recorded belong to the only branch there is, else to a track of their own.
    """
    known = {facts.code.branch for facts in history.nights} - {None}
    [only] = known if len(known) == 1 else [UNKNOWN]
    by_branch: dict[str, list[int]] = {}
    for index, facts in enumerate(history.nights):
        by_branch.setdefault(facts.code.branch or str(only), []).append(index)
    return sorted((Track(history, branch, tuple(own)) for branch, own in by_branch.items()), key=lambda track: -track.nights[-1])


@contextmanager
def _without_collector() -> Iterator[None]:
    """Records have very many objects and no cycles: looking for some would take a third of the time of reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _definitions() -> Sequence[str]:
    try:
        return list(definitions())
    except ConfigError:  # two files of one name: no matter to nights that are over
        return []


def _add(history: DefinitionHistory, night: Night, root: Path | None) -> None:
    """Take over a night's verdicts, and forget it."""
    index = len(history.nights)
    history.nights.append(_facts(night, root))
    for cell in night.cells:
        if cell.role == "history":
            known = history.cells.setdefault(cell.cell, CellHistory(cell))
            known.cell = cell
            known.planned.append(index)
    for item in night.cell_verdicts:
        if item.cell in history.cells:
            history.cells[item.cell].series.setdefault(item.metric, Series(item.metric)).add(index, history.nights[index].code.branch, item)
    _absent(history, index, night.missed, "missed")
    _absent(history, index, night.dropped, "dropped")


def _absent(history: DefinitionHistory, index: int, entries: Sequence[Dropped], how: str) -> None:
    for entry in entries:
        if entry.cell in history.cells:
            history.cells[entry.cell].absent[index] = f"{how}: {entry.why}"


def _facts(night: Night, root: Path | None) -> NightFacts:
    rest = night.model_copy(update={"judgements": [item for item in night.judgements if item.role != "history"], "cells": []})
    return NightFacts(
        date=night.date,
        sweep_id=night.sweep_id,
        headline=headline(night).removeprefix("REGRESSION: ").removeprefix(f"{night.name} {night.date}: "),
        judged=bool(night.cell_verdicts),
        worse=bool(night.worse()),
        closed=night.closed,
        code=night.code or _early_code(night, root),
        environments={entry.pool: entry.facts for entry in night.environments},
        uncounted=len(uncounted(night)),
        night=rest,
    )


def _early_code(night: Night, root: Path | None) -> NightCode:
    """Of a night from before nights recorded it: the commit of its sweep's plan, where that is still there."""
    try:
        git = SweepStore(night.sweep_id, root).load_plan().git
    except UserError:
        return NightCode()
    return NightCode(commit=git.get("commit"), dirty=git.get("dirty"))
