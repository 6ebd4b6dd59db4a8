"""Ray Train around a trial: local mode in this process, or one worker per device on the cluster this job runs on."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from cluster.pools.placement import Placement
from cluster.trial_layout import RAY
from cluster.worker.trial_session import run_rank
from experiments.trial import Trial

PASSED_ON = ("SWEEPBENCH_", "TOKENIZERS_", "HF_", "PT_HPU_", "HABANA_EMU_")
BACKENDS = {"cuda": "nccl", "hpu": "hccl"}  # gloo elsewhere


def fit(trial: Trial, options: argparse.Namespace, notes: list[str]) -> None:
    """Train. Raises what ended it early: the exception itself in local mode, Ray Train's wrapping of it on a cluster."""
    placement = Placement.model_validate_json(options.placement) if options.placement else None
    if placement:
        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(placement.start_timeout_s)
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    out: Path = options.out.resolve()
    if placement:
        _trim()
        scaling = ScalingConfig(
            num_workers=placement.workers,
            use_gpu=placement.use_gpu,
            resources_per_worker=placement.per_worker,
            placement_strategy=placement.strategy,
            accelerator_type=placement.accelerator_type,
        )
        passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        run = RunConfig(
            name=f"{trial.key}-a{options.attempt}",
            storage_path=str(out / RAY),
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=1, max_preemption_failures=0),
            worker_runtime_env={"env_vars": passed},
        )
    else:
        scaling = ScalingConfig(num_workers=0)
        run = RunConfig(name=trial.key, storage_path=str(out / RAY))
    trainer = TorchTrainer(
        run_rank,
        train_loop_config={
            "trial": trial.model_dump_json(),
            "out": str(out),
            "attempt": options.attempt,
            "notes": notes,
            "probe": options.probe,
            "store": options.store,
            "not_before": time.time() if notes else 0.0,  # the search for the largest batch is no part of the time to the first step
        },
        torch_config=TorchConfig(backend=BACKENDS.get(trial.device, "gloo")),
        scaling_config=scaling,
        run_config=run,
    )
    with _hccl() if trial.device == "hpu" and not placement else nullcontext():
        trainer.fit()


@contextmanager
def _hccl() -> Iterator[None]:
    """Ray Train's local mode asks torch for NCCL or gloo, whatever its configuration says. On a Gaudi the ranks talk over HCCL."""
    import torch.distributed

    from cluster.devices.hpu import init_process_group

    before = torch.distributed.init_process_group
    torch.distributed.init_process_group = init_process_group  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.distributed.init_process_group = before


def _trim() -> None:
    """Ray Train's placement-group cleaner polls every second, and a run waits for it to stop: 1.4 s of every trial."""
    from ray.train.v2._internal.callbacks import placement_group_callback
    from ray.train.v2.api import data_parallel_trainer

    class Prompt(placement_group_callback.PlacementGroupCleanerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(check_interval_s=0.05)

    if hasattr(data_parallel_trainer, "PlacementGroupCleanerCallback"):
        data_parallel_trainer.PlacementGroupCleanerCallback = Prompt
