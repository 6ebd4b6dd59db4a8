"""`sweep publish`: what is not as the sweep left it is refused, with the file and the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.journal.journal import JournalWriter
from experiments.config.paths import runs_root
from experiments.json_file import seal_of
from tasks.analysis.results import load_sweep, write_steps
from tasks.report.page_folder import PublishError
from tasks.report.publish import publish
from tasks.report.whole_sweep import why_not_whole
from tasks.sweep.store import SweepStore
from tests.tasks.fake_sweep import SWEEP_ID, TREE, make_sweep, trial_dirs
from tests.tasks.report.publish_support import OTHER_ID, edit, fakes, whole

Break = Callable[[SweepStore, list[Path]], None]


def splice(store: SweepStore, trials: list[Path]) -> None:
    """Another sweep's trial in the place of this one's, as by hand."""
    other = whole(OTHER_ID)
    source = trial_dirs(other.dir)[1]
    shutil.rmtree(trials[1])
    shutil.copytree(source, trials[1])


def resealed(store: SweepStore, trials: list[Path]) -> None:
    """Another sweep's trial in the plan, sealed anew."""
    plan = json.loads((store.dir / "plan.json").read_text())
    plan["trials"][0]["sweep_id"] = OTHER_ID
    edit(store.dir / "plan.json", **{**plan, "seal": seal_of(plan)})


def other_journal(store: SweepStore, trials: list[Path]) -> None:
    shutil.copyfile(trials[0] / "journal.jsonl", trials[1] / "journal.jsonl")
    write_steps(trials[1])


def edited_steps(store: SweepStore, trials: list[Path]) -> None:
    import pyarrow.compute as pc

    table = pq.read_table(trials[1] / "steps.parquet")
    faster = table.set_column(table.column_names.index("total_s"), "total_s", pc.multiply(table["total_s"], 0.9))
    pq.write_table(faster, trials[1] / "steps.parquet")


def edited_journal(store: SweepStore, trials: list[Path]) -> None:
    text = (trials[1] / "journal.jsonl").read_text()
    (trials[1] / "journal.jsonl").write_text(text.replace('"samples":8', '"samples":9', 1))


BROKEN: dict[str, tuple[Break, str]] = {
    "edited plan": (lambda store, trials: edit(store.dir / "plan.json", command="x"), r"plan\.json was changed after it was written"),
    "early plan": (lambda store, trials: edit(store.dir / "plan.json", schema_version=2, seal="x"), r"plan\.json was changed after"),
    "spliced trial": (splice, r"trial\.json is of trial \w{16}"),
    "spliced plan": (resealed, rf"plan\.json: trial \w+ belongs to sweep {OTHER_ID}"),
    "edited trial": (lambda store, trials: edit(trials[1] / "trial.json", index=7), r"trial\.json differs from the trial in the plan"),
    "no trial": (
        lambda store, trials: (trials[1] / "trial.json").unlink(),
        r"trial\.json does not exist: `sweep resume made-up-.*` writes it again",
    ),
    "to do": (
        lambda store, trials: (trials[1] / "result.json").unlink(),
        r"result\.json does not exist: the trial is still to do: `sweep resume made-up-",
    ),
    "damaged": (
        lambda store, trials: edit(trials[1] / "result.json", attempt=0),
        r"result\.json, attempt: is 0: Input should be",
    ),
    "other result": (lambda store, trials: edit(trials[1] / "result.json", key="0" * 16), r"result\.json is of trial 0{16}"),
    "infra": (
        lambda store, trials: edit(trials[1] / "result.json", outcome="infra"),
        r"result\.json: the trial ended as infra; `sweep resume",
    ),
    "other outcome": (
        lambda store, trials: edit(trials[2] / "result.json", outcome="ok"),
        r"journal\.jsonl does not end as ok, and result",
    ),
    "other attempt": (
        lambda store, trials: edit(trials[1] / "result.json", attempt=2),
        r"journal\.jsonl is of attempt 1, and result.json of",
    ),
    "no journal": (lambda store, trials: (trials[1] / "journal.jsonl").unlink(), r"journal\.jsonl does not exist"),
    "other journal": (other_journal, r"journal\.jsonl, line 1: is of trial \w{16}, not of \w{16}"),
    "edited journal": (edited_journal, r"journal\.jsonl"),
    "edited steps": (edited_steps, r"steps\.parquet is not what journal\.jsonl beside it gives"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_as_the_flow_left_it_is_refused_by_name(name: str, tmp_path: Path) -> None:
    store = whole()
    damage, message = BROKEN[name]
    damage(store, trial_dirs(store.dir))
    with pytest.raises(PublishError, match=f"nothing was published:\n- .*{message}"):
        publish([store], tmp_path / "page")
    assert [path.name for path in tmp_path.iterdir() if "page" in path.name] == [], "nothing is left half done"


def test_only_a_trial_that_ended_before_it_began_needs_no_journal(tmp_path: Path) -> None:
    store = whole()
    lost = trial_dirs(store.dir)[2]
    (lost / "journal.jsonl").unlink()
    assert why_not_whole(store) == [f"{lost / 'journal.jsonl'} does not exist"], "its steps are from nowhere"
    (lost / "steps.parquet").unlink()
    assert why_not_whole(store) == []
    publish([store], tmp_path / "page")
    assert [row.outcome for row in load_sweep(tmp_path / "page" / SWEEP_ID).rows].count("crashed") == 1


def test_a_retry_that_was_lost_stops_no_publication(tmp_path: Path) -> None:
    store = whole()
    folder = trial_dirs(store.dir)[1]
    before = load_sweep(store.dir).rows[1]
    with JournalWriter(folder / "journal.jsonl", attempt=2, interval=60, trial=folder.name) as journal:
        journal.append("step", step=1, measured=True, loss=9.0, samples=8, total_s=1.0)
    assert why_not_whole(store) == [f"{folder / 'steps.parquet'} is not what journal.jsonl beside it gives; `sweep report` writes it again"]
    write_steps(folder)
    assert why_not_whole(store) == []
    publish([store], tmp_path / "page")
    after = load_sweep(tmp_path / "page" / SWEEP_ID).rows[1]
    assert after.losses.tolist() == before.losses.tolist() and dict(after.summary) == dict(before.summary)


def test_steps_that_were_never_derived_are_no_problem(tmp_path: Path) -> None:
    store = SweepStore(make_sweep(runs_root(), fakes()).name)
    assert why_not_whole(store) == []


def test_more_than_one_tree_is_refused(tmp_path: Path) -> None:
    made = fakes()
    made[1].environment = {"tree": "f" * 16}
    store = whole(made=made)
    anew = f"measure all anew, and change no code meanwhile: `{store.load_plan().command}`"
    assert why_not_whole(store) == [f"{store.dir}: tree {'f' * 16} ran in 2 of 5 trials, and tree {TREE} was planned; {anew}"]


def test_a_sweep_that_is_worked_on_is_refused() -> None:
    store = whole()
    with store.lease():
        assert why_not_whole(store) == [f"{store.dir}: a process works on it; `sweep stop {store.sweep_id}` ends it"]
