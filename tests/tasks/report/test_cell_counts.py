"""How many cells a report speaks of: those that can run and those that are unsupported are told apart, the same way in every line."""

from __future__ import annotations

import json

import pytest

from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.report.cell_counts import per_cell
from tasks.report.html import render_html
from tasks.report.model import make_report
from tasks.report.publish import publish
from tasks.report.published_pages import sweep_on_page
from tests.tasks.fake_sweep import SWEEP_ID, Fake, trial_dirs, whole_sweep


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ({}, ("no", "0 cells")),
        ({"a": ["ok"], "b": ["crashed"]}, ("1", "2 cells; 1 of 2 crashed")),
        ({"a": ["ok", "does_not_fit", "to do"], "b": ["hang", "crashed", "crashed"]}, ("3", "2 cells; 2 of 6 crashed, 1 hang")),
        ({"a": ["ok", "crashed"], "b": ["unsupported"]}, ("2", "1 cell (1 more is unsupported); 1 of 2 crashed")),
        ({"a": ["ok", "ok", "ok"], "b": ["ok", "ok"], "c": ["unsupported"]}, ("2 to 3", "2 cells (1 more is unsupported)")),
        ({"a": ["ok"], "b": ["unsupported"], "c": ["unsupported"]}, ("1", "1 cell (2 more are unsupported)")),
        ({"a": ["ok", "unsupported"]}, ("2", "1 cell")),
        ({"a": ["unsupported"] * 2, "b": ["unsupported"]}, ("1 to 2", "2 cells, all of which are unsupported")),
        ({"a": ["unsupported"]}, ("1", "1 cell, which is unsupported")),
    ],
)
def test_trials_of_each_cell(outcomes: dict[str, list[str]], said: tuple[str, str]) -> None:
    assert per_cell((cell, outcome) for cell, ended in outcomes.items() for outcome in ended) == said


def test_every_line_of_a_sweep_with_unsupported_cells_counts_alike() -> None:
    """Six cells run and four do not, twice each: the list of outcomes has eight rows."""
    axes = {"pool": "cpu", "model": "base"}
    fakes = [Fake({**axes, "dataloader_workers": count}, 100.0, repeats=2) for count in range(6)]
    no = {"outcome": Outcome.UNSUPPORTED, "reason": "no fp8", "repeats": 2}
    fakes += [Fake({**axes, "dataloader_workers": count}, **no) for count in range(6, 10)]
    store = whole_sweep(runs_root(), fakes)
    report = make_report(load_sweep(store.dir))
    assert report.label == "6 cells compared (4 more are unsupported)"
    assert f'<p class="label">{report.label}</p>' in render_html(report)
    assert [one.sentence.partition(" (")[0] for one in report.missing] == ["4 cells are unsupported where they ran"]
    outcomes = report.section("outcomes")
    assert outcomes.text == "Every trial that did not end ok: 8 trials of 4 cells." and len(outcomes.table.rows) == 8
    readme = publish([store], runs_root() / "page")
    assert "- **Trials:** 2 for each of 6 cells (4 more are unsupported)\n" in readme.read_text()
    assert sweep_on_page(readme.parent / SWEEP_ID).trials == "2 trials for each of 6 cells (4 more are unsupported)"


def test_references_of_loss_parity_are_no_cells_on_a_page_either() -> None:
    axes = {"pool": "cpu", "model": "base"}
    store = whole_sweep(runs_root(), [Fake({**axes, "dataloader_workers": count}, 100.0, repeats=2 + (count == 2)) for count in range(3)])
    plan = store.load_plan()
    trials = [trial.model_copy(update={"reference": trial.axes["dataloader_workers"] == 2}) for trial in plan.trials]
    store.save_plan(plan.model_copy(update={"trials": trials}))
    for trial in trials:
        (store.trial_dir(trial.key) / "trial.json").write_text(trial.model_dump_json())
    assert make_report(load_sweep(store.dir)).label == "2 cells compared"
    readme = publish([store], runs_root() / "page")
    assert "- **Trials:** 2 for each of 2 cells, and 3 of references for their loss alone\n" in readme.read_text()
    assert sweep_on_page(readme.parent / SWEEP_ID).trials == "2 trials for each of 2 cells"


def test_trials_that_other_work_disturbed_are_counted_beside_all() -> None:
    store = whole_sweep(
        runs_root(), [Fake({"pool": "cpu", "model": "base", "dataloader_workers": count}, 100.0, repeats=3) for count in (0, 1)]
    )
    for trial in trial_dirs(store.dir)[:2]:
        result = json.loads((trial / "result.json").read_text())
        (trial / "result.json").write_text(json.dumps({**result, "disturbed": "another process was on the device"}))
    readme = publish([store], runs_root() / "page")
    assert "- **Trials:** 3 for each of 2 cells; other work disturbed 2 of 6\n" in readme.read_text()
    assert sweep_on_page(readme.parent / SWEEP_ID).trials == "3 trials for each of 2 cells; other work disturbed 2 of 6"
