from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.analysis.spread_history import Place, learn
from tasks.analysis.spread_store import PastTrial, past_trials, read_spreads, rebuild, version_of, write_spread
from tests.tasks.fake_sweep import Fake, make_sweep
from tests.tasks.spread_support import DEVICE, WORKLOAD, have_defaults, write_history

A, B, C = "made-up-20260101-000000-0000", "made-up-20260102-000000-0000", "made-up-20260103-000000-0000"
AXES = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}


def trials_of(root: Path, *fakes: Fake, sweep_id: str = A) -> list[PastTrial]:
    path = write_spread(load_sweep(make_sweep(root, list(fakes), sweep_id=sweep_id)))
    assert path == root / "spread" / f"{sweep_id}.json"
    return list(read_spreads(root).trials[sweep_id])


def test_what_is_kept_of_a_trial(tmp_path: Path) -> None:
    (trial,) = trials_of(tmp_path, Fake(AXES, rate=250.0))
    assert trial.workload == "bridgetower"
    assert (trial.pool, trial.device, trial.host, trial.started_at) == ("cpu", DEVICE, "0123456789ab", 1_767_225_600.0)
    assert trial.values["throughput"] == pytest.approx(250, rel=0.01)
    assert trial.values["step_time_median_s"] == pytest.approx(8 / 250, rel=0.05)
    assert "measured_steps" not in trial.values, "better neither way, so it is never compared"


@pytest.mark.parametrize(("host_id", "host"), [("5f2c", "5f2c"), (None, None), ("", None)])
def test_a_host_is_its_opaque_id_and_never_its_name(tmp_path: Path, host_id: str | None, host: str | None) -> None:
    (trial,) = trials_of(tmp_path, Fake(AXES, environment={"host_id": host_id}))
    assert trial.host == host


def test_only_undisturbed_trials_that_measured_count(tmp_path: Path) -> None:
    crashed = Fake({**AXES, "dataloader_workers": 1}, outcome=Outcome.CRASHED, reason="x")
    emulated = Fake({**AXES, "dataloader_workers": 2}, emulated=True)
    waiting = Fake({**AXES, "dataloader_workers": 3}, outcome=None)
    assert len(trials_of(tmp_path / "a", Fake(AXES, repeats=2), crashed, emulated, waiting)) == 2
    nothing = make_sweep(tmp_path / "b", [emulated], sweep_id=A)
    assert write_spread(load_sweep(nothing)) is None and not (tmp_path / "b" / "spread" / f"{A}.json").exists()


def test_writing_again_gives_the_same_file(tmp_path: Path) -> None:
    sweep = load_sweep(make_sweep(tmp_path, [Fake(AXES, repeats=2)], sweep_id=A))
    path = write_spread(sweep)
    assert path is not None
    before = path.read_bytes()
    assert write_spread(sweep) == path and path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name], "nothing temporary is left"


def test_a_cell_is_its_work_and_neither_its_pool_nor_a_repeats_seed(tmp_path: Path) -> None:
    sweep = load_sweep(make_sweep(tmp_path, [Fake(AXES, repeats=2), Fake({**AXES, "pool": "gpu"}), Fake({**AXES, "precision": "bf16"})]))
    cells = [trial.cell for trial in past_trials(sweep.rows)]
    on_cpu = {
        cell for cell, row in zip(cells, sweep.rows, strict=True) if row.trial.pool == "cpu" and row.trial.axes["precision"] == "fp32"
    }
    assert {row.trial.parameters["seed"] for row in sweep.rows} == {0, 1}
    (gpu,) = [cell for cell, row in zip(cells, sweep.rows, strict=True) if row.trial.pool == "gpu"]
    assert on_cpu == {gpu} and len(set(cells)) == 2


@pytest.mark.parametrize(("part", "changes"), [("code", True), ("libraries", True), ("data", True), ("sweep", False), ("repeat", False)])
def test_a_version_is_code_libraries_and_data(tmp_path: Path, part: str, changes: bool) -> None:
    row = load_sweep(make_sweep(tmp_path, [Fake(AXES)])).rows[0]
    before = version_of(row)
    row.trial.key_parts[part] = "another"
    assert (version_of(row) != before) is changes


def test_a_cell_measured_again_is_the_same_after_its_schema_gained_a_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials_of(tmp_path, Fake(AXES), sweep_id=A)
    have_defaults(monkeypatch, newer=3)
    write_spread(load_sweep(make_sweep(tmp_path, [Fake(AXES, parameters={"newer": 3})], sweep_id=B)))
    write_spread(load_sweep(make_sweep(tmp_path, [Fake(AXES, parameters={"newer": 4})], sweep_id=C)))
    first, same, other = (trials[0].cell for trials in read_spreads(tmp_path).trials.values())
    assert first == same != other


def test_a_default_that_changes_makes_no_two_cells_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither had chosen it when its file was written, each by the defaults of its day."""
    fakes = {A: (32, 32), B: (64, 64), C: (32, 64)}  # sweep -> the value, and the default on that day
    for sweep_id, (value, default) in fakes.items():
        have_defaults(monkeypatch, threads=default)
        write_spread(load_sweep(make_sweep(tmp_path, [Fake(AXES, parameters={"threads": value})], sweep_id=sweep_id)))
    names = [json.loads((tmp_path / "spread" / f"{sweep_id}.json").read_text())["trials"][0]["cell"] for sweep_id in fakes]
    before, after, asked_for = (trials[0].cell for trials in read_spreads(tmp_path).trials.values())
    assert names[0] == names[1] != names[2], "in the files"
    assert before == asked_for != after, "as they are read"


def test_an_early_file_without_parameters_has_its_trials_and_its_own_cells(tmp_path: Path) -> None:
    path = write_spread(load_sweep(make_sweep(tmp_path, [Fake(AXES, repeats=2)], sweep_id=A)))
    assert path is not None
    now = read_spreads(tmp_path).trials[A]
    written = json.loads(path.read_text())
    early = [{**trial, "cell": "0123456789abcdef"} for trial in written["trials"]]
    for trial in early:
        del trial["workload"]
    path.write_text(json.dumps({"schema_version": 1, "sweep_id": A, "trials": early}))
    found = read_spreads(tmp_path)
    assert found.damaged == [] and [trial.cell for trial in found.trials[A]] == ["0123456789abcdef"] * 2
    assert [trial.values for trial in found.trials[A]] == [trial.values for trial in now]
    assert found.early == 1
    rebuild(tmp_path)
    again = read_spreads(tmp_path)
    assert again.early == 0 and list(again.trials[A]) == list(now)


def test_early_files_count_for_hosts_alone(tmp_path: Path) -> None:
    write_history(tmp_path, workload=None, sweeps=20, hosts=["a", "b", "c", "d"])
    past = read_spreads(tmp_path)
    known = learn(past, Place("cpu", DEVICE, WORKLOAD, "throughput"))
    assert (known.trial, known.sweep, known.trials, known.sweeps) == (None, None, 0, 0)
    assert known.host is not None and known.hosts == 4 and past.early == 20


def test_a_damaged_file_is_named_and_skipped(tmp_path: Path) -> None:
    write_history(tmp_path, sweeps=2)
    folder = tmp_path / "spread"
    (folder / "broken.json").write_text('{"schema_version":1,"trials":[')
    (folder / "empty.json").write_text("")
    (folder / "other.json").write_text(json.dumps({"schema_version": 1, "sweep_id": "x", "trials": [{"cell": 1}]}))
    for devices in (None, [DEVICE]):
        found = read_spreads(tmp_path, devices=devices)
        assert len(found.trials) == 2
        assert [path.name for path in found.damaged] == ["broken.json", "empty.json", "other.json"]


def test_only_the_devices_asked_for_are_read_and_no_excluded_sweep(tmp_path: Path) -> None:
    write_history(tmp_path, sweeps=2)
    write_history(tmp_path, sweeps=2, pool="gpu", device='Made "up" GPU ü', seed=1)
    write_history(tmp_path, sweeps=1, pool="old", device=None, seed=2)
    for device, count in ((DEVICE, 2), ('Made "up" GPU ü', 2), (None, 1), ("Made", 0)):
        found = read_spreads(tmp_path, devices=[device])
        assert len(found.trials) == count and not found.damaged
        assert {trial.device for trials in found.trials.values() for trial in trials} <= {device}
    everything = read_spreads(tmp_path).trials
    without = read_spreads(tmp_path, without=[next(iter(everything))]).trials
    assert len(everything) == 5 and len(without) == 4


def test_no_store_is_an_empty_one(tmp_path: Path) -> None:
    assert read_spreads(tmp_path).trials == {} and rebuild(tmp_path / "nowhere") == (0, [])


def test_the_store_is_rebuilt_from_the_sweeps(tmp_path: Path) -> None:
    """What a removed sweep left stays; a sweep that cannot be read is named."""
    make_sweep(tmp_path, [Fake(AXES, repeats=2)], sweep_id=A)
    (make_sweep(tmp_path, [Fake(AXES)], sweep_id=B) / "plan.json").write_text("{")
    write_history(tmp_path, sweeps=1)
    written, problems = rebuild(tmp_path)
    assert written == 1 and len(problems) == 1 and problems[0].startswith(B)
    assert len(read_spreads(tmp_path).trials) == 2


def test_one_machine_before_and_after_hosts_had_ids_is_one_host(tmp_path: Path) -> None:
    """Two hosts would give a spread between hosts that is only that between sweeps."""
    for number, host_id in enumerate((None, None, "aa", "aa")):
        fakes = [Fake(AXES, repeats=2, environment={"host_id": host_id})]
        write_spread(load_sweep(make_sweep(tmp_path, fakes, sweep_id=f"made-up-2026010{number + 1}-000000-0000")))
    past = read_spreads(tmp_path)
    assert [{trial.host for trial in trials} for trials in past.trials.values()] == [{None}, {None}, {"aa"}, {"aa"}]
    known = learn(past, Place("cpu", DEVICE, WORKLOAD, "throughput"))
    assert (known.trials, known.sweeps, known.hosts, known.host) == (8, 4, 0, None), "they count for trials and sweeps alone"
