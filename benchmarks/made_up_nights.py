"""Make the nights of a definition, for benchmarks and tests of what reads them: real files, made-up numbers. Runs nothing.

Each cell has a level, nights with noise of their own and of its node, and some have planted changes: slow-downs, a speed-up, more memory.
Verdicts are by a rule of this file, which knows where it planted changes. They only look like those of nights.

    SWEEPBENCH_RUNS=/tmp/made-up python -m benchmarks.made_up_nights --cells 500 --nights 365
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.finished_sweep import without_fsync
from experiments.metric import Metric
from experiments.metrics import metric_of
from experiments.regression.definition import word_of
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import FoundCommit, Pairs
from tasks.nightly.store import CellVerdict, Dropped, Night, NightCell, NightCode, NightStore, NodeState, PoolEnvironment

LAST = date(2026, 11, 22)
METRICS = ("throughput", "peak_memory_bytes", "time_to_first_step_s", "final_loss")
LEVELS = {"throughput": 600.0, "peak_memory_bytes": 3.2e9, "time_to_first_step_s": 11.0, "final_loss": 2.31}  # each cell's is near it
BASELINE, LEAST, HELD = 20, 5, 5  # nights: of a baseline, that it needs, after which a change is accepted
NOISE, STILL = 0.007, 0.0002  # standard deviations of a night, as logarithms: of what depends on the node, of the rest
SUITES, POOLS = ("bert", "bridgetower", "clip", "flava", "vit"), ("h200", "a100")
LATE, GONE, MISSED = 5, 6, 8  # cells: one that came later, one that was removed, one that is missed on some nights


@dataclass(frozen=True)
class Planted:
    """A change of a cell's metric: from night `at` on, by `size` on the logarithm; above 0 is better."""

    cell: int
    metric: str
    at: int
    size: float


def planted(cells: int, nights: int) -> list[Planted]:
    """Some in the past of every tenth cell, and on the last nights of a few."""
    past = [Planted(cell, "throughput", nights // 3 + cell % 50, 0.08 if cell % 20 == 3 else -0.06) for cell in range(3, cells, 10)]
    now = [
        Planted(1, "throughput", nights - 1, -0.071),
        Planted(2, "throughput", nights - 3, -0.043),
        Planted(4, "peak_memory_bytes", nights - 1, -0.12),
        Planted(7, "throughput", nights - 2, 0.09),
    ]
    return [*(one for one in past if one.at < nights - 10), *(one for one in now if one.cell < cells and one.at >= LEAST)]


def cells_of(count: int) -> list[NightCell]:
    """Cells of five suites on two pools."""
    axes = product(range(8, 100_000, 8), SUITES, POOLS, ("tiny", "base", "large"), ("fp32", "bf16"), ("MP-0", "MP-1", "MP-4"))
    return [
        _cell(f"{suite}: {pool} · {model} · {precision} · {loader} · batch {batch}", suite, pool)
        for batch, suite, pool, model, precision, loader in islice(axes, count)
    ]


def _cell(name: str, suite: str, pool: str) -> NightCell:
    return NightCell(
        cell=hashlib.sha256(name.encode()).hexdigest()[:16],
        name=name,
        suite=suite,
        pool=pool,
        role="history",
        value=1.0,
        metrics=list(METRICS),
        minimum_effect={metric: metric_of(metric).minimum_effect for metric in METRICS},
    )


def write_nights(name: str, cells: int, nights: int, *, branches: Sequence[str] = ("main",), root: Path | None = None) -> NightStore:
    """Write them into `root`, else SWEEPBENCH_RUNS. Every fourth night is of the last branch, the others are of the first."""
    made = MadeUp(cells_of(cells), [(LAST - timedelta(days=nights - 1 - night)).isoformat() for night in range(nights)])
    store = NightStore(name, root)
    with without_fsync():
        for night, day in enumerate(made.dates):
            store.folder(day).mkdir(parents=True, exist_ok=True)
            store.save(made.night(name, night, branches[-1] if night % 4 == 3 else branches[0]))
        for change in made.accepted():
            store.accept(change)
    return store


class MadeUp:
    """The values of all nights, and the verdicts on them."""

    def __init__(self, cells: Sequence[NightCell], dates: Sequence[str]) -> None:
        self.cells, self.dates = cells, dates
        self.planted = {(one.cell, one.metric): one for one in planted(len(cells), len(dates))}
        self._values = {metric: self._drawn(metric) for metric in METRICS}

    def _drawn(self, metric: str) -> NDArray[np.float64]:
        """Logarithms of each night's value, its sign turned so that more is better; shape (cells, nights)."""
        random, known = np.random.default_rng([1, *metric.encode()]), metric_of(metric)
        shape, depends = (len(self.cells), len(self.dates)), known.depends_on_node
        noise = random.normal(0, NOISE if depends else STILL, shape)
        node = np.cumsum(random.normal(0, 0.001, shape[1])) if depends else np.zeros(shape[1])
        level = np.log(LEVELS[metric] * random.uniform(0.4, 2.5, shape[0])) * (1 if known.higher_is_better else -1)
        values = level[:, None] + node[None] + noise
        for one in self.planted.values():
            if one.metric == metric:
                values[one.cell, one.at :] += one.size
        return np.asarray(values)

    def accepted(self) -> Iterator[Change]:
        """Planted changes that lasted."""
        for one in self.planted.values():
            if one.at + HELD < len(self.dates):
                yield Change(
                    cell=self.cells[one.cell].cell,
                    metric=one.metric,
                    since=self.dates[one.at],
                    verdict=Verdict.SLOWER if one.size < 0 else Verdict.FASTER,
                    accepted_on=self.dates[one.at + HELD - 1],
                    by="nights",
                    note=f"held for {HELD} nights",
                )

    def _verdict(self, place: int, metric: str, night: int) -> CellVerdict:
        cell, known, own = self.cells[place], metric_of(metric), self.planted.get((place, metric))
        since = own.at if own is not None and own.at <= night < own.at + HELD else None  # of an open alarm
        start = own.at if own is not None and night >= own.at + HELD else 0
        end = night if since is None else since
        baseline = range(max(start, end - BASELINE), end)
        values = self._values[metric][place]
        common = {"cell": cell.cell, "name": cell.name, "role": "history", "metric": metric, "minimum": known.minimum_effect, "repeats": 3}
        value = math.exp(values[night] if known.higher_is_better else -values[night])
        if len(baseline) < LEAST:
            why = f"{len(baseline)} of the {LEAST} nights that a baseline needs"
            more: dict[str, object] = {"verdict": Verdict.UNDECIDED, "word": "undecided", "needs": LEAST, "why": why}
        else:
            more = _compared(known, float(values[night] - values[baseline].mean()), alarm=since is not None)
        if since is not None and more["verdict"] is not Verdict.UNDECIDED:
            cause = f"git commit {_commit(since - 1)[:12]} → {_commit(since)[:12]}"
            more |= {"where": "code", "alarm_since": self.dates[since], "causes": [cause]}
            if metric == METRICS[0]:
                more |= {"raw": more["ratio"], "looked": more["verdict"], "pairs": self._pairs(since, night, more)}
        dates = [self.dates[index] for index in baseline]
        return CellVerdict.model_validate({**common, "value": value, "baseline": dates, **more}, strict=False)

    def _pairs(self, since: int, night: int, verdict: Mapping[str, object]) -> Pairs:
        """As if pairs had shown what the night's verdict says, against the commit of three nights before."""
        known = {name: verdict[name] for name in ("verdict", "ratio", "low", "high")}
        commits = {"good": _commit(since - 3), "good_date": self.dates[since - 3], "tonight": _commit(night)}
        return Pairs.model_validate({**commits, "count": 8, **known}, strict=False)

    def _found(self, night: int) -> list[FoundCommit]:
        """What bisections found on a night: the commits of the slow-downs that begin on it, but for one cell's."""
        slower = [one for one in self.planted.values() if one.at == night and one.size < 0 and one.metric == METRICS[0]]
        return [
            FoundCommit(
                cell=self.cells[one.cell].cell,
                name=self.cells[one.cell].name,
                metric=one.metric,
                good=_commit(night - 3),
                bad=_commit(night),
                commit=_commit(night - 1) if one.cell != 2 else None,
                subject="Copy the batch twice" if one.cell != 2 else "",
                between=(_commit(night - 2), _commit(night if one.cell == 2 else night - 1)),
                sentence="the first bad commit is one of 2: there was no time for more" if one.cell == 2 else "found",
                on=self.dates[night],
            )
            for one in slower
        ]

    def night(self, name: str, night: int, branch: str) -> Night:
        """The record of one night."""
        there = [place for place in range(len(self.cells)) if _measured(place, night, len(self.dates))]
        missed = [MISSED] if len(self.cells) > MISSED and MISSED not in there else []
        verdicts = [self._verdict(place, metric, night) for place in there for metric in METRICS]
        day = self.dates[night]
        at = date.fromisoformat(day).toordinal() * 86400.0
        return Night(
            name=name,
            date=day,
            sweep_id=f"nightly-{name}-{day.replace('-', '')}-020000-0000",
            opened_at=at,
            closed_at=at + 7000,
            budget_s=7200,
            cells=[self.cells[place] for place in sorted({*there, *missed})],
            missed=[Dropped(cell=self.cells[place].cell, name=self.cells[place].name, why="infra") for place in missed],
            judgements=verdicts,
            bisections=self._found(night),
            nodes=[_node(night)],
            probes={"twin": Verdict.SAME, "injected": Verdict.SLOWER} if night >= LEAST else {},
            code=NightCode(commit=_commit(night), dirty=night % 50 == 0, branch=branch),
            environments=[PoolEnvironment(pool=pool, facts=_facts(night)) for pool in POOLS],
        )


def _compared(known: Metric, effect: float, *, alarm: bool) -> dict[str, object]:
    half, edge = 2.1 * (NOISE if known.depends_on_node else STILL), math.log1p(known.minimum_effect)
    verdict = Verdict.SAME if abs(effect) + half < edge else Verdict.UNDECIDED
    if alarm and abs(effect) > max(edge, half):
        verdict = Verdict.SLOWER if effect < 0 else Verdict.FASTER
    ends = {"ratio": math.exp(effect), "low": math.exp(effect - half), "high": math.exp(effect + half)}
    return {
        "verdict": verdict,
        "word": word_of(verdict, known.name),
        **ends,
        "p_value": 0.3,
        "q_value": 0.5,
        "share": 0.4,
        "detectable": 2 * half,
    }


def _measured(cell: int, night: int, nights: int) -> bool:
    return not ((cell == LATE and night < nights // 2) or (cell == GONE and night >= nights - 20) or (cell == MISSED and night % 9 == 0))


def _node(night: int) -> NodeState:
    moved = night % 40 == 7
    ratio = 0.962 if moved else 1.0
    verdict = Verdict.SLOWER if moved else Verdict.SAME
    return NodeState(pool=POOLS[0], host=f"node-{night % 2}", verdict=verdict, ratio=ratio, low=ratio - 0.01, high=ratio + 0.01)


def _facts(night: int) -> dict[str, str]:
    torch = "2.13.0" if night % 200 > 90 else "2.12.1"
    return {"device_name": "Made-up GPU", "torch": torch, "driver": f"570.{night // 60}", "python": "3.11.7", "host": f"node-{night % 2}"}


def _commit(night: int) -> str:
    return hashlib.sha1(str(night).encode(), usedforsecurity=False).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="made-up")
    parser.add_argument("--cells", type=int, default=40)
    parser.add_argument("--nights", type=int, default=120)
    parser.add_argument("--branches", nargs="+", default=["main"])
    options = parser.parse_args()
    store = write_nights(options.name, options.cells, options.nights, branches=options.branches)
    print(store.dir)


if __name__ == "__main__":
    main()
