"""The held time of a sweep on disk, and what is kept of it for published results."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from experiments.trial import Outcome
from tasks.analysis.held_files import held_of, keep_held, read_kept
from tasks.analysis.held_time import Ended
from tasks.analysis.results import load_sweep
from tests.tasks.held_support import write_held
from tests.tasks.plan_support import make_plan, make_trial, saved


def test_it_comes_from_slots_journals_and_results() -> None:
    one, failed, large = make_trial(1), make_trial(2), make_trial(3)
    store = saved(make_plan([one, failed, large]), t1=Outcome.OK, t2=Outcome.CRASHED, t3=Outcome.DOES_NOT_FIT)
    for trial in (one, failed, large):
        write_held(store, trial)
    held = held_of(load_sweep(store.dir))
    assert held is not None
    assert [trial.trial for trial in held.trials] == [one.key, failed.key, large.key]
    assert held.trials[0].parts["measured"] == pytest.approx(4.0)
    assert [trial.parts for trial in held.trials[1:]] == [{"failed": pytest.approx(10.0)}, {"no_rate": pytest.approx(10.0)}]
    assert held.seconds == pytest.approx(30.0) and held.measured_share == pytest.approx(4 / 30)


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


def test_what_an_early_file_called_discarded_is_named_as_far_as_it_is_known() -> None:
    """Before schema 2 all of a trial without a rate was. Of one that was tried several times it is not known how long the last one took."""
    trials = {number: make_trial(number) for number in range(1, 6)}
    ended = {1: Ended(2), 2: Ended(1, "no_rate"), 3: Ended(1, "failed"), 4: Ended(3, "failed")}
    kept = [
        {"trial": trial.key, "pool": "cpu", "parts": {"between": 1.0, "not_recorded": 0.5, "discarded": 9.0}, "emulated": False}
        for trial in trials.values()
    ]
    store = saved(make_plan(list(trials.values())))
    path = store.dir / "held_time.json"

    def read(version: int, *, known: bool = True) -> list[Mapping[str, float]]:
        path.write_text(json.dumps({"schema_version": version, "slots": 1, "trials": kept}))
        held = read_kept(store.dir, {trials[number].key: one for number, one in ended.items() if known})
        assert held is not None and held.seconds == 5 * 10.5
        return [{name: seconds for name, seconds in trial.parts.items() if name != "between"} for trial in held.trials]

    stays = {"not_recorded": 0.5, "discarded": 9.0}
    assert read(1) == [stays, {"not_recorded": 0.5, "no_rate": 9.0}, {"not_recorded": 0.5, "failed": 9.0}, {"not_recorded": 9.5}, stays]
    assert read(1, known=False) == [stays] * 5 == read(2)


def test_of_a_published_sweep_with_an_early_file_its_results_tell_what_was_discarded() -> None:
    large = make_trial(1)
    store = saved(make_plan([large]), t1=Outcome.DOES_NOT_FIT)
    kept = {"trial": large.key, "pool": "cpu", "parts": {"discarded": 9.0}, "emulated": False}
    (store.dir / "held_time.json").write_text(json.dumps({"schema_version": 1, "slots": 1, "trials": [kept]}))
    held = held_of(load_sweep(store.dir))
    assert held is not None and held.parts == {"no_rate": 9.0}
