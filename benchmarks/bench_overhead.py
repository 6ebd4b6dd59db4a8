"""What a trial costs beyond its model: each launcher against a stock one-worker TorchTrainer.fit(), taking turns.

    python benchmarks/bench_overhead.py [--rounds 3] [--ray-job]

Overhead of a launcher: from `start` to the first step, and from the last step until the launch is over and its result read, less the
phase that builds model and optimiser. Overhead of stock: from the call of `fit()`, which starts Ray, to its return, with Ray's defaults, a
loop that does nothing and a fresh process each time; the imports before the call are not counted, which favours stock. `ratio` is the
geometric mean over the rounds of their quotients, with its 95 % interval (experiments/stats/repeats.py). `phases_s` are medians: until the
trial's code runs, from there until the model is built, and after the last step. --ray-job starts a Ray head with token
authentication on free ports and ends it afterwards, and runs trials on it forked from the node's template and as fresh processes. The
first run of each kind is not counted, and starts the template. Prints one JSON line a launcher; exit status 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cluster import launchers
from cluster.journal.journal import read_journal
from cluster.launchers import Launcher
from cluster.pools.pool import Pool
from cluster.stack import process
from cluster.stack.components import components
from cluster.stack.ports import in_use
from cluster.stack.settings import PORTS, load, stack_environment
from cluster.trial_layout import JOURNAL, RESULT, TRIAL
from experiments import workloads
from experiments.config.paths import REPOSITORY
from experiments.json_file import read_model
from experiments.stats.repeats import paired_ratio
from experiments.trial import Outcome, Trial, TrialResult, digest

LIMITS = {"embedded": 1 / 3, "ray_job": 0.5, "ray_job_fresh": 1.2}
PHASES = ("until_it_runs", "until_build", "after_last_step")
STEPS = {"steps": 2, "warmup_steps": 1, "evaluate": False, "width": 8, "threads": 1}
POLL_S = 0.01
DEADLINE_S = 300.0

STOCK = """
import json, sys, time
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def loop():
    pass

trainer = TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(storage_path=sys.argv[1]))
started = time.perf_counter()
trainer.fit()
print(json.dumps({"fit_s": time.perf_counter() - started}))
"""


def main() -> int:
    options = parse()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="sb-", dir="/tmp"))  # short: Ray puts sockets into it, and their paths are limited
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        os.environ["SWEEPBENCH_RUNS"] = str(folder / "runs")
        runners: dict[str, Callable[[int], list[float]]] = {"stock": lambda number: [stock(folder, number)]}
        runners["embedded"] = runner(Pool(name="cpu", device="cpu", address="embedded"), folder / "embedded")
        if options.ray_job:
            head = stack.enter_context(ray_head())
            runners["ray_job"] = runner(head, folder / "ray_job")
            runners["ray_job_fresh"] = runner(head.model_copy(update={"start": "fresh"}), folder / "ray_job_fresh")
        for run in runners.values():
            run(0)  # what only the first process on a machine pays: files not in memory, bytecode not written
        seconds: dict[str, list[list[float]]] = {name: [] for name in runners}
        for number in range(1, options.rounds + 1):
            for name, run in runners.items():
                seconds[name].append(run(number))
    return report(seconds)


def stock(folder: Path, number: int) -> float:
    """Seconds of one fit() with Ray's defaults, in a process and a Ray of its own."""
    home = folder / f"stock{number}"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SWEEPBENCH_"))}
    environment = {**kept, "HOME": str(home), "RAY_TMPDIR": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", STOCK, str(home / "results")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the stock trainer failed:\n{done.stderr[-3000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["fit_s"])


def runner(pool: Pool, folder: Path) -> Callable[[int], list[float]]:
    """A function that runs one trial on the pool and gives its overhead in seconds, by PHASES."""
    launcher = launchers.for_pool(pool)
    return lambda number: one_trial(launcher, make_trial(folder / str(number), pool), folder / str(number))


def make_trial(folder: Path, pool: Pool) -> Trial:
    values = workloads.load("synthetic").Parameters(**STEPS).model_dump(mode="json")
    trial = Trial(
        key=secrets.token_hex(8),
        key_parts={},
        sweep_id="overhead-20260101-000000-0000",
        suite="overhead",
        workload="synthetic",
        pool=pool.name,
        device="cpu",
        cell=digest(values),
        repeat=1,
        index=0,
        axes={"pool": pool.name},
        parameters=values,
    )
    folder.mkdir(parents=True)
    (folder / TRIAL).write_text(trial.model_dump_json())
    return trial


def one_trial(launcher: Launcher, trial: Trial, folder: Path) -> list[float]:
    started = time.time()
    launch = launcher.start(trial, folder, 1)
    while launcher.status(launch).running:
        if time.time() - started > DEADLINE_S:
            launcher.stop(launch)
            raise SystemExit(f"the trial was not over after {DEADLINE_S:.0f} s:\n{launcher.log(launch, folder)[-3000:]}")
        time.sleep(POLL_S)
    over = time.time()
    path = folder / RESULT
    result = read_model(path, TrialResult, "")
    if result is None or result.outcome is not Outcome.OK:
        raise SystemExit(f"the trial did not end ok:\n{launcher.log(launch, folder)[-3000:]}")
    journal = read_journal(folder / JOURNAL)
    launcher.stop(launch)  # as a sweep does: what it leaves ends here
    began = {phase["name"]: phase["t"] for phase in journal.phases}
    return [began["start"] - started, began["build"] - began["start"], over - journal.steps[-1]["t"]]


@contextmanager
def ray_head() -> Iterator[Pool]:
    """The stack's Ray head alone, with its token, on free ports."""
    os.environ.update({variable: str(port) for (variable, _), port in zip(PORTS.values(), free_ports(), strict=False)})
    settings = load(REPOSITORY)
    settings.state.mkdir(parents=True)
    settings.token.touch(mode=0o600)
    settings.token.write_text(secrets.token_hex(32))
    settings.ray_temp.parent.mkdir(mode=0o700)
    head = next(component for component in components(settings) if component.name == "ray")
    environment = {**os.environ, **stack_environment(settings), **head.environment, "PYTHONPATH": str(REPOSITORY)}
    record = process.start(settings.state, "ray", head.command, environment, REPOSITORY, head.ports)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not head.answers(record.started):
            if time.monotonic() > deadline or not process.alive(record):
                raise SystemExit(f"the Ray head does not answer:\n{(settings.state / 'ray.log').read_text()[-3000:]}")
            time.sleep(0.2)
        yield Pool(name="head", device="cpu", address=settings.ray_url, token_file=str(settings.token), python=sys.executable)
    finally:
        process.stop(record, head.stop_grace_s)
        shutil.rmtree(settings.ray_temp.parent, ignore_errors=True)


def free_ports() -> list[int]:
    first = 20_000 + secrets.randbelow(10_000)
    return [port for port in range(first, first + 200) if not in_use(port)][: len(PORTS)]


def report(seconds: dict[str, list[list[float]]]) -> int:
    stock_s = [sum(phases) for phases in seconds.pop("stock")]
    met = True
    for name, rounds in seconds.items():
        values = [sum(phases) for phases in rounds]
        ratio = paired_ratio(values, stock_s)
        met = met and ratio.value <= LIMITS[name]
        row = {
            "benchmark": f"overhead {name}",
            "seconds": round(statistics.median(values), 2),
            "phases_s": {phase: round(statistics.median(each), 2) for phase, each in zip(PHASES, zip(*rounds, strict=True), strict=True)},
            "stock_fit_s": round(statistics.median(stock_s), 2),
            "ratio": round(ratio.value, 3),
            "interval": [round(ratio.low, 3), round(ratio.high, 3)],
            "limit": round(LIMITS[name], 3),
            "met": ratio.value <= LIMITS[name],
            "rounds": [round(value, 2) for value in values],
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(row), flush=True)
    return 0 if met else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray-job", action="store_true", help="the Ray-job launcher too, on a head that is started for it")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
