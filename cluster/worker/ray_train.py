"""Ray Train around a trial: local mode in this process, or one worker per device on the cluster this job runs on.

What reaches into Ray's internals, and into torch's for Ray, is here;
tests/cluster/worker/test_internals.py fails on a version that moved it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.pools.placement import Placement
from cluster.trial_layout import RAY
from cluster.worker.trial_session import run_rank
from experiments.trial import Trial

if TYPE_CHECKING:
    from ray.train import RunConfig, ScalingConfig

PASSED_ON = ("SWEEPBENCH_", "TOKENIZERS_", "HF_", "PT_HPU_", "HABANA_EMU_")  # variables of the driver that its workers get
BACKENDS = {"cuda": "nccl", "hpu": "hccl"}  # gloo elsewhere
CLEANER_POLL_S = 0.05
START_TIMEOUT = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"


def fit(trial: Trial, options: argparse.Namespace, notes: list[str]) -> None:
    """Train. Raises what ended it early: the exception itself in local mode, Ray Train's wrapping of it on a cluster."""
    placement = Placement.model_validate_json(options.placement) if options.placement else None
    if placement:
        os.environ[START_TIMEOUT] = str(placement.start_timeout_s)
    from ray.train.torch import TorchConfig, TorchTrainer

    out: Path = options.out.resolve()
    scaling, run = _on_cluster(trial, options.attempt, out, placement) if placement else _here(trial, out)
    config: dict[str, Any] = {
        "trial": trial.model_dump_json(),
        "out": str(out),
        "attempt": options.attempt,
        "notes": notes,
        "probe": options.probe,
        "store": options.store,
        "not_before": time.time() if notes else 0.0,  # the search for the largest batch is no part of the time to the first step
    }
    torch_config = TorchConfig(backend=BACKENDS.get(trial.device, "gloo"))
    with prompt_cleaner() if placement else local_hccl() if trial.device == "hpu" else nullcontext():
        TorchTrainer(run_rank, train_loop_config=config, torch_config=torch_config, scaling_config=scaling, run_config=run).fit()


def _here(trial: Trial, out: Path) -> tuple[ScalingConfig, RunConfig]:
    """Local mode: this process is the only worker, or the rank that its variables say."""
    from ray.train import RunConfig, ScalingConfig

    return ScalingConfig(num_workers=0), RunConfig(name=trial.key, storage_path=str(out / RAY))


def _on_cluster(trial: Trial, attempt: int, out: Path, placement: Placement) -> tuple[ScalingConfig, RunConfig]:
    """One worker per device, and no second try: the flow decides about that."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    scaling = ScalingConfig(
        num_workers=placement.workers,
        use_gpu=placement.use_gpu,
        resources_per_worker=placement.per_worker,
        placement_strategy=placement.strategy,
        accelerator_type=placement.accelerator_type,
    )
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    run = RunConfig(
        name=f"{trial.key}-a{attempt}",
        storage_path=str(out / RAY),
        failure_config=FailureConfig(max_failures=0, controller_failure_limit=1, max_preemption_failures=0),
        worker_runtime_env={"env_vars": passed},
    )
    return scaling, run


@contextmanager
def local_hccl() -> Iterator[None]:
    """Ray Train's local mode asks torch for NCCL or gloo, whatever its configuration says. On a Gaudi the ranks talk over HCCL."""
    import torch.distributed

    from cluster.devices.hpu import init_process_group

    before = torch.distributed.init_process_group
    torch.distributed.init_process_group = init_process_group  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.distributed.init_process_group = before


@contextmanager
def prompt_cleaner() -> Iterator[None]:
    """Ray Train's placement-group cleaner polls every second, and a run waits for it to stop: 1.4 s of every trial."""
    from ray.train.v2.api import data_parallel_trainer

    before = data_parallel_trainer.PlacementGroupCleanerCallback

    class Prompt(before):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(check_interval_s=CLEANER_POLL_S)

    data_parallel_trainer.PlacementGroupCleanerCallback = Prompt
    try:
        yield
    finally:
        data_parallel_trainer.PlacementGroupCleanerCallback = before
