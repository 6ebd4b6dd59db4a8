"""`sweep bisect`: the cell of a nightly, two commits, and the commit between them that made it worse. Composition only."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from itertools import count
from threading import Event

from rich.console import Console

from cluster.commits.trees import worktrees
from cluster.pools.node_locks import NodeLocks
from cluster.pools.pool import find_pool, load_pools
from experiments.config.errors import ConfigError, choose
from experiments.config.paths import runs_root
from experiments.regression.definition import METRICS, load_night
from tasks.nightly import bisect
from tasks.nightly.accept import find_cell
from tasks.nightly.bisect import BisectError, Bisection
from tasks.nightly.plan import empty_night, plan_night, templates
from tasks.nightly.store import today
from tasks.report.text_format import plural


def run_bisect(name: str, cell: str, good: str, bad: str, metric: str | None, most: int, err: Console) -> Bisection:
    """Raises BisectError, CommitError, ConfigError, StoreError. What was measured stays in runs/bisect/."""
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
    folder = runs_root() / "bisect" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    err.print(
        f"{chosen.name}, {compared}: {plural(len(commits), 'commit')} after {first[:12]}; trials in {folder}",
        highlight=False,
        soft_wrap=True,
    )
    numbers = count(1)
    with NodeLocks(pool, 1, 1, Event()):

        def measure(commit: str) -> float:
            return bisect.run_once(worktrees().tree(commit), trial, folder / f"{next(numbers):03d}-{commit[:12]}", compared)

        minimum = chosen.minimum_effect.get(compared, METRICS[compared].minimum_effect)
        result = bisect.search(
            commits, first, measure, most, minimum, lambda text: err.print(text, highlight=False, markup=False, soft_wrap=True)
        )
    result.steps = [replace(step, subject=bisect.subject(step.commit)) for step in result.steps]
    if result.commit:
        result.subject = bisect.subject(result.commit)
        result.sentence += f" {result.subject}"
    return result
