"""`sweep bisect`: the cell of a nightly, two commits, and the commit between them that made it worse. Composition only."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event

from rich.console import Console

from cluster.commits.trees import worktrees
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import Pool, find_pool, load_pools
from experiments.config.errors import ConfigError, choose
from experiments.config.paths import runs_root
from experiments.regression.definition import METRICS, load_night
from experiments.trial import Trial
from flows.runtime.interrupts import Terminated, ending, heeded
from tasks.nightly import bisect
from tasks.nightly.accept import find_cell
from tasks.nightly.bisect import BisectError, Bisection
from tasks.nightly.bisect_guard import guarded
from tasks.nightly.bisect_trials import BisectPairs, bisection_folder, question, save_end
from tasks.nightly.plan import empty_night, plan_night, templates
from tasks.nightly.store import today
from tasks.report.text_format import listed, plural


def run_bisect(name: str, cell: str, good: str, bad: str, metric: str | None, most: int, err: Console) -> Bisection | None:
    """None if it was interrupted: its trial has ended then, and the same call goes on with the pairs in runs/bisect.

    Raises BisectError, CommitError, ConfigError, StoreError.
    """
    definition = load_night(name)
    plan, night = plan_night(definition, empty_night(definition.nightly, today(), float("inf")))
    chosen = find_cell([each for each in night.cells if each.role == "history"], cell)
    compared = metric or chosen.metrics[0]
    if compared not in METRICS:
        raise ConfigError.one("--metric", None, compared, "is not judged", choose(compared, METRICS))
    trial = templates(plan)[chosen.cell, "history"]
    pool = find_pool(load_pools(), trial.pool)
    if not pool.embedded:
        raise BisectError(f"pool {pool.name} is a cluster, which has one version of the code; bisect on an embedded pool")
    first, commits = bisect.commits_between(good, bad)
    minimum = chosen.minimum_effect.get(compared, METRICS[compared].minimum_effect)
    say = partial(err.print, highlight=False, markup=False, soft_wrap=True)
    again = _again(name, chosen.cell, first, commits[-1], metric, most)
    running: list[Trial] = []
    try:
        with heeded(lambda: running, again), _slot(pool, say):
            folder = bisection_folder(runs_root() / "bisect", question(trial, chosen.cell, compared, first, commits[-1], most))
            pairs = BisectPairs(folder, trial, compared, worktrees().tree, ending)
            running.append(pairs.trial)
            known = f"; going on after {plural(pairs.known, 'pair')}" if pairs.known else ""
            say(f"{chosen.name}, {compared}: {plural(len(commits), 'commit')} after {first[:12]}; trials in {folder}{known}")
            with guarded(pairs.trial.key):
                result = bisect.search(commits, first, pairs.measure, most, minimum, say)
            result.steps = [replace(step, subject=bisect.subject(step.commit)) for step in result.steps]
            if result.commit:
                result.subject = bisect.subject(result.commit)
                result.sentence += f" {result.subject}"
            save_end(folder, result)
            return result
    except (KeyboardInterrupt, Terminated):
        say(f"interrupted; go on with it: {again}")
        return None


def _slot(pool: Pool, say: Callable[[str], None]) -> NodeLocks:
    """The pool's one slot, and who holds it while it is waited for."""
    told = set[str]()

    def busy() -> None:
        who = listed([other or "another sweep" for other in slot.others])
        if who not in told:
            told.add(who)
            say(f"pool {pool.name}: in use by {who}, which this one waits for")

    slot = NodeLocks(pool, 1, 1, Event(), busy, holder="`sweep bisect`")
    return slot


def _again(name: str, cell: str, good: str, bad: str, metric: str | None, most: int) -> str:
    """What goes on with an interrupted bisection, by its cell's id and full commits: names may mean others later, and then none of its
    pairs would be taken."""
    more = ["--metric", metric] if metric else []
    return shlex.join(["sweep", "bisect", cell, good, bad, *more, "--most", str(most), "--name", name])
