"""Which cells take part in a sweep's next round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.trial import Outcome
from tasks.analysis.round_cells import running_cells
from tests.tasks.cell_support import row, settings, workers
from tests.tasks.fake_sweep import as_suite
from tests.tasks.plan_support import make_plan


@pytest.mark.parametrize(("seeds", "rounds", "with_reference"), [(3, 2, True), (3, 3, False), (0, 1, False)])
def test_a_reference_runs_until_it_has_its_seeds(seeds: int, rounds: int, with_reference: bool) -> None:
    one, other = row(workers(0)), row(workers(1))
    reference = replace(other, trial=other.trial.model_copy(update={"reference": True}))
    plan = make_plan([one.trial, reference.trial], suite=as_suite({**settings(), "parity_reference": seeds}))
    cells = [one.trial.cell, *([reference.trial.cell] if with_reference else [])]
    assert running_cells(plan, [one, reference], rounds) == cells


def test_what_never_ended_ok_or_keeps_failing_does_not_run() -> None:
    crash = {"outcome": Outcome.CRASHED}
    well = [row(workers(0), repeat=1), row(workers(0), None, repeat=2, **crash)]
    failing = [row(workers(1), repeat=1), *(row(workers(1), None, repeat=at, **crash) for at in (2, 3))]
    never = [row(workers(2), None, repeat=1, **crash)]
    rows = [*well, *failing, *never]
    assert running_cells(make_plan([one.trial for one in rows], suite=as_suite(settings())), rows, 3) == [well[0].trial.cell]
