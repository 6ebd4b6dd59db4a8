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


def together_s(times: Iterable[tuple[str, float]], lane_of: Mapping[str, str] | None = None) -> float:
    """How long all the work takes, s, by the pool of each part of it and how long that takes, s. 0 without any.

    `lane_of`: what `lanes` said of these pools, for who asks often.
    """
    parts, sums = list(times), dict[str, float]()
    known = lanes(pool for pool, _ in parts) if lane_of is None else lane_of
    for pool, seconds in parts:
        sums[known[pool]] = sums.get(known[pool], 0.0) + seconds
    return max(sums.values(), default=0.0)
