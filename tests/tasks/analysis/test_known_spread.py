from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from experiments.trial import Outcome
from tasks.analysis.known_spread import keep_known, known_for
from tasks.analysis.results import Sweep, load_sweep
from tasks.analysis.spread_store import write_spread
from tasks.report.write import write_report
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep
from tests.tasks.spread_support import DEVICE, write_history

A = "made-up-20260101-000000-0000"
AXES = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}
PLACE = ("cpu", DEVICE, "throughput")


def sweep_of(root: Path, *fakes: Fake) -> Sweep:
    return load_sweep(make_sweep(root, list(fakes) or [Fake(AXES)], sweep_id=A))


def test_unknown_at_first(tmp_path: Path) -> None:
    assert known_for(sweep_of(tmp_path)).spreads.at(*PLACE).trial is None


def test_the_other_sweeps_tell_and_the_sweep_itself_does_not(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, *(Fake({**AXES, "dataloader_workers": n}, repeats=4, between=0.5) for n in range(4)))
    write_spread(sweep)
    assert known_for(sweep).spreads.at(*PLACE).trial is None
    write_history(tmp_path, trial_sd=0.01)
    trial = known_for(sweep).spreads.trial(*PLACE)
    assert trial is not None and trial.sd == pytest.approx(0.01, rel=0.25)


def test_what_was_known_when_the_sweep_ended_is_kept(tmp_path: Path) -> None:
    """On another machine, without the other sweeps, and here after a hundred more."""
    write_history(tmp_path, trial_sd=0.01)
    sweep = sweep_of(tmp_path)
    before = known_for(sweep)
    assert keep_known(sweep)
    kept = (sweep.dir / "known_spread.json").read_bytes()
    write_history(tmp_path, trial_sd=0.1, seed=7)
    assert known_for(sweep) == before and keep_known(sweep) and (sweep.dir / "known_spread.json").read_bytes() == kept
    moved = tmp_path / "elsewhere" / sweep.sweep_id
    moved.parent.mkdir()
    sweep.dir.rename(moved)
    assert known_for(load_sweep(moved)) == before
    assert b"box" not in kept and b"0123456789ab" not in kept, "no host is named"


def test_unknown_is_kept_too(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path)
    keep_known(sweep)
    write_history(tmp_path)
    assert known_for(sweep).spreads.at(*PLACE).trial is None
    (sweep.dir / "known_spread.json").unlink()
    assert known_for(sweep).spreads.at(*PLACE).trial is not None


def test_nothing_is_kept_while_trials_are_to_run_and_new_places_are_added(tmp_path: Path) -> None:
    write_history(tmp_path)
    waiting = sweep_of(tmp_path, Fake(AXES), Fake({**AXES, "dataloader_workers": 1}, outcome=None))
    assert not keep_known(waiting) and not (waiting.dir / "known_spread.json").exists()
    failed = sweep_of(tmp_path / "b", Fake(AXES, outcome=Outcome.INFRA, reason="lost"))
    assert keep_known(failed) and known_for(failed).spreads.places == {}
    for folder in (tmp_path / "b" / A / "trials").iterdir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    write_history(tmp_path / "b")
    later = sweep_of(tmp_path / "b")
    assert known_for(later).spreads.at(*PLACE).trial is not None, "what was not there to be kept is learned"


def test_damaged_files_are_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_history(tmp_path)
    sweep = sweep_of(tmp_path)
    (tmp_path / "spread" / "broken.json").write_text("{")
    (sweep.dir / "known_spread.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert known_for(sweep).spreads.at(*PLACE).trial is not None
    assert "known_spread.json, line 1: is not JSON" in caplog.text and "broken.json is damaged and was skipped" in caplog.text


def test_a_metric_that_reached_zero_has_no_known_spread(tmp_path: Path) -> None:
    """It is compared by differences then, which a spread of logarithms says nothing of."""
    write_history(tmp_path, metric="eval_loss_before")
    suite = {**SUITE, "report": {**SUITE["report"], "metric": "eval_loss_before"}}
    for value, known in ((1.0, True), (0.0, False)):
        folder = make_sweep(tmp_path / str(value), [Fake(AXES, metrics={"loss": value})], suite=suite)
        write_history(tmp_path / str(value), metric="eval_loss_before")
        place = ("cpu", DEVICE, "eval_loss_before")
        assert (known_for(load_sweep(folder)).spreads.at(*place).trial is not None) is known


def test_a_report_leaves_both_files(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, [Fake(AXES, repeats=2)], sweep_id=A)
    write_report(folder)
    assert (folder / "known_spread.json").exists() and (tmp_path / "spread" / f"{A}.json").exists()


def test_where_another_host_lands_is_in_the_report(tmp_path: Path) -> None:
    for number, rate in enumerate((98.0, 103.0)):
        other = make_sweep(
            tmp_path, [Fake(AXES, rate=rate, environment={"host_id": f"h{number}"})], sweep_id=f"made-up-2025010{number + 1}-000000-0000"
        )
        write_spread(load_sweep(other))
    folder = make_sweep(tmp_path, [Fake(AXES)], sweep_id=A)
    text = write_report(folder).markdown.read_text()
    assert "## On another node" in text and "another Made-up CPU node: " in text and "3 hosts" in text
    (found,) = known_for(load_sweep(folder)).elsewhere.values()
    assert found.hosts == 3 and found.low < 98 and found.high > 103 and math.isfinite(found.high)
