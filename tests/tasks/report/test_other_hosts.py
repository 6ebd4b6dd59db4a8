"""Which published sweeps count as the same on other hosts, and how their pages name each other. All numbers are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.paths import runs_root
from experiments.trial import Trial
from tasks.report.other_hosts import on_other_hosts
from tasks.report.publish import publish
from tasks.report.published_pages import Page, SweepOnPage
from tasks.report.republish import republish
from tasks.sweep.store import AaSettings, Plan
from tests.tasks.fake_sweep import Fake, whole_sweep
from tests.tasks.plan_support import make_plan, make_trial

ONE, TWO = make_trial(1), make_trial(2)
REFERENCE = make_trial(3, reference=True)


def page(name: str, plan: Plan, host: str) -> Page:
    ran_on = {trial.key: ("Made-up CPU", 1) for trial in plan.trials}
    return Page(Path(name), name, [SweepOnPage(Path(name) / "sweep", plan, "", "", "", 3, None, ran_on, frozenset({host}))])


def are_same(here: Plan, there: Plan) -> bool:
    return bool(on_other_hosts([page("here", here, "a"), page("there", there, "b")]))


@pytest.mark.parametrize(
    ("trials", "cut", "same"),
    [
        ([ONE, TWO], [], True),
        ([ONE], [TWO], True),  # time cut what was asked for all the same
        ([ONE, TWO, REFERENCE], [], True),  # of loss parity, which is no cell
        ([ONE], [], False),
    ],
)
def test_they_were_to_measure_the_same_cells(trials: list[Trial], cut: list[Trial], same: bool) -> None:
    assert are_same(make_plan([ONE, TWO]), make_plan(trials, cut=cut)) is same


def test_one_cell_against_itself_is_no_sweep_of_its_suite() -> None:
    plain = make_plan([ONE, TWO])
    against_itself = plain.model_copy(update={"aa": AaSettings(pairs=3)})
    assert not are_same(plain, against_itself) and are_same(against_itself, against_itself)


def published(root: Path, page: str, host: str, *, workers: int = 0) -> str:
    """What is said of other hosts on the page of a sweep that this host measured."""
    day = len(list(root.iterdir())) + 1
    fakes = [Fake({"pool": "cpu", "dataloader_workers": count}, environment={"host_id": host}) for count in (workers, workers + 1)]
    return said(publish([whole_sweep(runs_root(), fakes, sweep_id=f"made-up-202601{day:02}-000000-0000")], root / page))


def said(readme: Path) -> str:
    start = "- **The same on another host:** "
    return " and ".join(line.removeprefix(start) for line in readme.read_text().splitlines() if line.startswith(start))


def test_a_page_names_those_beside_it_that_have_the_same_on_another_host(tmp_path: Path) -> None:
    root = tmp_path / "results"
    root.mkdir()
    assert published(root, "first", "a") == ""
    assert published(root, "asks other", "b", workers=2) == ""
    assert published(root, "again", "a") == "", "on the same host"
    assert published(root, "second host", "b") == "[again](../again/README.md), [first](../first/README.md)"
    lines = (root / "second host" / "README.md").read_text().split("How it was measured:\n\n")[1].splitlines()
    assert all(line.startswith("- ") for line in lines[: lines.index("")]) and "**Sweep:**" in lines[lines.index("") - 1], "one list"
    assert said(root / "first" / "README.md") == "", "it was written before"
    assert said(republish(root / "first")) == "[second host](../second%20host/README.md)"
    assert said(republish(root / "second host")).count("](") == 2


@pytest.mark.parametrize("damaged", ["manifest.json", "plan.json", "results.parquet", "README.md"])
def test_a_page_that_cannot_be_read_or_is_half_written_keeps_no_other_from_being_written(tmp_path: Path, damaged: str) -> None:
    root = tmp_path / "results"
    root.mkdir()
    assert published(root, "first", "a") == "" and published(root, ".second.tmp", "a") == ""
    [file] = root.glob(f"first/**/{damaged}")
    file.write_bytes(b"\xff{")
    assert published(root, "second", "b") == ""
