"""How fast batches are loaded without a model, by loader processes and by loader threads: where more of them add nothing.

    python -m benchmarks.bench_loader
    python -m benchmarks.bench_loader --workers 0 1 2 4 8 16 --rounds 3 --seconds 1 --device-rate 246 300

JPEGs of 96 to 512 pixels become batches of 294-pixel images and captions, as for BridgeTower Large, with what a trial loads them with
(experiments/components/data/loading.py). In each round each loader takes its turn, every other round in the reverse order, so ratios are of
one round and drift cancels. Nothing computes beside the loaders: with a model its process needs a core for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.saturation import middle, saturation, sentence, steps
from experiments.components.data.pairs import PairParameters, Pairs
from experiments.components.workload import Batch, Context
from experiments.datasets import scenes
from experiments.stats.estimate import Estimate
from experiments.stats.repeats import paired_ratio
from experiments.trial import DataSource

PROCESSES, THREADS = "processes", "threads"
TEXT_LENGTH = 128  # tokens, as in suite bridgetower
Rounds = dict[str, dict[int, list[float]]]  # loader -> workers -> a figure of each round


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenes.build(folder, rows=options.rows, validation_rows=16, seed=0)
        rates, costs = measured(folder, options)
    for row in table(rates, costs):
        print(json.dumps(row))
    for loader, of_loader in rates.items():
        print(sentence(loader, of_loader, options.device_rate))
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, nargs="+", default=counts(len(os.sched_getaffinity(0))), help="numbers to try")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.5, help="each loader is measured for so long a round, at least")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--image-size", type=int, default=294, help="pixels per side")
    parser.add_argument("--rows", type=int, default=512, help="images of the data set")
    parser.add_argument("--device-rate", type=float, nargs="+", default=[246.0], help="samples/s that a device takes: 246 is one H200's")
    options = parser.parse_args()
    if min(options.workers) < 0 or min(options.rounds, options.seconds, *options.device_rate) <= 0:
        parser.error("--workers are at least 0, --rounds, --seconds and --device-rate above 0")
    if not 1 <= options.batch <= options.rows:
        parser.error("--batch is 1 to --rows")
    return options


def counts(cores: int) -> list[int]:
    """0, and powers of two up to the first that is more than the cores: 0, 1, 2, 4 of two."""
    return [0, *(2**power for power in range(cores.bit_length() + 1))]


def arms(workers: list[int]) -> list[tuple[str, int]]:
    """(loader, number): in the main process alone, then processes, then threads."""
    several = [number for number in sorted(set(workers)) if number]
    alone = [(PROCESSES, 0)] if 0 in workers else []
    return [*alone, *((loader, number) for loader in (PROCESSES, THREADS) for number in several)]


def measured(folder: Path, options: argparse.Namespace) -> tuple[Rounds, Rounds]:
    """Samples/s, and s of CPU time a sample. Nobody loads in threads where no one does beside the main process: 0 stands in both."""
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more processes than cores, on purpose
    rates: Rounds = {PROCESSES: {}, THREADS: {}}
    costs: Rounds = {PROCESSES: {}, THREADS: {}}
    for number in range(options.rounds):
        turns = arms(options.workers)
        for loader, workers in turns if number % 2 == 0 else turns[::-1]:
            rate, cost = one(folder, loader, workers, options)
            for each in (loader,) if workers else (PROCESSES, THREADS):
                rates[each].setdefault(workers, []).append(rate)
                costs[each].setdefault(workers, []).append(cost)
            print(f"round {number + 1}: {workers} {loader}: {rate:.0f} samples/s", file=sys.stderr, flush=True)
    return rates, costs


def one(folder: Path, loader: str, workers: int, options: argparse.Namespace) -> tuple[float, float]:
    """(samples/s, s of CPU time a sample) of one loader once it runs evenly: what it loaded ahead is not counted."""
    parameters = PairParameters.model_validate({"batch_size": options.batch, "loader": loader, "dataloader_workers": workers})
    data = DataSource(uri=str(folder), fingerprint="drawn", tokenizer=str(folder / "tokenizer"))
    pairs = Pairs(Context(parameters, data, "cpu", 0, 1, options.batch), TEXT_LENGTH)
    items = pairs.dataset(pairs.train, pairs.tokenizer(), options.image_size, augment=True)
    batches = pairs.batches(items, pairs.train_indices())
    take(batches, max(1, workers * parameters.prefetch_factor))
    taken, spent, began = 0, cpu_seconds(), time.perf_counter()
    while (took := time.perf_counter() - began) < options.seconds:
        taken += take(batches, max(1, workers))  # a whole turn of all workers, since their batches come together
    return taken * options.batch / took, (cpu_seconds() - spent) / (taken * options.batch)


def cpu_seconds() -> float:
    """CPU time of this process, with its threads, and of the loader processes, s so far."""
    own = psutil.Process()
    return sum(each.cpu_times().user + each.cpu_times().system for each in (own, *own.children(recursive=True)))


def take(batches: Iterator[Batch], number: int) -> int:
    for _ in range(number):
        next(batches)
    return number


def table(rates: Rounds, costs: Rounds) -> list[dict[str, Any]]:
    """A row for each loader and number: its rate, that over the same round's with the fewest, its CPU time; then threads over processes.

    Rates are lower on a machine that does other work too; the CPU time of a sample hardly changes.
    """
    rows: list[dict[str, Any]] = []
    for loader, of_loader in rates.items():
        least = of_loader[min(of_loader)]
        enough = saturation(steps(of_loader))
        rows += [
            {
                "name": f"{workers} loader {loader}",
                "samples_per_s": middle(values),
                f"over_{min(of_loader)}": ends(paired_ratio(values, least)),
                "cpu_ms_per_sample": 1000 * middle(costs[loader][workers]),
                "enough": enough is not None and workers == enough.workers,
            }
            for workers, values in sorted(of_loader.items())
            if workers or loader == PROCESSES
        ]
    for workers in sorted(set(rates[PROCESSES]) & set(rates[THREADS]) - {0}):
        rate, cost = (ends(paired_ratio(each[THREADS][workers], each[PROCESSES][workers])) for each in (rates, costs))
        rows.append({"name": f"{workers} threads over processes", "rate": rate, "cpu_time": cost})
    return rows


def ends(ratio: Estimate) -> dict[str, float]:
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}


if __name__ == "__main__":
    sys.exit(main())
