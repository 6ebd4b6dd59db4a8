"""Make the nights of a definition, for benchmarks and tests of what reads them: real files, made-up numbers. Runs nothing.

Each cell has a level, nights with noise of their own and of its node, and some have planted changes: slow-downs, a speed-up, more memory.
Verdicts are by a rule of this file, which knows where it planted changes. They only look like those of nights.

    SWEEPBENCH_RUNS=/tmp/made-up python -m benchmarks.made_up_nights --cells 500 --nights 365
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import islice, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.finished_sweep import without_fsync
from experiments.metrics import metric_of
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.store import CellVerdict, Dropped, Night, NightCell, NightCode, NightStore, NodeState, PoolEnvironment

LAST = date(2026, 11, 22)
METRICS = ("throughput", "peak_memory_bytes", "time_to_first_step_s", "final_loss")
BASELINE, LEAST, HELD = 20, 5, 5  # nights: of a baseline, that it needs, after which a change is accepted
MEMORY_LEVEL, START_LEVEL, LOSS_LEVEL = 3.2e9, 11.0, 2.31
WITHIN, BETWEEN = 0.006, 0.004  # standard deviations, as logarithms: of a night's repeats, from night to night
AXES = (("bert", "bridgetower", "clip", "flava", "vit"), ("h200", "a100"), ("tiny", "base", "large"), ("fp32", "bf16"), ("MP-0", "MP-1", "MP-4"), range(8, 1000, 8))


@dataclass(frozen=True)
class Planted:
    """A change of a cell's metric: from night `at` on, by `size` on the logarithm; above 0 is better."""

    cell: int
    metric: str
    at: int
    size: float


def planted(cells: int, nights: int) -> list[Planted]:
    """Some in the past of every tenth cell, and on the last nights of a few."""
    past = [Planted(cell, "throughput", nights // 3 + cell % 50, -0.06 if cell % 20 else 0.08) for cell in range(3, cells, 10)]
    past = [one for one in past if one.at < nights - 10]
    now = [Planted(1, "throughput", nights - 1, -0.071), Planted(2, "throughput", nights - 3, -0.043), Planted(4, "peak_memory_bytes", nights - 1, -0.12)]
    return [*past, *now, Planted(7, "throughput", nights - 2, 0.09)]


def cells_of(count: int) -> list[NightCell]:
    """Cells of five suites on two pools."""
    models = islice(product(*AXES[-1:], *AXES[:-1]), count)
    return [_cell(f"{suite}: {pool} · {model} · {precision} · {loader} · batch {batch}", suite, pool) for batch, suite, pool, model, precision, loader in models]


def _cell(name: str, suite: str, pool: str) -> NightCell:
    minimum = {metric: metric_of(metric).minimum_effect for metric in METRICS}
    identity = hashlib.sha256(name.encode()).hexdigest()[:16]
    return NightCell(cell=identity, name=name, suite=suite, pool=pool, role="history", value=1.0, metrics=list(METRICS), minimum_effect=minimum)


def write_nights(name: str, cells: int, nights: int, *, root: Path | None = None, seed: int = 1, branches: Sequence[str] = ("main",)) -> NightStore:
    """Write them into `root`, else SWEEPBENCH_RUNS. Nights of several branches are by turns, most of them of the first."""
    store, known = NightStore(name, root), cells_of(cells)
    changes = planted(cells, nights)
    dates = [(LAST - timedelta(days=nights - 1 - night)).isoformat() for night in range(nights)]
    series = {metric: _values(metric, cells, nights, changes, seed) for metric in METRICS}
    with without_fsync():
        for night in range(nights):
            verdicts = [item for metric in METRICS for item in _verdicts(metric, series[metric], known, night, dates, changes)]
            store.folder(dates[night]).mkdir(parents=True, exist_ok=True)
            store.save(_night(name, dates[night], night, known, verdicts, branches))
        for one in changes:
            if one.at + HELD - 1 < nights - 1:
                direction = Verdict.SLOWER if one.size < 0 else Verdict.FASTER
                accepted = dates[one.at + HELD - 1]
                store.accept(Change(cell=known[one.cell].cell, metric=one.metric, since=dates[one.at], verdict=direction, accepted_on=accepted, by="nights", note=f"held for {HELD} nights"))
    return store


def _values(metric: str, cells: int, nights: int, changes: Sequence[Planted], seed: int) -> NDArray[np.float64]:
    """Logarithms of each night's value, more is better; shape (cells, nights)."""
    random = np.random.default_rng([seed, *metric.encode()])
    depends = metric_of(metric).depends_on_node
    noise = random.normal(0, math.hypot(WITHIN, BETWEEN) if depends else 2e-4, (cells, nights))
    node = np.cumsum(random.normal(0, 0.001, nights)) if depends else np.zeros(nights)
    level = np.log(random.uniform(60, 4000, cells)) if metric == "throughput" else -np.log({"peak_memory_bytes": MEMORY_LEVEL, "time_to_first_step_s": START_LEVEL}.get(metric, LOSS_LEVEL) * random.uniform(0.5, 2, cells))
    values = level[:, None] + node[None] + noise
    for one in changes:
        if one.metric == metric and one.cell < cells:
            values[one.cell, one.at :] += one.size
    return values


def _verdicts(metric: str, values: NDArray[np.float64], cells: Sequence[NightCell], night: int, dates: Sequence[str], changes: Sequence[Planted]) -> Iterator[CellVerdict]:
    known, own = metric_of(metric), {one.cell: one for one in changes if one.metric == metric}
    half = 2.1 * (math.hypot(WITHIN, BETWEEN) if known.depends_on_node else 4e-4)
    for place, cell in enumerate(cells):
        if not _measured(place, night, len(dates)):
            continue
        at = own[place].at if place in own else None
        start = at if at is not None and night >= at + HELD else 0
        end = at if at is not None and at <= night < at + HELD else night
        baseline = list(range(max(start, end - BASELINE), end))
        more: dict[str, object] = {"verdict": Verdict.UNDECIDED, "word": "undecided", "needs": LEAST, "why": f"{len(baseline)} of the {LEAST} nights that a baseline needs"}
        if len(baseline) >= LEAST:
            more = _compared(metric, float(values[place, night] - values[place, baseline].mean()), half, at is not None and end == at)
            if more["verdict"] in (Verdict.SLOWER, Verdict.FASTER):
                more |= {"where": "code", "alarm_since": dates[end], "causes": [f"git commit {_commit(end - 1)[:12]} → {_commit(end)[:12]}"]}
        sign = 1 if known.higher_is_better else -1
        yield CellVerdict(cell=cell.cell, name=cell.name, role="history", metric=metric, value=math.exp(sign * values[place, night]), minimum=known.minimum_effect, repeats=3, baseline=[dates[index] for index in baseline], **more)  # type: ignore[arg-type]


def _compared(metric: str, effect: float, half: float, planted: bool) -> dict[str, object]:
    known = metric_of(metric)
    edge = math.log1p(known.minimum_effect)
    verdict = Verdict.UNDECIDED
    if planted and abs(effect) > max(edge, half):
        verdict = Verdict.SLOWER if effect < 0 else Verdict.FASTER
    elif abs(effect) + half < edge:
        verdict = Verdict.SAME
    word = {Verdict.SLOWER: known.worse, Verdict.FASTER: known.better}.get(verdict, str(verdict))
    ends = {"ratio": math.exp(effect), "low": math.exp(effect - half), "high": math.exp(effect + half)}
    return {"verdict": verdict, "word": word, **ends, "p_value": 0.3, "q_value": 0.5, "share": 0.4, "detectable": 2 * half, "alarm_since": None}


def _measured(cell: int, night: int, nights: int) -> bool:
    """A cell was added later, one was removed, one is missed at times."""
    return not ((cell == 5 and night < nights // 2) or (cell == 6 and night >= nights - 20) or (cell == 8 and night % 9 == 0))


def _night(name: str, day: str, night: int, cells: Sequence[NightCell], verdicts: Sequence[CellVerdict], branches: Sequence[str]) -> Night:
    there = {item.cell for item in verdicts}
    missed = [Dropped(cell=cell.cell, name=cell.name, why="infra") for place, cell in enumerate(cells) if cell.cell not in there and place == 8]
    facts = {"device_name": "Made-up GPU", "torch": "2.13.0" if night % 200 > 90 else "2.12.1", "driver": f"570.{night // 60}", "python": "3.11.7", "host": f"node-{night % 2}"}
    at = date.fromisoformat(day).toordinal() * 86400.0
    return Night(
        name=name,
        date=day,
        sweep_id=f"nightly-{name}-{day.replace('-', '')}-020000-0000",
        opened_at=at,
        closed_at=at + 7000,
        budget_s=7200,
        cells=[cell for cell in cells if cell.cell in there or cell in missed],
        missed=missed,
        judgements=list(verdicts),
        nodes=[NodeState(pool="h200", host=f"node-{night % 2}", verdict=Verdict.SLOWER if night % 40 == 7 else Verdict.SAME, ratio=0.962, low=0.95, high=0.97)],
        probes={"twin": Verdict.SAME, "injected": Verdict.SLOWER} if night >= LEAST else {},
        code=NightCode(commit=_commit(night), dirty=night % 50 == 0, branch=branches[-1] if night % 4 == 3 else branches[0]),
        environments=[PoolEnvironment(pool=pool, facts=facts) for pool in AXES[1]],
    )


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
