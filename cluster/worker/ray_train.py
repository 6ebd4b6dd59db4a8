"""Run a trial with Ray Train: in local mode in this process, or with one worker per device on the cluster that this job runs on.

This module uses internals of Ray, and internals of torch on Ray's behalf. tests/cluster/worker/test_internals.py fails on a version that
moved them.
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

PASSED_ON = ("SWEEPBENCH_", "TOKENIZERS_", "HF_", "PT_HPU_", "HABANA_EMU_")  # environment variables that the driver passes to its workers
BACKENDS = {"cuda": "nccl", "hpu": "hccl"}  # gloo elsewhere
CLEANER_POLL_S = 0.05
START_TIMEOUT = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"


def fit(trial: Trial, options: argparse.Namespace, notes: list[str]) -> None:
    """Run the trial. Raises what ended it early: the exception itself in local mode, Ray Train's wrapper of it on a cluster."""
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
        "not_before": time.time() if notes else 0.0,  # what they tell of (a batch search, a wait) is no time to the first step
    }
    torch_config = TorchConfig(backend=BACKENDS.get(trial.device, "gloo"))
    with prompt_cleaner() if placement else local_hccl() if trial.device == "hpu" else nullcontext():
        TorchTrainer(run_rank, train_loop_config=config, torch_config=torch_config, scaling_config=scaling, run_config=run).fit()


def _here(trial: Trial, out: Path) -> tuple[ScalingConfig, RunConfig]:
    """Local mode: this process is the only worker, or the rank that its environment variables name."""
    from ray.train import RunConfig, ScalingConfig

    return ScalingConfig(num_workers=0), RunConfig(name=trial.key, storage_path=str(out / RAY))


def _on_cluster(trial: Trial, attempt: int, out: Path, placement: Placement) -> tuple[ScalingConfig, RunConfig]:
    """One worker per device, without retries: the flow decides about those."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig

    scaling = ScalingConfig(
        num_workers=placement.workers,
        use_gpu=placement.use_gpu,
        resources_per_worker=placement.per_worker,
        placement_strategy=placement.strategy,
        accelerator_type=placement.accelerator_type,
    )
    variables = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    run = RunConfig(
        name=f"{trial.key}-a{attempt}",
        storage_path=str(out / RAY),
        failure_config=FailureConfig(max_failures=0, controller_failure_limit=1, max_preemption_failures=0),
        worker_runtime_env={"env_vars": variables},
    )
    return scaling, run


@contextmanager
def local_hccl() -> Iterator[None]:
    """Make torch use HCCL inside the block. Ray Train's local mode requests NCCL or gloo, whatever its configuration says."""
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
    """Make Ray Train's placement-group cleaner poll faster. It polls every second, and each run waits 1.4 s for it to stop."""
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
