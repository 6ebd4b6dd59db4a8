"""Whether trials that are forked from a template measure what fresh processes do: pairs of both in turns, A B B A.

    python -m benchmarks.bench_warm_start [--suite bert --profile cuda --pool cuda] [--only axis=value] [--pairs 5] [--restart-every 1]

Two pools that name the same device, one with `start: fresh` and one with `start: warm`, run one cell of the suite through launcher, trial
process, sampler and journal; a round before the first pair, which is not counted, pays what only the first pays. Prints JSON lines: the
paired ratio of throughputs, warm / fresh, with its 95 % interval; how far trials of each kind lie apart (standard deviation of the
logarithms, and warm / fresh with its 95 % interval by F, which takes them as normal); and for how long a trial of each kind held the
device. All trials of a template share its memory layout, which may favour or hamper all of them alike (Mytkowicz et al., ASPLOS 2009):
--restart-every N starts a new template after N warm trials. Exit status 1 where the throughputs are shown to differ by more than the
limit: 2 % on a CPU, 0.5 % elsewhere. Ctrl-C ends it early: the pairs that are whole count.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import scipy.stats

from cluster import launchers
from cluster.launchers import Launcher
from cluster.pools.pool import PoolEntry, find_pool, load_pools
from cluster.trial_layout import SLOTS
from experiments.stats.estimate import Estimate
from experiments.stats.repeats import paired_ratio
from experiments.trial import Outcome, Trial, TrialResult
from flows.cli.start_sweep import request_of
from tasks.analysis.held_files import held_of
from tasks.analysis.held_time import MEASURED, HeldTrial
from tasks.analysis.results import load_sweep, write_steps
from tasks.sweep import dataset
from tasks.sweep.failure_policy import Policy
from tasks.sweep.plan import make_plan
from tasks.sweep.pool_slots import PoolSlots
from tasks.sweep.pool_trials import PoolTrials
from tasks.sweep.pool_watch import PoolWatch
from tasks.sweep.slot_log import SlotLog
from tasks.sweep.store import Plan, SweepStore
from tasks.sweep.sweep_stop import SweepStop

KINDS = ("fresh", "warm")
LIMITS = {"cpu": 0.02}  # largest difference of the throughputs; 0.5 % on any other device
LIMIT = 0.005
IDLE = ("waiting", "between")  # parts of the held time that are no trial's own


class Quiet:
    """The events of trials, which nobody records."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **more: None


def main() -> int:
    options = parse()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="sb-") as name:
        folder = Path(name)
        os.environ["SWEEPBENCH_RUNS"] = str(folder / "runs")
        device = make_pools(folder / "pools.yaml", options.pool)
        plan = one_cell(options)
        store = SweepStore(plan.sweep_id)
        with store.lease():
            store.save_plan(plan)
            if plan.trials[0].data:
                dataset.build(plan.trials[0].parameters)
            results = run(store, plan, options.restart_every)
        held = held_of(load_sweep(store.dir), emulated=plan.trials[0].emulated)
        trials = held.trials if held else []
    whole = whole_rounds(plan, results)
    if len(whole.trials) < 2 * 3:
        raise SystemExit("interrupted before the second pair: there is no interval")
    return report(whole, results, trials, LIMITS.get(device, LIMIT))


def make_pools(path: Path, name: str) -> str:
    """Write the two pools and let every pool be found there. Returns the kind of their device. Raises ConfigError, SystemExit."""
    pool = find_pool(load_pools(), name)
    if not pool.embedded:
        raise SystemExit(f"pool {name} is a cluster: only an embedded pool starts trials in either way")
    entry = pool.model_dump(include=set(PoolEntry.model_fields), exclude_defaults=True)
    path.write_text(json.dumps({"pools": {kind: {**entry, "start": kind} for kind in KINDS}}))  # JSON is YAML
    os.environ["SWEEPBENCH_POOLS"] = str(path)
    return pool.device


def one_cell(options: argparse.Namespace) -> Plan:
    """The plan of one cell of the suite, its first, on both pools: a round more than there are pairs, every second one backwards."""
    request = request_of(options.suite, options.profile, list(KINDS), options.set, options.only, options.pairs + 1)
    plan, _ = make_plan(request)
    kept = [trial for trial in plan.trials if cell_of(trial) == cell_of(plan.trials[0]) and not trial.reference]
    return plan.model_copy(update={"trials": kept})


def cell_of(trial: Trial) -> Mapping[str, Any]:
    """Its axes, the pool left out."""
    return {axis: value for axis, value in trial.axes.items() if axis != "pool"}


def run(store: SweepStore, plan: Plan, restart_every: int | None) -> dict[str, TrialResult]:
    """Run the trials one after the other in the plan's order, until all have ended or somebody presses Ctrl-C. Returns results by key.

    Raises SystemExit for a trial that does not end ok.
    """
    known, log = load_pools(), SlotLog(store.dir / SLOTS)
    pools = {kind: pool_trials(store, plan, PoolSlots(find_pool(known, kind), plan.trials), log) for kind in KINDS}
    results = {}
    try:
        for trial in plan.trials:
            result = pools[trial.pool].run(trial, logging.getLogger("bench"))
            if result.outcome is not Outcome.OK:
                raise SystemExit(f"{trial.name} ended as {result.outcome}: {result.reason}\n{result.detail or ''}")
            results[trial.key] = result
            if trial.pool == "warm" and restart_every and trial.repeat % restart_every == 0:
                pools["warm"].launcher.close()  # the next trial gets a new template
            print(f"{trial.name}: {result.summary['throughput']:.6g} samples/s", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        launch = launchers.load(store.trial_dir(trial.key))
        if trial.key not in results and launch is not None:
            pools[trial.pool].launcher.stop(launch)
    finally:
        for pool in pools.values():
            pool.launcher.close()
    return results


def pool_trials(store: SweepStore, plan: Plan, slots: PoolSlots, log: SlotLog) -> PoolTrials:
    launcher: Launcher = launchers.for_pool(slots.pool)
    policy = Policy(retries=0, disturbed=0)
    events: Any = Quiet()
    return PoolTrials(store, slots, launcher, policy, PoolWatch(slots.pool.name, 0.0), SweepStop(store), events, write_steps, log)


def report(plan: Plan, results: Mapping[str, TrialResult], held: Sequence[HeldTrial], limit: float) -> int:
    """Print the figures of all rounds but the first. Returns the exit status."""
    rates = {kind: [rate(results[trial.key]) for trial in counted(plan, kind)] for kind in KINDS}
    ratio = paired_ratio(rates["warm"], rates["fresh"])
    verdict = judged(ratio, limit)
    starts = sorted({str(results[trial.key].environment.get("start", "fresh")) for trial in counted(plan, "warm")})
    row = {
        "benchmark": f"warm / fresh, {plan.name} {plan.profile}",
        "pairs": len(rates["warm"]),
        "ratio": round(ratio.value, 5),
        "low": round(ratio.low, 5),
        "high": round(ratio.high, 5),
        "limit": limit,
        "verdict": verdict,
        "disturbed": sum(result.disturbed is not None for result in results.values()),
        "started": ", ".join(starts),
        "rates": rates,
    }
    print(json.dumps(row))
    ratio_of_spreads = spread_ratio(rates["warm"], rates["fresh"])
    names = ("ratio", "low", "high")
    spreads = {f"{kind}_percent": round(100 * spread(rates[kind]), 3) for kind in KINDS}
    print(json.dumps({"benchmark": "spread between trials", **spreads, **dict(zip(names, ratio_of_spreads, strict=True))}))
    for kind in KINDS:
        print(json.dumps({"benchmark": f"{kind} trials, time of the device", **time_of(plan, kind, held)}))
    return 1 if verdict == "differ" else 0


def whole_rounds(plan: Plan, results: Mapping[str, TrialResult]) -> Plan:
    """The plan without the rounds that an interruption left open."""
    open_ = {trial.repeat for trial in plan.trials if trial.key not in results}
    return plan.model_copy(update={"trials": [trial for trial in plan.trials if trial.repeat not in open_]})


def counted(plan: Plan, kind: str) -> list[Trial]:
    """The trials of one kind in the order of their pairs, without the first round."""
    return sorted((trial for trial in plan.trials if trial.pool == kind and trial.repeat > 1), key=lambda trial: trial.repeat)


def rate(result: TrialResult) -> float:
    return float(result.summary["throughput"] or 0.0)


def judged(ratio: Estimate, limit: float) -> str:
    """`same` where the whole interval is within the limit, `differ` where all of it is outside, else `undecided`."""
    low, high = 1 / (1 + limit), 1 + limit
    if low <= ratio.low and ratio.high <= high:
        return "same"
    return "differ" if ratio.high < low or ratio.low > high else "undecided"


def spread(rates: Sequence[float]) -> float:
    """The standard deviation of the logarithms."""
    return statistics.stdev(math.log(value) for value in rates)


def spread_ratio(cell: Sequence[float], baseline: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """The ratio of both spreads and its interval: the variances' ratio is F distributed where the logarithms are normal."""
    ratio = (spread(cell) / spread(baseline)) ** 2
    df = len(cell) - 1, len(baseline) - 1
    low, high = (scipy.stats.f.ppf(1 - tail, *df) for tail in ((1 - level) / 2, (1 + level) / 2))
    return tuple(round(math.sqrt(value), 3) for value in (ratio, ratio / low, ratio / high))  # type: ignore[return-value]


def time_of(plan: Plan, kind: str, held: Sequence[HeldTrial]) -> dict[str, float]:
    """For how long a trial of this kind held the device, and which share of that was measured: medians."""
    keys = {trial.key for trial in counted(plan, kind)}
    found = [{part: s for part, s in one.parts.items() if part not in IDLE} for one in held if one.trial in keys]
    own = [sum(parts.values()) for parts in found]
    shares = [parts.get(MEASURED, 0.0) / whole for parts, whole in zip(found, own, strict=True)]
    return {"seconds": round(statistics.median(own), 2), "measured_share": round(statistics.median(shares), 3)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="bridgetower")
    parser.add_argument("--profile", default="smoke")
    parser.add_argument("--pool", default="cpu", help="an embedded pool")
    parser.add_argument("--only", action="append", metavar="AXIS=VALUE", help="which cell; else the suite's first")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE")
    parser.add_argument("--pairs", type=int, default=5, help="2 at least")
    parser.add_argument("--restart-every", type=int, metavar="N", help="start a new template after N warm trials")
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error("--pairs: an interval needs 2 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
