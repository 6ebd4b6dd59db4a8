"""The held time of a sweep on disk, and what is kept of it for published results."""

from __future__ import annotations

import pytest

from experiments.trial import Outcome
from tasks.analysis.held_files import held_of, keep_held, read_kept
from tasks.analysis.results import load_sweep
from tests.tasks.held_support import write_held
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_it_comes_from_slots_journals_and_results() -> None:
    one, failed = make_trial(1), make_trial(2)
    store = saved(make_plan([one, failed]), t1=Outcome.OK, t2=Outcome.CRASHED)
    for trial in (one, failed):
        write_held(store, trial)
    held = held_of(load_sweep(store.dir))
    assert held is not None
    assert [(trial.trial, trial.parts.get("measured"), trial.parts.get("discarded")) for trial in held.trials] == [
        (one.key, pytest.approx(4.0), None),
        (failed.key, None, pytest.approx(10.0)),
    ]
    assert held.seconds == pytest.approx(20.0) and held.measured_share == pytest.approx(0.2)


def test_what_was_superseded_or_is_damaged_is_not_measured() -> None:
    one, old = make_trial(1), make_trial(2)
    store = saved(make_plan([one]), t1=Outcome.OK)
    (store.dir / "trials" / old.key).mkdir()
    for trial in (one, old):
        write_held(store, trial)
    held = held_of(load_sweep(store.dir))
    assert held is not None and held.trials[1].parts == {"discarded": 10.0}
    path = store.trial_dir(one.key) / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"imports"', b'"exports"'))
    held = held_of(load_sweep(store.dir))
    assert held is not None and held.trials[0].parts == {"launch": 10.0}


def test_emulated_trials_stand_apart() -> None:
    one, emulated = make_trial(1), make_trial(2, emulated=True)
    store = saved(make_plan([one, emulated]), t1=Outcome.OK, t2=Outcome.OK)
    write_held(store, emulated)
    sweep = load_sweep(store.dir)
    assert held_of(sweep) is None
    found = held_of(sweep, emulated=True)
    assert found is not None and [trial.trial for trial in found.trials] == [emulated.key] and found.trials[0].emulated


def test_what_is_kept_replaces_what_is_not_published(caplog: pytest.LogCaptureFixture) -> None:
    trial = make_trial(1)
    store = saved(make_plan([trial]), t1=Outcome.OK)
    sweep = load_sweep(store.dir)
    keep_held(sweep)
    kept = store.dir / "held_time.json"
    assert not kept.exists() and held_of(sweep) is None, "nothing was recorded"
    write_held(store, trial)
    keep_held(sweep)
    derived = held_of(sweep)
    (store.dir / "slots.jsonl").unlink()
    assert derived is not None and held_of(sweep) == derived == read_kept(store.dir)
    kept.write_text("{")
    assert read_kept(store.dir) is None and "held_time.json, line 1: is not JSON" in caplog.text
