"""Nights on disk with made-up verdicts, one cell or a few, and the pages of a site taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from experiments.metrics import metric_of
from experiments.stats.verdict import Verdict
from tasks.nightly.store import CHANGED, CellVerdict, Dropped, Night, NightCell, NightCode, NightStore, PoolEnvironment
from tasks.site.history import DefinitionHistory, Track, read_history, tracks
from tests.tasks.nightly.night_support import cell

NAME = "made-up"
FIRST = date(2026, 10, 1)
NOW = datetime(2026, 10, 21, 4, 5, tzinfo=UTC)
ONE = cell("one", metrics=("throughput", "peak_memory_bytes"), minimum_effect={"throughput": 0.03, "peak_memory_bytes": 0.03})
TWO = cell("two", minimum_effect={"throughput": 0.03})


def day(number: int) -> str:
    """The date of a night, 1 is the first."""
    return (FIRST + timedelta(days=number - 1)).isoformat()


def commit(number: int) -> str:
    return f"{number:040x}"


def verdict(
    of: NightCell = ONE,
    metric: str = "throughput",
    said: Verdict = Verdict.SAME,
    *,
    value: float | None = 100.0,
    ratio: float | None = 1.0,
    half: float = 0.01,
    **more: Any,
) -> CellVerdict:
    """`half`: half of the interval's width, of the ratio."""
    known = metric_of(metric)
    ends = {"ratio": ratio, "low": ratio - half, "high": ratio + half} if ratio is not None else {"needs": 5, "why": "2 of the 5 nights"}
    word = {Verdict.SLOWER: known.worse, Verdict.FASTER: known.better}.get(said, str(said))
    values = {"cell": of.cell, "name": of.name, "role": "history", "metric": metric, "minimum": 0.03, "repeats": 3}
    return CellVerdict.model_validate({**values, "verdict": said, "word": word, "value": value, **ends, **more}, strict=False)


def save(
    root: Path,
    number: int,
    verdicts: Sequence[CellVerdict] | None = None,
    *,
    name: str = NAME,
    cells: Sequence[NightCell] = (ONE,),
    branch: str | None = "main",
    code: NightCode | None = None,
    facts: Mapping[str, str] | None = None,
    closed: bool = True,
    early: bool = False,
    missed: Mapping[str, str] | None = None,
    **more: Any,
) -> Night:
    """Write one night. `missed`: cell -> why. `early`: as nights were before they recorded their code and environment."""
    judged = [verdict(of) for of in cells] if verdicts is None else list(verdicts)
    night = Night(
        name=name,
        date=day(number),
        sweep_id=f"nightly-{name}-{day(number).replace('-', '')}-020000-0000",
        opened_at=1.8e9 + 86400 * number,
        closed_at=1.8e9 + 86400 * number + 60 if closed else None,
        budget_s=60.0,
        cells=list(cells),
        judgements=judged,
        missed=[Dropped(cell=identity, name=identity, why=why) for identity, why in (missed or {}).items()],
        code=None if early else code or NightCode(commit=commit(number), dirty=False, branch=branch),
        environments=[] if early else [PoolEnvironment(pool="cpu", facts=dict(facts or {"torch": "2.13.0", "host": "node-1"}))],
        **more,
    )
    store = NightStore(name, root)
    store.folder(night.date).mkdir(parents=True, exist_ok=True)
    store.save(night)
    return night


def alarm(number: int, ratio: float = 0.95, *, since: int | None = None, of: NightCell = ONE, **more: Any) -> CellVerdict:
    """A slow-down on a night, since another."""
    said = Verdict.SLOWER if ratio < 1 else Verdict.FASTER
    assert said in CHANGED
    return verdict(of, said=said, value=100.0 * ratio, ratio=ratio, where="code", alarm_since=day(since or number), **more)


def read(root: Path, most: int = 365, name: str = NAME) -> DefinitionHistory:
    return read_history(name, most, root)


def only_track(root: Path) -> Track:
    [track] = tracks(read(root))
    return track
