"""What looks found is kept: the same as judging them all again, bit for bit, for one look's work. On seeded, made-up trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.config.paths import runs_root
from experiments.stats.interim_looks import Look
from experiments.stats.spread import Spread
from tasks.analysis import looks as module
from tasks.analysis.cell import Cell
from tasks.analysis.kept_looks import inputs_of
from tasks.analysis.looks import cells_of_plan
from tasks.analysis.trial_row import TrialRow
from tasks.sweep.store import DecideSettings, Plan
from tests.tasks.analysis.test_looks import at_times
from tests.tasks.cell_support import make_plan, repeats, settings, workers
from tests.tasks.fake_sweep import as_suite

LOOKS = [Look(round=at, spent=spent) for at, spent in ((3, 0.1), (4, 0.2), (5, 0.35), (6, 0.5), (7, 0.75))]


@pytest.fixture
def folder() -> Path:
    made = runs_root() / "made-up-20260101-000000-0000"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The round of each look that was judged."""
    rounds: list[int] = []
    next_results = module.next_results

    def noted(rows: Any, suite: Any, looks: Any, *more: Any, **options: Any) -> Any:
        rounds.append(looks[-1].round)
        return next_results(rows, suite, looks, *more, **options)

    monkeypatch.setattr(module, "next_results", noted)
    return rounds


def made_up(rounds: int) -> tuple[list[TrialRow], Plan]:
    """Six cells in so many rounds: some are decided early, some late, some never."""
    random = np.random.default_rng(11)
    rows: list[TrialRow] = []
    for at, rate in enumerate((100.0, 130.0, 104.0, 101.0, 100.2, 97.0)):
        rows += repeats(workers(at), rate, tuple(random.normal(0, 0.004 * (1 + at % 3), 7))[:rounds])
    rows = at_times(rows)
    looks = [look for look in LOOKS if look.round <= rounds]
    return rows, make_plan([row.trial for row in rows], suite=as_suite(settings()), decide=DecideSettings(budget_s=60.0, looks=looks))


def told(cells: list[Cell]) -> list[Any]:
    return [(cell.name, cell.verdict, cell.decided_after, cell.why_undecided, cell.levels, repr(cell.speedup)) for cell in cells]


def test_verdicts_are_those_of_judging_all_looks_again_for_the_work_of_one(folder: Path, judged: list[int]) -> None:
    for rounds in (3, 4, 5, 6, 7):
        rows, plan = made_up(rounds)
        judged.clear()
        kept = told(cells_of_plan(rows, plan, folder=folder))
        assert judged == [rounds], "earlier looks are not judged again"
        judged.clear()
        assert kept == told(cells_of_plan(rows, plan)) and judged == list(range(3, rounds + 1))
        judged.clear()
        assert kept == told(cells_of_plan(rows, plan, folder=folder)) and judged == []
    assert len({verdict for _, verdict, *_ in kept}) > 1 and len({after for _, _, after, *_ in kept}) > 2


@pytest.mark.parametrize("change", ["a trial", "the file", "the seal"])
def test_what_was_found_of_something_else_does_not_count(folder: Path, judged: list[int], change: str) -> None:
    rows, plan = made_up(5)
    cells_of_plan(rows, plan, folder=folder)
    path = folder / ".looks.json"
    if change == "a trial":
        rows[0] = replace(rows[0], summary={**rows[0].summary, "throughput": 140.0})
    else:
        path.write_text(path.read_text()[:-9] if change == "the file" else path.read_text().replace("undecided", "faster"))
    judged.clear()
    assert told(cells_of_plan(rows, plan, folder=folder)) == told(cells_of_plan(rows, plan))
    assert judged == [3, 4, 5, 3, 4, 5]


def test_what_is_kept_holds_for_what_was_known_of_each_workload() -> None:
    """As a night has several: another spread of one of them is another question."""
    rows, plan = made_up(3)
    mixed = [*rows, *(replace(row, trial=row.trial.model_copy(update={"workload": "another"})) for row in rows)]
    looks = plan.decide.looks if plan.decide else []

    def of(known: dict[str, float]) -> str:
        return inputs_of(mixed, plan.suite, looks, lambda pool, device, workload, metric: Spread(known[workload], 20.0))

    ours = rows[0].trial.workload
    assert of({ours: 0.01, "another": 0.02}) == of({ours: 0.01, "another": 0.02})
    assert len({of({ours: 0.01, "another": 0.02}), of({ours: 0.02, "another": 0.01}), of({ours: 0.01, "another": 0.01})}) == 3
