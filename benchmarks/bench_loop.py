"""What measuring costs: the measured loop against a bare torch loop of the same model, data and settings, and against compute alone.

    python -m benchmarks.bench_loop                                        # tiny on the CPU
    python -m benchmarks.bench_loop --device cuda --set model=large batch_size=48 precision=bf16 attention=sdpa optimizer=fused \
        dataloader_workers=8

The loops take turns (blocks of --steps, A B C A B C), on one model, one optimiser and one DataLoader. `ratio` is measured / bare, each the
median throughput of its blocks; 0.98 is the least that is acceptable. `of_ceiling` is measured / compute-only: one batch that stays on the
device. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from cluster.devices import Device, load
from cluster.journal import JournalWriter
from cluster.worker.learner import TorchLearner
from cluster.worker.loop import run_steps
from cluster.worker.recorder import Recorder
from experiments import scenes, workloads
from experiments.trial import DataSource
from experiments.workloads._protocol import Context

DEFAULTS = {"model": "tiny", "text_length": 32, "batch_size": 16, "threads": 1, "steps": 1_000_000, "dataloader_workers": 1}


def main() -> int:
    options = parse()
    module = workloads.load(options.workload)
    defaults = {name: value for name, value in DEFAULTS.items() if name in module.Parameters.model_fields}
    parameters = module.Parameters.model_validate({**defaults, **dict(map(setting, options.set))})
    device = load(options.device)
    device.set_threads(parameters.threads, 1)
    device.set_precision(parameters.precision)
    with tempfile.TemporaryDirectory() as folder:
        data = draw(Path(folder), options.rows)
        workload = module.build(Context(parameters, data, device.kind, 0, 1, parameters.batch_size))
        learner = TorchLearner(workload, workload.model(), parameters, device)
        batches = workload.batches()
        with Recorder(JournalWriter(Path(folder) / "journal.jsonl", 1)) as recorder:
            loops: dict[str, Callable[[int], float]] = {
                "measured": lambda steps: measured(steps, batches, learner, device, recorder),
                "bare": lambda steps: bare(steps, batches, learner, device),
                "compute_only": compute_only(next(batches), learner, device),
            }
            for loop in loops.values():
                loop(options.warmup)
            rounds = []
            for number in range(options.rounds):
                order = list(loops) if number % 2 == 0 else list(loops)[::-1]  # neither is always first after the other
                seconds = {name: loops[name](options.steps) for name in order}
                rounds.append({name: parameters.batch_size * options.steps / seconds[name] for name in loops})
    report(options, device, parameters, rounds)
    return 0


def measured(steps: int, batches: Iterator[Any], learner: TorchLearner, device: Device, recorder: Recorder) -> float:
    """Seconds of `steps` steps of the loop that trials use, journal included."""
    clock = device.clock()
    device.synchronize()
    started = time.perf_counter()
    clock.begin()
    run_steps(range(1, steps + 1), batches, learner, clock, lambda timing: recorder.step(timing, measured=True))
    device.synchronize()
    return time.perf_counter() - started


def bare(steps: int, batches: Iterator[Any], learner: TorchLearner, device: Device) -> float:
    """Seconds of `steps` steps as one would write them by hand: copy, forward, backward, step."""
    parameters, workload, model, optimizer = learner.parameters, learner.workload, learner.model, learner.optimizer
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(parameters.precision)
    place = device.torch_device
    device.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        batch = {name: value.to(place, non_blocking=True) if torch.is_tensor(value) else value for name, value in next(batches).items()}
        batch = workload.prepare(batch)
        with torch.autocast(place.type, dtype) if dtype else contextlib.nullcontext():
            loss = workload.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    device.synchronize()
    return time.perf_counter() - started


def compute_only(batch: Any, learner: TorchLearner, device: Device) -> Callable[[int], float]:
    """The ceiling: the same step on one batch that lies on the device already."""
    placed = learner.place(batch)

    def run(steps: int) -> float:
        device.synchronize()
        started = time.perf_counter()
        for step in range(1, steps + 1):
            learner.learn(placed)
            learner.update(step)
        device.synchronize()
        return time.perf_counter() - started

    return run


def report(options: argparse.Namespace, device: Device, parameters: Any, rounds: list[dict[str, float]]) -> None:
    def median(name: str) -> float:
        return statistics.median(one[name] for one in rounds)

    ratios = [one["measured"] / one["bare"] for one in rounds]
    summary = {
        "benchmark": "loop",
        "device": device.describe()["device_name"],
        "workload": options.workload,
        "settings": {name: value for name, value in parameters.model_dump().items() if name in SHOWN},
        "steps_per_block": options.steps,
        "rounds": options.rounds,
        "samples_per_s": {name: round(median(name), 2) for name in rounds[0]},
        "ratio": round(median("measured") / median("bare"), 4),
        "ratio_of_each_round": [round(ratio, 4) for ratio in ratios],
        "of_ceiling": round(median("measured") / median("compute_only"), 4),
        "peak_memory_bytes": device.peak_memory_bytes(),
    }
    json.dump(summary, sys.stdout, indent=1)
    print()


SHOWN = (
    *("model", "precision", "batch_size", "attention", "optimizer", "compile", "text_length", "dataloader_workers", "prefetch_factor"),
    *("image_decode", "activation_checkpointing", "prefetch_to_device", "pin_memory", "threads"),
)


def draw(folder: Path, rows: int) -> DataSource:
    scenes.build(folder, rows=rows, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="bench", tokenizer=str(folder / "tokenizer"))


def setting(text: str) -> tuple[str, Any]:
    """name=value; the value as JSON where it is JSON, else as it stands."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="bridgetower")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="workload parameters")
    parser.add_argument("--rows", type=int, default=256, help="drawn pairs")
    parser.add_argument("--steps", type=int, default=10, help="steps of one block")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=5, help="steps before the first block of each loop")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
