"""Which Ray resources a trial asks for: its driver's and its workers', from the pool's entry. Arithmetic, decided here and carried out by
Ray.

A pool that is `exclusive` gives a trial whole nodes. Its workers together ask for all that their nodes have of the pool's custom resources
and accelerator type, so Ray places no other trial beside them, whoever submits it and from whichever machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from experiments.config.strict import Strict

if TYPE_CHECKING:  # a trial's process reads a Placement, and no pools
    from cluster.pools.pool import Pool

_RESOURCE = {"cpu": "CPU", "cuda": "GPU", "hpu": "HPU"}
_DRIVER_SHARE = 0.0001  # the least Ray counts: puts the driver on a node of the pool and takes nothing from it
_FOR_DRIVERS = 0.01  # what workers leave of a node's resource for the drivers of trials that run on other nodes
_DIGITS = 10_000  # Ray counts resources in ten-thousandths


class Placement(Strict):
    """What Ray is asked for. Passed to the trial's process as JSON."""

    workers: int = Field(ge=1)
    nodes: int = Field(ge=1, description="nodes the workers need")
    use_gpu: bool = False
    per_worker: dict[str, float] = Field(description="Ray resources of one worker, GPU left out")
    accelerator_type: str | None = None
    strategy: str = Field("PACK", description="Ray's placement strategy; STRICT_PACK keeps the workers of one node together")
    driver: dict[str, float] = Field(default_factory=dict, description="custom resources of the job's entrypoint")
    start_timeout_s: float = Field(
        300, gt=0, description="a cluster that cannot place the workers for so long has lost a node, or never had it"
    )


def accelerator(pool: Pool) -> str:
    """The Ray resource that counts the pool's devices. Ray finds an emulated Gaudi as it finds a real one, through habana_frameworks."""
    return _RESOURCE.get(pool.device, pool.device)


def nodes_for(pool: Pool, devices: int) -> int:
    """Nodes that a trial of so many devices takes."""
    return math.ceil(devices / pool.accelerators_per_node) if pool.accelerators_per_node else 1


def place(pool: Pool, parameters: Mapping[str, Any]) -> Placement:
    """What to ask Ray for on `pool`, for a trial with these parameters."""
    workers = int(parameters.get("devices", 1))
    nodes = nodes_for(pool, workers)
    on_a_node = math.ceil(workers / nodes)
    counted = accelerator(pool)
    per_worker: dict[str, float] = {"CPU": float(parameters.get("threads") or 1)}
    if counted not in ("CPU", "GPU", *pool.resources):
        per_worker[counted] = 1.0
    for name, amount in pool.resources.items():
        of_a_node = amount * pool.accelerators_per_node if pool.accelerators_per_node else None
        per_worker[name] = _share(of_a_node, on_a_node) if pool.exclusive and of_a_node else amount
    if pool.accelerator_type:  # Ray gives a node 1 of it
        per_worker[f"accelerator_type:{pool.accelerator_type}"] = _share(1.0, on_a_node) if pool.exclusive else 0.001
    return Placement(
        workers=workers,
        nodes=nodes,
        use_gpu=counted == "GPU",
        per_worker=per_worker,
        accelerator_type=pool.accelerator_type,
        strategy="STRICT_PACK" if nodes == 1 else "PACK",
        driver=dict.fromkeys([name for name in per_worker if name not in ("CPU", "HPU", "GPU")], _DRIVER_SHARE),
        start_timeout_s=pool.start_timeout_s,
    )


def needs(placement: Placement) -> dict[str, float]:
    """All that one worker takes of a node."""
    return {**placement.per_worker, **({"GPU": 1.0} if placement.use_gpu else {})}


def room(placement: Placement, node: Mapping[str, float]) -> int:
    """How many of the trial's workers fit on a node with these resources."""
    return min(int((node.get(name, 0.0) + 1e-9) // amount) for name, amount in needs(placement).items())


def _share(of_a_node: float, workers: int) -> float:
    """A worker's part of a node's resource, so that all of them together leave no room for another trial's."""
    return max(1, math.floor((of_a_node - _FOR_DRIVERS) / workers * _DIGITS)) / _DIGITS
