"""The emulated Gaudi as a Ray cluster of its own: the head runs in .venv-gaudi, the trial is a job, its ranks are Ray Train's workers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cluster.journal.journal import read_journal
from cluster.launchers.ray_job import RayJobLauncher
from cluster.pools.pool import Pool
from cluster.pools.probe import probe
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome
from tests.cli_support import ROOT
from tests.clusters_support import Cluster
from tests.contracts import make_trial, result_of, wait

pytestmark = [pytest.mark.timeout(900)]


def test_two_ranks_on_a_ray_cluster_have_a_module_each_and_equal_weights(tmp_path: Path) -> None:
    cluster = Cluster("g", python=str(ROOT / ".venv-gaudi" / "bin" / "python"), resources={"gaudi2": 2}, HABANA_EMU_DEVICES="2")
    entry = cluster.entry(device="hpu", accelerators_per_node=2, resources={"gaudi2": 1}, emulated=True)
    pool = Pool(name="gaudi2-emulated", **entry)
    try:
        cluster.start()
        deadline = time.monotonic() + 240
        while (state := probe(pool)).free is None:  # the head's first report of what is used comes some seconds after it takes jobs
            assert time.monotonic() < deadline, state
            time.sleep(0.2)
        assert (state.total, state.free, state.problem) == (2, 2, None), "Ray counts the emulated device's modules as HPU"
        folder, records = tmp_path / "trial", tmp_path / "weights"
        records.mkdir()
        habana = {"engine": "optimum_habana", "ddp": "fast", "hpu_graphs": True, "optimizer": "fused", "precision": "bf16"}
        settings = {**habana, "devices": 2, "threads": 1, "batch_size": 8, "dataloader_workers": 0, "record_dir": str(records)}
        trial = make_trial(folder, "eeee0000000000a1", "clip_pairs", steps=2, **settings).model_copy(update={"device": "hpu"})
        atomic_write(folder / "trial.json", trial.model_dump_json())
        launcher = RayJobLauncher(pool)
        launch = launcher.start(trial, folder, 1)
        status = wait(launcher, launch)
        log = launcher.log(launch, folder)
    finally:
        cluster.close()
    assert status.exit_code == 0, log[-3000:]
    result = result_of(folder)
    assert result.outcome is Outcome.OK and result.emulated, result.detail
    expected = {"device_kind": "hpu", "lazy_mode": True, "world_size": 2, "device_count": 1, "optimum-habana": "1.21.2"}
    assert {name: result.environment[name] for name in expected} == expected, "device_count: what Ray gave each rank"
    weights = [(records / f"rank-{rank}.txt").read_text().split() for rank in (0, 1)]
    assert weights[0] == weights[1] and len(set(weights[0])) == 4, "over hccl, and they change from step to step"
    assert [step["step"] for step in read_journal(folder / "journal.jsonl").steps] == [1, 2, 3, 4]
