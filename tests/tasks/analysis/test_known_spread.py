from __future__ import annotations

import json
import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.trial import Outcome
from tasks.analysis.judge_cells import ONE_IN_COMMON
from tasks.analysis.known_spread import keep_known, known_for, spread_is_kept
from tasks.analysis.looks import undecided_of
from tasks.analysis.results import Sweep, load_sweep
from tasks.analysis.spread_history import Place
from tasks.analysis.spread_store import write_spread
from tasks.report.model import make_report
from tasks.report.write import write_report
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep
from tests.tasks.spread_support import DEVICE, WORKLOAD, write_history

A = "made-up-20260101-000000-0000"
AXES = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}
PLACE = Place("cpu", DEVICE, WORKLOAD, "throughput")


EARLY = {  # known_spread.json of schema 1
    "schema_version": 1,
    "places": [
        {
            "pool": "cpu",
            "device": DEVICE,
            "metric": "throughput",
            "known": {"trial": {"sd": 0.02, "df": 8.0}, "sweep": None, "host": None, "trials": 27, "sweeps": 0, "hosts": 0},
        }
    ],
    "elsewhere": {},
}


def sweep_of(root: Path, *fakes: Fake) -> Sweep:
    return load_sweep(make_sweep(root, list(fakes) or [Fake(AXES)], sweep_id=A))


def test_unknown_at_first(tmp_path: Path) -> None:
    assert known_for(sweep_of(tmp_path)).spreads.at(PLACE).trial is None


def test_the_other_sweeps_tell_and_the_sweep_itself_does_not(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, *(Fake({**AXES, "dataloader_workers": n}, repeats=4, between=0.5) for n in range(4)))
    write_spread(sweep)
    assert known_for(sweep).spreads.at(PLACE).trial is None
    write_history(tmp_path, trial_sd=0.01)
    trial = known_for(sweep).spreads.at(PLACE).trial
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
    assert known_for(sweep).spreads.at(PLACE).trial is None
    (sweep.dir / "known_spread.json").unlink()
    assert known_for(sweep).spreads.at(PLACE).trial is not None


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
    assert known_for(later).spreads.at(PLACE).trial is not None, "what was not there to be kept is learned"


def test_damaged_files_are_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_history(tmp_path)
    sweep = sweep_of(tmp_path)
    (tmp_path / "spread" / "broken.json").write_text("{")
    (sweep.dir / "known_spread.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert known_for(sweep).spreads.at(PLACE).trial is not None
    assert "known_spread.json, line 1: is not JSON" in caplog.text and "broken.json is damaged and was skipped" in caplog.text


def test_a_metric_that_reached_zero_has_no_known_spread(tmp_path: Path) -> None:
    """It is compared by differences then, which a spread of logarithms says nothing of."""
    write_history(tmp_path, metric="eval_loss_before")
    suite = {**SUITE, "report": {**SUITE["report"], "metric": "eval_loss_before"}}
    for value, known in ((1.0, True), (0.0, False)):
        folder = make_sweep(tmp_path / str(value), [Fake(AXES, metrics={"loss": value})], suite=suite)
        write_history(tmp_path / str(value), metric="eval_loss_before")
        place = PLACE._replace(metric="eval_loss_before")
        assert (known_for(load_sweep(folder)).spreads.at(place).trial is not None) is known


def ends(root: Path, *fakes: Fake) -> list[tuple[float, float]]:
    """The ends of each cell's interval, over its value."""
    estimates = [cell.estimate for cell in make_report(sweep_of(root, *fakes)).cells]
    return [(one.low / one.value, one.high / one.value) for one in estimates if one is not None]


def test_a_quiet_workload_keeps_its_narrow_intervals_beside_a_noisy_one(tmp_path: Path) -> None:
    """Past trials of the one lie 0.3 % apart, of the other 10 %; a third has no past."""
    fakes = [
        Fake({**AXES, "suite": f"{workload}, {repeats}"}, repeats=repeats, between=sd, workload=workload)
        for workload, sd in ((WORKLOAD, 0.0015), ("flava", 0.05), ("bert", 0.0015))
        for repeats in (1, 3)
    ]
    write_history(tmp_path / "quiet", trial_sd=0.003)
    single, three, *_ = ends(tmp_path / "quiet", *fakes)
    assert single[1] == pytest.approx(math.exp(1.99 * 0.003), abs=0.001) and 1.002 < three[1] < 1.004, "past trials and its own"
    write_history(tmp_path / "both", trial_sd=0.003)
    write_history(tmp_path / "both", trial_sd=0.1, workload="flava")
    quiet, quiet_three, noisy, noisy_three, new, new_three = ends(tmp_path / "both", *fakes)
    assert (quiet, quiet_three) == (single, three), "as without the noisy one"
    assert noisy[1] == pytest.approx(math.exp(1.99 * 0.1), rel=0.05) and noisy_three[1] == pytest.approx(1.10, abs=0.02)
    assert new == (0.0, math.inf) and new_three == ends(tmp_path / "none", *fakes)[-1], "by its own repeats alone"


def test_an_early_file_which_learned_from_all_workloads_gives_no_interval_and_is_not_written_again(tmp_path: Path) -> None:
    write_history(tmp_path, trial_sd=0.1)
    fakes = [Fake({**AXES, "suite": workload}, workload=workload) for workload in (WORKLOAD, "flava")]
    sweep = sweep_of(tmp_path, *fakes)
    kept = json.dumps(EARLY, indent=1).encode() + b"\n"
    (sweep.dir / "known_spread.json").write_bytes(kept)
    assert [cell.estimate.high for cell in make_report(sweep).cells if cell.estimate] == [math.inf] * 2
    assert keep_known(sweep) and spread_is_kept(sweep)
    text = write_report(sweep.dir).markdown.read_text()
    assert (sweep.dir / "known_spread.json").read_bytes() == kept
    assert f"the spread between trials of {WORKLOAD} and flava there is not known" in text


def test_what_an_early_file_lacks_is_added_by_workload(tmp_path: Path) -> None:
    write_history(tmp_path, trial_sd=0.1, pool="gpu")
    sweep = sweep_of(tmp_path, Fake(AXES), Fake({**AXES, "pool": "gpu"}))
    (sweep.dir / "known_spread.json").write_text(json.dumps(EARLY))
    assert keep_known(sweep)
    kept = json.loads((sweep.dir / "known_spread.json").read_text())
    assert kept["schema_version"] == 3 and len(kept["cells"]) == 2
    assert [(place["pool"], place["workload"]) for place in kept["places"]] == [("cpu", None), ("gpu", WORKLOAD)]
    assert kept["places"][0]["known"] == EARLY["places"][0]["known"]  # type: ignore[index]


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


def test_a_cell_that_later_runs_on_another_device_is_asked_for_there(tmp_path: Path) -> None:
    """Such as one of a campaign that goes on on another machine."""
    sweep = sweep_of(tmp_path, Fake(AXES))
    assert keep_known(sweep)
    kept = (sweep.dir / "known_spread.json").read_text()
    shutil.rmtree(sweep.dir)
    write_history(tmp_path, trial_sd=0.01, device="Other CPU")
    moved = sweep_of(tmp_path, Fake(AXES, environment={"device_name": "Other CPU"}))
    (moved.dir / "known_spread.json").write_text(kept)
    assert not spread_is_kept(moved)
    there = known_for(moved).spreads.at(PLACE._replace(device="Other CPU")).trial
    assert there is not None and there.sd == pytest.approx(0.01, rel=0.25)


def test_a_cell_that_is_measured_later_is_asked_for_then_and_the_others_keep_what_they_had(tmp_path: Path) -> None:
    """What a deadline had cut, once `sweep resume --budget` has measured it."""
    both = [Fake(AXES), Fake({**AXES, "dataloader_workers": 1}, rate=200.0)]
    for number, factor in enumerate((0.98, 1.03)):
        others = [replace(fake, rate=fake.rate * factor, environment={"host_id": f"h{number}"}) for fake in both]
        write_spread(load_sweep(make_sweep(tmp_path, others, sweep_id=f"made-up-2025010{number + 1}-000000-0000")))
    sweep = sweep_of(tmp_path, both[0])
    assert keep_known(sweep) and len(known_for(sweep).elsewhere) == 1
    shutil.copy(sweep.dir / "known_spread.json", tmp_path / "kept.json")
    shutil.rmtree(sweep.dir)
    third = [replace(fake, rate=fake.rate * 1.2, environment={"host_id": "h2"}) for fake in both]
    write_spread(load_sweep(make_sweep(tmp_path, third, sweep_id="made-up-20250103-000000-0000")))
    grown = sweep_of(tmp_path, *both)
    shutil.copy(tmp_path / "kept.json", grown.dir / "known_spread.json")
    assert not spread_is_kept(grown) and keep_known(grown) and spread_is_kept(grown)
    later = known_for(grown).elsewhere
    first = known_for(sweep_of(tmp_path / "none", both[0]))
    assert first.elsewhere == {} and len(later) == 2
    before = json.loads((tmp_path / "kept.json").read_text())["elsewhere"]
    now = json.loads((grown.dir / "known_spread.json").read_text())["elsewhere"]
    (new,) = now.keys() - before.keys()
    assert {cell: now[cell] for cell in before} == before and {found["hosts"] for found in before.values()} == {3}
    assert later[new].hosts == 4 and later[new].low < 196 and later[new].high > 240, "by what is known now"
    early = json.loads((tmp_path / "kept.json").read_text())
    del early["cells"]
    (grown.dir / "known_spread.json").write_text(json.dumps({**early, "schema_version": 2}))
    assert spread_is_kept(grown) and known_for(grown).elsewhere.keys() == before.keys(), "a file that does not tell is left as it is"


def test_what_is_open_is_told_as_the_report_tells_it(tmp_path: Path) -> None:
    """One cell lost its last trial, the other its first: only what past sweeps know of the spread gives their comparison an interval. It is
    no verdict, since one pair is none."""
    sweep = sweep_of(tmp_path, *(Fake({**AXES, "dataloader_workers": n}, rate=100.0 * (n + 1), repeats=3) for n in range(2)))
    lost = {(0, 3), (1, 1)}
    sweep = replace(sweep, rows=[row for row in sweep.rows if (row.trial.axes["dataloader_workers"], row.trial.repeat) not in lost])
    ratios = []
    for _ in range(2):
        [mine], (_, reported) = undecided_of(sweep), make_report(sweep).cells
        assert mine.why_undecided == reported.why_undecided == ONE_IN_COMMON and mine.speedup == reported.speedup
        ratios.append(mine.speedup)
        write_history(tmp_path, trial_sd=0.01)
    assert [math.isfinite(ratio.se) for ratio in ratios if ratio] == [False, True]
