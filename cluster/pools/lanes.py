"""How long pools take together: they work side by side, except exclusive ones of the same nodes, which take turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from cluster.pools.node_locks import hardware
from cluster.pools.pool import load_pools
from experiments.config.errors import ConfigError


def lanes(pools: Iterable[str]) -> dict[str, str]:
    """Pool -> what it has in common with those that it takes turns with; its name where it is alone or not known here."""
    names = set(pools)
    found = {name: name for name in names}
    if len(names) > 1:  # reads no file for a single one
        with suppress(ConfigError):  # of who runs something there
            known = load_pools()
            found |= {name: hardware(known[name]) for name in names & known.keys() if known[name].exclusive}
    return found


def together_s(by_pool: Mapping[str, float]) -> float:
    """How long the work of all pools takes, s, by how long that of each one takes. 0 without any."""
    lane_of, sums = lanes(by_pool), dict[str, float]()
    for name, seconds in by_pool.items():
        sums[lane_of[name]] = sums.get(lane_of[name], 0.0) + seconds
    return max(sums.values(), default=0.0)
