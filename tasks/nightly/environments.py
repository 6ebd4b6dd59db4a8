"""What a night's trials ran on, by pool: kept with the night, so that its history can say what changed without its sweep."""

from __future__ import annotations

from experiments.config.scalar_text import yaml_text
from tasks.nightly.store import PoolEnvironment
from tasks.sweep.store import Plan, SweepStore, readable_result

# The code is the night's own record; the rest is no property of a pool, or changes of itself
_LEFT_OUT = frozenset(
    {"clock", "device_count", "emulated", "git_checked", "git_commit", "git_dirty", "host_id", "start", "threads", "tree", "world_size"}
)


def pool_environments(store: SweepStore, plan: Plan) -> list[PoolEnvironment]:
    """What the trials that have ended report of each pool. Where trials of a pool differ, a fact has all values: `node-1 / node-2`."""
    pools: dict[str, dict[str, set[str]]] = {}
    for trial in plan.trials:
        result = readable_result(store, trial.key)
        if result is not None and not trial.emulated:
            facts = pools.setdefault(trial.pool, {})
            for name, value in result.environment.items():
                if value is not None and name not in _LEFT_OUT:
                    facts.setdefault(name, set()).add(yaml_text(value))
    return [
        PoolEnvironment(pool=pool, facts={name: " / ".join(sorted(values)) for name, values in sorted(facts.items())})
        for pool, facts in pools.items()
        if facts
    ]
