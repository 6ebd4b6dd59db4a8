"""What a resume says of a sweep of which nothing is left: why, and what could be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.stats.interim_looks import Look
from flows.cli import nothing_to_do as module
from tasks.analysis import results
from tasks.analysis.results import Sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.make_shown import shown_of_loaded
from tasks.report.model import make_report
from tasks.sweep.store import AaSettings, DecideSettings
from tests.tasks.plan_support import make_suite
from tests.tasks.race_support import race_plan, race_rows

DONE = "nothing to do: every trial is done and in MLflow"
APART, ALIKE = ([100.0, 50.0], [100.0, 99.9])  # samples/s of two settings


def said(monkeypatch: pytest.MonkeyPatch, rows: Sequence[TrialRow], *, more: bool = False, **plan: Any) -> str:
    made = race_plan(rows).model_copy(update={"race": None, "command": "sweep run s", **plan})
    store: Any = SimpleNamespace(sweep_id="made-up", dir=Path("made-up"))
    monkeypatch.setattr(results, "load_sweep", lambda folder: Sweep(folder, made, rows))
    monkeypatch.setattr(module, "shown_of", lambda store: shown_of_loaded(Sweep(Path("made-up"), made, rows)))
    return module.nothing_to_do(store, made, more_asked=more)


def rounds(rates: Sequence[float], count: int = 4) -> list[TrialRow]:
    return race_rows(rates, [(0, 1)] * count, sd=0.01)


def test_what_is_undecided_goes_on_with_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that the report gives, and `sweep show`."""
    rows = rounds(ALIKE)
    step = make_report(Sweep(Path("made-up"), race_plan(rows).model_copy(update={"race": None, "command": "sweep run s"}), rows)).next_step
    assert step is not None and step.text == "To decide more, in about 6 s: sweep resume made-up --budget 1m"
    assert said(monkeypatch, rows) == f"{DONE}; to decide more, in about 6 s: {step.command}"


def test_of_a_command_whose_report_gives_no_step_a_resume_goes_on_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "`sweep resume made-up --budget 20m` goes on with what is undecided"
    assert said(monkeypatch, rounds(ALIKE), command="sweep campaign autumn") == f"{DONE}; {hint}"


@pytest.mark.parametrize(("until_decided", "words"), [(None, ""), (True, ""), (False, " --until-decided")])
def test_the_command_that_goes_on_with_what_is_undecided_does_so_too_where_rounds_were_of_all_cells(
    monkeypatch: pytest.MonkeyPatch, until_decided: bool | None, words: str
) -> None:
    """An emulated sweep, whose report gives no step."""
    rows = [replace(row, result=row.result.model_copy(update={"emulated": True})) for row in rounds(ALIKE) if row.result is not None]
    looks = [Look(round=4, spent=0.75)]
    decide = None if until_decided is None else DecideSettings(budget_s=60.0, until_decided=until_decided, looks=looks)
    assert said(monkeypatch, rows, decide=decide) == f"{DONE}; `sweep resume made-up --budget 20m{words}` goes on with what is undecided"


def test_a_campaigns_sweep_has_no_rounds_beyond_its_most(monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = {"command": "sweep campaign autumn", "labels": {"sweep.campaign": "autumn"}}
    decide = DecideSettings(budget_s=60.0, until_decided=True, most=4, looks=[Look(round=4, spent=0.75)])
    full = f"{DONE}, and it has had all rounds that campaign autumn gives it (`rounds.most`)"
    assert said(monkeypatch, rounds(ALIKE), decide=decide, **campaign) == full
    assert said(monkeypatch, rounds(ALIKE), **campaign) == full
    more = said(monkeypatch, rounds(ALIKE), decide=decide.model_copy(update={"most": 5}), **campaign)
    assert more == f"{DONE}; to decide more, in about 2 s: sweep resume made-up --budget 1m"


def test_what_no_sensible_number_of_rounds_decides_gets_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = DecideSettings(budget_s=60.0, until_decided=True, looks=[Look(round=4, spent=0.75)])
    rows = race_rows([100.0, 102.0], [(0, 1)] * 4, sd=0.2)
    no_hope = f"{DONE}, and no sensible number of further rounds would decide what is open"
    assert said(monkeypatch, rows, decide=decide) == no_hope
    assert said(monkeypatch, rows) == no_hope, "nor of a sweep whose trials were all planned at the start"


@pytest.mark.parametrize("more", [False, True])
def test_what_is_decided_goes_on_only_if_all_cells_are_to(monkeypatch: pytest.MonkeyPatch, more: bool) -> None:
    decide = DecideSettings(budget_s=60.0, until_decided=True, looks=[Look(round=4, spent=0.75)])
    hint = "`sweep resume made-up --budget 20m --no-until-decided` measures all cells in further rounds"
    assert said(monkeypatch, rounds(APART), more=more, decide=decide) == f"{DONE}, and no comparison is undecided; {hint}"


def test_a_sweep_that_is_full_says_what_limits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = DecideSettings(budget_s=60.0, until_decided=True, looks=[Look(round=4, spent=0.75)])
    full = f"{DONE}, and no other round can be added: `limit` in the suite says how many trials it may have"
    assert said(monkeypatch, rounds(ALIKE), more=True, decide=decide) == full
    assert said(monkeypatch, rounds(APART), more=True, decide=decide.model_copy(update={"until_decided": False})) == full


def test_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rounds(APART)
    assert said(monkeypatch, rows, race=race_plan(rows).race) == f"{DONE}, and the race is decided; `sweep tune` starts another"
    rows = rounds(ALIKE, 2)
    hint = "to decide more, in about 4 s: sweep resume made-up --budget 4s"
    assert said(monkeypatch, rows, race=race_plan(rows).race) == f"{DONE}, and no other round fits; {hint}"


def test_sweeps_that_have_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rounds(ALIKE)
    more_pairs = f"{DONE}; `sweep aa` measures more pairs in a sweep of their own"
    assert said(monkeypatch, rows, aa=AaSettings(pairs=2)) == more_pairs
    assert said(monkeypatch, rows, suite=make_suite("nightly-regression")) == DONE
