"""A night's verdicts: each metric of each cell against its own history, relative to its node, all cells together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.regression.decision import as_estimate, decide, interim_levels, word
from experiments.regression.definition import METRICS, NightFile
from experiments.regression.effect import NightEffect, night_effect, night_value
from experiments.regression.history_segments import Change, baseline_nights, open_alarm
from experiments.stats.verdict import Verdict
from tasks.nightly.history import History, Measured, what_changed
from tasks.nightly.store import Judgement, Night, NightCell, NodeState, verdicts_of

Where = Literal["code", "node", "code and node", "code or node"]
Array = NDArray[np.float64]
_RECENT = 5  # nights in which a creep must show
_SOFTWARE = ("code", "libraries", "torch", "driver", "image")  # what may change a canary though its node did not


@dataclass(frozen=True)
class Case:
    """One metric of one cell, with what it is compared with and the canary of its pool."""

    cell: NightCell
    metric: str
    dates: list[str]
    past: Mapping[str, list[Measured]]
    now: list[Measured]
    canary_past: Mapping[str, list[Measured]]
    canary_now: list[Measured]
    alarm: list[str]

    @property
    def minimum(self) -> float:
        return self.cell.minimum_effect.get(self.metric, METRICS[self.metric].minimum_effect)


class NightVerdicts:
    """Judges one night. `past`: MLflow's history before it, `nights`: what was said on past nights."""

    def __init__(self, definition: NightFile, night: Night, past: History, nights: Sequence[Night], changes: Sequence[Change]) -> None:
        self.definition, self.night, self.past = definition, night, past
        self.nights, self.changes = [other for other in nights if other.date < night.date], changes
        self._canaries = {cell.pool: cell.cell for cell in night.cells if cell.role == "canary"}

    def judgements(self, now: History) -> tuple[list[Judgement], list[NodeState]]:
        """All cells' verdicts as things stand, and what the canaries say of their nodes."""
        nodes = self._nodes(now)
        found: list[Judgement] = []
        for metric in dict.fromkeys(metric for cell in self.night.cells for metric in cell.metrics):
            cases = [self._case(cell, metric, now) for cell in self.night.cells if metric in cell.metrics and cell.role != "canary"]
            cases = [case for case in cases if any(metric in trial.values for trial in case.now) or metric == case.cell.metrics[0]]
            found += self._judge(cases, nodes)
        order = {(cell.cell, cell.role): index for index, cell in enumerate(self.night.cells)}
        return sorted(found, key=lambda item: order[item.cell, item.role]), nodes

    def creep(self, now: History) -> list[str]:
        """Sentences about cells that no single night calls slower, but whose last nights are, against the first of their segment.

        The baseline moves on with its nights, so what creeps by less than a night can see would be lost in it.
        """
        found = []
        for cell in self.night.cells:
            if cell.role != "history":
                continue
            case = self._case(cell, cell.metrics[0], now, most=10_000)
            nights = [*case.dates, *([self.night.date] if case.now else [])]
            if len(nights) < 3 * _RECENT:
                continue
            said = self._creep(case, nights)
            found += [said] if said else []
        return found

    def _creep(self, case: Case, nights: list[str]) -> str | None:
        past, beside = {**case.past, self.night.date: case.now}, {**case.canary_past, self.night.date: case.canary_now}
        y, x = np.full((2, 1, len(nights), 1), np.nan)
        for place, date in enumerate(nights):
            mine, other = (
                night_value([_log(trial, case.metric) for trial in trials]) if trials else np.nan
                for trials in (past.get(date, []), beside.get(date, []))
            )
            y[0, place, 0], x[0, place, 0] = mine, other
        first, last = slice(0, len(nights) - _RECENT), slice(len(nights) - _RECENT, None)
        half = slice(0, (len(nights) - _RECENT) // 2)  # the nights between may have crept already
        effect = night_effect(y[:, first][:, half], y[:, last, 0], x[:, first][:, half], x[:, last, 0])
        size = float(effect.effect[0])
        if not (size < -math.log1p(case.minimum) and float(effect.p_value[0]) < self.definition.alpha):
            return None
        worse = f"its last {_RECENT} nights are {-math.expm1(size):.1%} worse than the first ones since {nights[0]}"
        return f"{case.cell.name}: {case.metric} crept: {worse}."

    def undecided(self, found: Sequence[Judgement]) -> list[tuple[str, str]]:
        """(identity, role) of the cells for which more repeats may decide something: by their first metric alone."""
        first = {(cell.cell, cell.role): cell.metrics[0] for cell in self.night.cells}
        return [
            (item.cell, item.role)
            for item in found
            if item.verdict is Verdict.UNDECIDED and item.metric == first[item.cell, item.role] and item.ratio is not None
        ]

    # --- one metric, all cells

    def _case(self, cell: NightCell, metric: str, now: History, most: int | None = None) -> Case:
        probes = cell.role in ("twin", "injected")  # both stand against the twin's own nights, which nobody slowed down
        past = self.past.of(cell.cell, "twin" if probes else "history")
        verdicts = {} if probes else verdicts_of(list(self.nights), cell.cell, metric)
        changes = [change for change in self.changes if (change.cell, change.metric) == (cell.cell, metric)]
        known = [date for date, trials in past.items() if any(metric in trial.values for trial in trials)]
        dates = baseline_nights(known, verdicts, changes, self.night.date, most or self.definition.baseline_nights)
        alarm = open_alarm(verdicts, changes, self.night.date)
        canary = self._canaries.get(cell.pool) if METRICS[metric].depends_on_node else None
        return Case(
            cell,
            metric,
            dates,
            past,
            now.of(cell.cell, cell.role).get(self.night.date, []),
            self.past.of(canary, "canary") if canary else {},
            now.of(canary, "canary").get(self.night.date, []) if canary else [],
            alarm,
        )

    def _judge(self, cases: Sequence[Case], nodes: Sequence[NodeState]) -> list[Judgement]:
        if not cases:
            return []
        effects = _effects(cases)
        minimum = np.array([case.minimum for case in cases])
        levels = np.array([self._level(len(_values(case.now, case.metric))) for case in cases])
        enough = np.array([len(case.dates) >= self.definition.least_nights for case in cases])
        shown = _masked(effects, enough)
        codes, q = decide(shown, minimum, levels, alpha=self.definition.alpha, fdr=self.definition.false_discovery_rate)
        return [self._judgement(case, shown, index, word(codes[index]), float(q[index]), nodes) for index, case in enumerate(cases)]

    def _level(self, repeats: int) -> float:
        """Of the latest look that so many repeats have reached."""
        looks = self.definition.all_looks
        levels = interim_levels(looks, self.definition.alpha)
        reached = [level for look, level in zip(looks, levels, strict=True) if repeats >= look]
        return reached[-1] if reached else levels[0]

    def _judgement(self, case: Case, effects: NightEffect, index: int, verdict: Verdict, q: float, nodes: Sequence[NodeState]) -> Judgement:
        cell, metric = case.cell, METRICS[case.metric]
        tonight = _values(case.now, case.metric)
        value = float(np.exp(night_value(np.log(tonight)))) if tonight and min(tonight) > 0 else None
        said = {Verdict.SLOWER: metric.worse, Verdict.FASTER: metric.better}.get(verdict, str(verdict))
        base = Judgement(
            cell=cell.cell,
            name=cell.name,
            role=cell.role,
            metric=case.metric,
            verdict=verdict,
            word=said,
            value=value,
            minimum=case.minimum,
            repeats=len(tonight),
            baseline=case.dates,
            alarm_since=case.alarm[0] if case.alarm else (self.night.date if verdict in (Verdict.SLOWER, Verdict.FASTER) else None),
        )
        if not math.isfinite(float(effects.effect[index])):
            return base.model_copy(update={"why": self._why_unknown(case, tonight), "alarm_since": None})
        ratio = as_estimate(effects, index, len(tonight))
        detectable = effects.detectable(self.definition.all_looks[-1], alpha=self.definition.alpha, minimum=math.log1p(case.minimum))
        where, why = _blame(case, verdict, float(effects.raw[index]), nodes)
        changed = verdict in (Verdict.SLOWER, Verdict.FASTER)
        old = [trial for date in case.dates[-1:] for trial in case.past[date]]
        update: dict[str, object] = {
            "ratio": ratio.value,
            "low": ratio.low,
            "high": ratio.high,
            "p_value": float(effects.p_value[index]),
            "q_value": q,
            "share": float(effects.share[index]),
            "detectable": float(-np.expm1(-detectable[index])) if metric.higher_is_better else float(np.expm1(detectable[index])),
            "where": where,
            "why": why,
            "causes": what_changed(old, case.now) if changed and cell.role == "history" else [],
        }
        return base.model_copy(update=update)

    def _why_unknown(self, case: Case, tonight: Sequence[float]) -> str:
        if not tonight:
            return "not measured tonight"
        if min(tonight) <= 0:
            return "not above 0: its ratio has no meaning"
        have, need = len(case.dates), self.definition.least_nights
        return f"{have} of the {need} nights that a baseline needs" if have < need else "its nights have no value of this metric"

    # --- nodes

    def _nodes(self, now: History) -> list[NodeState]:
        """Each host of each pool, by its canary against the canary's own history on that host, or on any where it has none there."""
        found = []
        for cell in self.night.cells:
            if cell.role != "canary":
                continue
            metric = cell.metrics[0]
            past, mine = self.past.of(cell.cell, "canary"), now.of(cell.cell, "canary").get(self.night.date, [])
            hosts = dict.fromkeys(trial.host for trial in mine)
            found += [self._node(cell, metric, host, past, [trial for trial in mine if trial.host == host]) for host in hosts]
        return found

    def _node(self, cell: NightCell, metric: str, host: str, past: Mapping[str, list[Measured]], now: list[Measured]) -> NodeState:
        here = {date: [trial for trial in trials if trial.host == host] for date, trials in past.items()}
        here = {date: trials for date, trials in here.items() if trials}
        if len(here) < self.definition.least_nights:
            here = dict(past)
        dates = sorted(here)[-self.definition.baseline_nights :]
        case = Case(cell, metric, dates, here, now, {}, [], [])
        effects = _masked(_effects([case]), np.array([len(dates) >= self.definition.least_nights]))
        if not math.isfinite(float(effects.effect[0])):
            note = f"{len(dates)} of the {self.definition.least_nights} nights that a baseline needs"
            return NodeState(pool=cell.pool, host=host, verdict=Verdict.UNDECIDED, note=note)
        level = np.array([self.definition.alpha])
        codes, _ = decide(effects, np.array([case.minimum]), level, alpha=self.definition.alpha, fdr=self.definition.false_discovery_rate)
        ratio = as_estimate(effects, 0, len(now))
        detectable = float(effects.detectable(len(now), alpha=self.definition.alpha, minimum=math.log1p(case.minimum))[0])
        own = [
            text for text in what_changed(here[dates[-1]], now) if text.split(" ")[0] in ("code", "libraries", "torch", "driver", "image")
        ]
        also = f"the canary's own {', '.join(own)}: the node and the software cannot be told apart" if own else None
        return NodeState(
            pool=cell.pool,
            host=host,
            verdict=word(codes[0]),
            ratio=ratio.value,
            low=ratio.low,
            high=ratio.high,
            detectable=-math.expm1(-detectable),
            note=also,
        )


def _blame(case: Case, verdict: Verdict, raw: float, nodes: Sequence[NodeState]) -> tuple[Where | None, str | None]:
    """Whether code or node is slower, and what to say about it."""
    hosts = {trial.host for trial in case.now}
    moved = [
        node
        for node in nodes
        if node.pool == case.cell.pool and node.host in hosts and node.verdict in (Verdict.SLOWER, Verdict.FASTER) and node.ratio
    ]
    of_the_node = METRICS[case.metric].depends_on_node
    if not moved or not of_the_node:
        if verdict not in (Verdict.SLOWER, Verdict.FASTER):
            return None, None
        if of_the_node and not case.canary_now:
            return "code or node", "no canary ran on its node tonight"
        return "code", None
    said = "; ".join(f"node {node.host} is {abs(math.log(node.ratio or 1)):.1%} {node.verdict}" for node in moved)
    notes = [node.note for node in moved if node.note]
    if verdict in (Verdict.SLOWER, Verdict.FASTER):
        return ("code or node" if notes else "code and node"), "; ".join([f"{said}; this is what remains", *notes])
    if abs(raw) >= math.log1p(case.minimum):
        return ("code or node" if notes else "node"), "; ".join([f"{said}, and the cell with it ({math.expm1(raw):+.1%})", *notes])
    return None, said


# --- arrays


def _effects(cases: Sequence[Case]) -> NightEffect:
    """All cases side by side, padded with NaN."""
    nights = max(1, *(len(case.dates) for case in cases))
    width = max(1, max((len(trials) for case in cases for trials in (case.now, *case.past.values())), default=1))
    y, x = np.full((2, len(cases), nights, width), np.nan)
    t, u = np.full((2, len(cases), width), np.nan)
    for index, case in enumerate(cases):
        _fill(t[index], case.now, case)
        _fill_canary(u[index], case.now, case.canary_now, case.metric)
        for place, date in enumerate(case.dates):
            _fill(y[index, place], case.past[date], case)
            _fill_canary(x[index, place], case.past[date], case.canary_past.get(date, []), case.metric)
    return night_effect(y, t, x, u)


def _fill(row: Array, trials: Sequence[Measured], case: Case) -> None:
    for place, trial in enumerate(trials[: row.size]):
        row[place] = _log(trial, case.metric)


def _fill_canary(row: Array, trials: Sequence[Measured], canary: Sequence[Measured], metric: str) -> None:
    """Beside each trial the canary of its round on its host; where that did not run, the mean of its host's; else nothing."""
    for place, trial in enumerate(trials[: row.size]):
        same = [other for other in canary if other.host == trial.host]
        logs = [_log(other, metric) for other in same if other.round == trial.round] or [_log(other, metric) for other in same]
        known = [value for value in logs if math.isfinite(value)]
        if known:
            row[place] = sum(known) / len(known)


def _log(trial: Measured, metric: str) -> float:
    """The logarithm of the metric, turned so that more is better."""
    value = trial.values.get(metric, math.nan)
    if not value > 0:
        return math.nan
    return math.log(value) if METRICS[metric].higher_is_better else -math.log(value)


def _values(trials: Sequence[Measured], metric: str) -> list[float]:
    return [trial.values[metric] for trial in trials if metric in trial.values]


def _masked(effects: NightEffect, enough: NDArray[np.bool_]) -> NightEffect:
    """Effects that rest on too few nights become unknown."""
    hide: Callable[[Array], Array] = lambda values: np.where(enough, values, np.nan)  # noqa: E731
    return NightEffect(
        hide(effects.effect), hide(effects.se), effects.df, hide(effects.raw), effects.share, effects.between, effects.within
    )
