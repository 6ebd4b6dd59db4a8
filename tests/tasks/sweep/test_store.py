"""A sweep's folder: what is written whole, what is damaged, who holds it, and what the whole ended as."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from pathlib import Path

import pytest
from filelock import FileLock

from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.json_file import seal_of, sealed_text
from experiments.trial import Outcome
from tasks.sweep import store as module
from tasks.sweep.store import StoreError, SweepBusy, SweepStore, exit_status, list_sweeps, new_sweep_id, read_plan
from tasks.sweep.what_is_left import what_is_left
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_result, make_trial, saved


@pytest.mark.parametrize("sweep_id", ["made_up", "../up-20260101-000000-0000", "Made-20260101-000000-0000", "m-20260101-000000-00", ""])
def test_what_is_no_sweep_id_is_refused(sweep_id: str) -> None:
    with pytest.raises(StoreError, match="is not a sweep id"):
        SweepStore(sweep_id)


def test_a_new_id_is_one_and_says_when_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((2026, 11, 20, 23, 15, 2, 4, 324, 0)))
    made = new_sweep_id("bridgetower")
    assert re.fullmatch(r"bridgetower-20261120-231502-[0-9a-f]{4}", made)
    assert SweepStore(made).sweep_id == made


# --- files


def test_a_plan_is_read_as_it_was_saved() -> None:
    plan = make_plan([make_trial(1), make_trial(2)], labels={"night": "x"}, git={"commit": "c"})
    store = SweepStore(plan.sweep_id)
    assert not store.exists()
    store.save_plan(plan)
    assert store.exists() and SweepStore(plan.sweep_id).load_plan() == plan
    told = [json.loads((store.trial_dir(trial.key) / "trial.json").read_text()) for trial in plan.trials]
    assert [{**one, "seal": None} for one in told] == [{**trial.model_dump(mode="json"), "seal": None} for trial in plan.trials]
    assert [one["seal"] for one in told] == [seal_of(one) for one in told]


def test_what_a_worker_was_told_is_not_written_anew() -> None:
    store = saved(make_plan([make_trial(1)]))
    store.save_plan(make_plan([make_trial(1, index=9), make_trial(2)]))
    told = {trial.key: json.loads((store.trial_dir(trial.key) / "trial.json").read_text())["index"] for trial in store.load_plan().trials}
    assert list(told.values()) == [0, 1]


def test_a_plan_that_is_not_there_or_not_readable_is_named() -> None:
    store = SweepStore(SWEEP_ID)
    with pytest.raises(StoreError, match=f"there is no sweep {SWEEP_ID}"):
        store.load_plan()
    store.dir.mkdir(parents=True)
    (store.dir / "plan.json").write_text("{}")
    with pytest.raises(DamagedFile, match=re.escape(f"{store.dir / 'plan.json'}, sweep_id: is missing, and ")):
        store.load_plan()
    (store.dir / "plan.json").unlink()
    (store.dir / "trials").mkdir()
    with pytest.raises(DamagedFile, match=re.escape(f"{store.dir / 'plan.json'} is missing, though the sweep has trials")):
        store.load_plan()


@pytest.mark.parametrize("key", ["../../../evil", "/evil", "a/b", "", "..", "a\n", "x" * 65])
def test_a_key_that_leads_out_of_the_sweep_is_refused_and_nothing_is_written(key: str, tmp_path: Path) -> None:
    store = saved(make_plan([make_trial(1)]))
    path = store.dir / "plan.json"
    content = json.loads(path.read_text())
    content["trials"][0]["key"] = key
    path.write_text(json.dumps({**content, "seal": seal_of(content)}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DamagedFile, match=re.escape(str(path)) + r", trials\[0\]\.key: is .*: String should match pattern"):
        store.load_plan()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("version", [0, 4, 99])
def test_a_plan_of_a_later_version_is_refused(version: int) -> None:
    store = saved(make_plan([make_trial(1)]))
    path = store.dir / "plan.json"
    content = {**json.loads(path.read_text()), "schema_version": version}
    path.write_text(json.dumps({**content, "seal": seal_of(content)}))
    with pytest.raises(DamagedFile, match=re.escape(str(path)) + rf", schema_version: is {version}: Input should be"):
        store.load_plan()


def test_results_are_read_as_they_were_saved_and_a_damaged_one_is_named() -> None:
    trial = make_trial(1)
    store = saved(make_plan([trial]))
    assert store.result(trial.key) is None
    result = make_result(trial, Outcome.HANG, attempt=3)
    store.save_result(result)
    assert store.result(trial.key) == result
    path = store.trial_dir(trial.key) / "result.json"
    path.write_text(path.read_text()[:-10])
    with pytest.raises(DamagedFile, match=re.escape(str(path)) + ", line [0-9]+: is not JSON .*; `sweep resume` keeps it aside"):
        store.result(trial.key)


def test_a_sweep_that_was_killed_while_it_was_planned_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is there before the first file of a trial: trials without a plan would be a sweep that nobody can read."""
    plan = make_plan([make_trial(1), make_trial(2)])
    store = SweepStore(SWEEP_ID)
    written: list[str] = []

    def killed(path: Path, text: str) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path.name)
        atomic_write(path, text)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "atomic_write", killed)
        store.save_plan(plan)
    assert written == ["plan.json", "trial.json"], "the fault fired"
    assert store.load_plan() == plan and list_sweeps() == [SWEEP_ID]
    assert [trial.key for trial in what_is_left(store, plan).rest] == [trial.key for trial in plan.trials]
    store.save_plan(store.load_plan())
    assert all((store.trial_dir(trial.key) / "trial.json").exists() for trial in plan.trials)


def test_a_plan_is_named_by_its_suite() -> None:
    plan = make_plan([make_trial(1, suite="of_the_trial")])
    assert plan.name == "of_the_trial"


# --- the lease


def test_a_sweep_is_held_by_one_at_a_time_who_is_named() -> None:
    store = saved(make_plan([make_trial(1)]))
    assert not store.is_held()
    with store.lease():
        assert store.is_held()
        other = SweepStore(SWEEP_ID)
        with (
            pytest.raises(SweepBusy, match=f"is being worked on by process {os.getpid()} on {os.uname().nodename}; `sweep stop"),
            other.lease(),
        ):
            pass
        assert store.is_held() and (store.dir / ".holder.json").exists()  # the one refused took nothing away
    assert not store.is_held() and not (store.dir / ".holder.json").exists()
    with store.lease():
        pass


def test_who_asks_whether_a_sweep_is_held_is_not_taken_for_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sweep list` has the lock for a moment when it asks."""
    store = saved(make_plan([make_trial(1)]))
    (store.dir / ".lease").touch()
    asks = os.open(store.dir / ".lease", os.O_RDONLY)
    fcntl.flock(asks, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: fcntl.flock(asks, fcntl.LOCK_UN))
    with store.lease():
        assert store.is_held()
    os.close(asks)


def test_a_lease_ends_with_what_failed_under_it() -> None:
    store = saved(make_plan([make_trial(1)]))
    with pytest.raises(ZeroDivisionError), store.lease():
        raise ZeroDivisionError
    assert not store.is_held()


@pytest.mark.parametrize("holder", [None, "", '{"pid": 1}'])
def test_a_holder_that_has_not_said_who_it_is(holder: str | None) -> None:
    store = saved(make_plan([make_trial(1)]))
    if holder is not None:
        (store.dir / ".holder.json").write_text(holder)
    with FileLock(store.dir / ".lease"), pytest.raises(SweepBusy, match="by another process"), SweepStore(SWEEP_ID).lease():
        pass


def test_a_request_to_stop_is_for_who_holds_the_sweep_then_and_not_for_the_next() -> None:
    store = saved(make_plan([make_trial(1)]))
    assert store.stop_reason() is None
    with store.lease():
        store.request_stop("enough")
        assert store.stop_reason() == "enough"
    assert store.stop_reason() == "enough"  # the report still says so
    with store.lease():
        assert store.stop_reason() is None


# --- what became of it


def test_flow_runs_are_kept_in_order() -> None:
    store = saved(make_plan([make_trial(1)]))
    assert store.flow_runs() == []
    store.add_flow_run("b")
    store.add_flow_run("a")
    assert store.flow_runs() == ["b", "a"]


def test_the_status_is_kept() -> None:
    store = saved(make_plan([make_trial(1)]))
    assert store.load_status() is None
    store.save_status(2, "some failed")
    found = store.load_status()
    assert found is not None and (found.status, found.message) == (2, "some failed")


def test_each_trial_has_a_state_by_its_key() -> None:
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3)])
    store = saved(plan, t1=Outcome.OK, t3=Outcome.INFRA)
    assert list(store.states(plan).values()) == [Outcome.OK, None, Outcome.INFRA]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([], 0),
        (["ok", "does_not_fit", "unsupported"], 0),
        (["ok", "diverged"], 2),
        (["ok", "hang"], 2),
        (["ok", "crashed"], 2),
        (["ok", "infra"], 2),
        (["ok", "cancelled"], 1),
        (["ok", None], 1),
        (["crashed", "cancelled"], 1),
        ([None, "crashed"], 1),
    ],
)
def test_the_exit_status_of_a_sweep(outcomes: list[str | None], status: int) -> None:
    assert exit_status({str(i): Outcome(name) if name else None for i, name in enumerate(outcomes)}) == status


def test_sweeps_are_listed_newest_first_whatever_their_names(tmp_path: Path) -> None:
    ids = ["b-20260101-000000-0000", "a-20260301-000000-0000", "c-20260201-000000-ffff", "z-20260201-000000-0000"]
    for sweep_id in ids:
        saved(make_plan([], sweep_id=sweep_id))
    (SweepStore("e-20270101-000000-0000").dir).mkdir()  # nothing planned yet
    for name in ("data", "not a sweep"):
        (SweepStore(ids[0]).dir.parent / name).mkdir()
        (SweepStore(ids[0]).dir.parent / name / "plan.json").write_text("{}")
    assert list_sweeps() == [ids[1], ids[2], ids[3], ids[0]]
    assert list_sweeps(tmp_path / "nowhere") == []


# --- plans of earlier versions


def test_a_night_of_schema_1_is_read_with_a_complete_suite(tmp_path: Path) -> None:
    """Nights kept only those keys of a suite that a report reads, and an empty list for no columns."""
    plan = make_plan([make_trial(1), make_trial(2)])
    data = json.loads(plan.model_dump_json())
    report = {"rows": ["suite", "pool"], "columns": [], "metric": "throughput", "title": "Night: small"}
    kept = {"suite": "nightly-small", "description": "Two cells.", "retries": 1, "hang_timeout_s": 60.0, "report": report}
    path = tmp_path / "nightly-small-20260101-000000-0000" / "plan.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**data, "schema_version": 1, "suite": kept}))
    suite = read_plan(path).suite
    assert (suite.suite, suite.description, suite.retries, suite.hang_timeout_s) == ("nightly-small", "Two cells.", 1, 60.0)
    assert (suite.report.rows, suite.report.columns, suite.report.title) == (["suite", "pool"], None, "Night: small")
    assert (suite.workload, suite.profile, suite.file, suite.repeats, suite.limit) == ("", "nightly", "", 1, 2)
    assert [suite.pools, suite.fixed, suite.axes, suite.sets, suite.only, suite.baseline] == [{}] * 6
    assert [suite.linked, suite.conditions, suite.exclude, suite.include] == [[]] * 4


def test_a_night_of_this_version_is_read_as_it_is(tmp_path: Path) -> None:
    plan = make_plan([make_trial(1)])
    path = tmp_path / "nightly-small-20260101-000000-0000" / "plan.json"
    path.parent.mkdir()
    path.write_text(sealed_text(plan))
    assert read_plan(path) == plan


@pytest.mark.parametrize(
    ("outcome", "left"), [(Outcome.OK, False), (Outcome.CRASHED, False), (Outcome.INFRA, True), (Outcome.CANCELLED, True), (None, True)]
)
def test_what_a_killed_flow_was_writing_is_removed_where_nobody_writes_it_now(outcome: Outcome | None, left: bool) -> None:
    """Of a trial whose result is not final a process may be writing the next one."""
    trial = make_trial(1)
    store = saved(make_plan([trial]))
    if outcome is not None:
        store.save_result(make_result(trial, outcome))
    part, other = (store.trial_dir(trial.key) / name for name in (".result.json.0123abcd.tmp", ".trial.json.0123abcd.tmp"))
    part.touch()
    other.touch()
    with store.lease():
        assert part.exists() is left and other.exists(), "only of the file that was asked for"
    (store.trial_dir(trial.key) / "trial.json").unlink()
    store.tell_trials(make_plan([trial]))
    assert not other.exists() and part.exists() is left


def test_what_lies_beside_a_damaged_result_stays() -> None:
    trial = make_trial(1)
    store = saved(make_plan([trial]))
    part = store.trial_dir(trial.key) / ".result.json.0123abcd.tmp"
    part.touch()
    (store.trial_dir(trial.key) / "result.json").write_text("{")
    with store.lease():
        assert part.exists()
