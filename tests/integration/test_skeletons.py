"""The skeletons of `sweep new` run as they are written, and one of them on a folder of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.launchers import for_pool
from cluster.pools.pool import load_pools
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, TrialResult
from flows.cli.skeleton import Data, write_workload
from tasks.sweep.own_data import make_ready
from tasks.sweep.plan import make_plan
from tasks.sweep.store import Request
from tests.contracts import result_of, wait
from tests.own_data_support import captioned


def run_first(suite: str, folder: Path, **sets: object) -> TrialResult:
    plan, _ = make_plan(Request(suite=suite, profile="smoke", set=sets))
    trial = plan.trials[0]
    make_ready(trial)
    folder.mkdir()
    atomic_write(folder / "trial.json", trial.model_dump_json())
    launcher = for_pool(load_pools()[trial.pool])
    launch = launcher.start(trial, folder, 1)
    wait(launcher, launch)
    result = result_of(folder)
    assert result.outcome is Outcome.OK, launcher.log(launch, folder)
    return result


@pytest.mark.integration
@pytest.mark.parametrize("data", [Data.CLASSES, Data.PAIRS])
def test_a_skeleton_trains_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Data) -> None:
    write_workload(f"skeleton_{data}", data, tmp_path)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    sets = {"dataset": str(captioned(tmp_path / "pictures", 60))} if data is Data.PAIRS else {}
    result = run_first(f"skeleton_{data}", tmp_path / "trial", **sets)
    assert result.summary["eval_loss_after"] < result.summary["eval_loss_before"]  # type: ignore[operator]
    said = result.environment.get("data_set", "")
    assert said.startswith("made of images with metadata.csv; 16 of 60 rows were cut off") is (data is Data.PAIRS)
