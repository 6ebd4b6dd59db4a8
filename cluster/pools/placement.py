"""The Ray resources that a trial's driver and workers request, computed from the pool's entry. Ray does the scheduling.

An `exclusive` pool gives a trial whole nodes: its workers together request all of their nodes' custom resources and accelerator type. Ray
then places no other trial beside them, whoever submits it and from whichever machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from experiments.config.strict import Strict
from experiments.price import Price

if TYPE_CHECKING:  # a trial's process reads a Placement, and no pools
    from cluster.pools.pool import Pool

_RESOURCE = {"cpu": "CPU", "cuda": "GPU", "hpu": "HPU"}
_IN_JOB = ("cpu", "cuda")  # devices on which a trial with one worker needs no TorchTrainer with a process of its own
_DRIVER_SHARE = 0.0001  # the smallest amount Ray counts: it ties the driver to the pool's nodes and uses up almost nothing
_FOR_DRIVERS = 0.01  # share of a node's resource left for the drivers of trials on other nodes
_DIGITS = 10_000  # Ray counts resources in ten-thousandths


class Placement(Strict):
    """The resources requested from Ray. Passed to the trial's process as JSON."""

    workers: int = Field(ge=1)
    nodes: int = Field(ge=1, description="nodes the workers need")
    use_gpu: bool = False
    per_worker: dict[str, float] = Field(description="Ray resources of one worker, GPU left out")
    accelerator_type: str | None = None
    strategy: str = Field("PACK", description="Ray's placement strategy; STRICT_PACK keeps the workers of one node together")
    driver: dict[str, float] = Field(default_factory=dict, description="custom resources of the job's entrypoint")
    in_job: bool = Field(False, description="the only worker is the job's own process, and the job holds its resources")
    start_timeout_s: float = Field(300, gt=0, description="a cluster that cannot place the workers within this time lacks a node")


def accelerator(pool: Pool) -> str:
    """The Ray resource that counts the pool's devices. Ray detects a Gaudi, emulated or not, through habana_frameworks."""
    return _RESOURCE.get(pool.device, pool.device)


def nodes_for(pool: Pool, devices: int) -> int:
    """Number of nodes that a trial on `devices` devices needs."""
    return math.ceil(devices / pool.accelerators_per_node) if pool.accelerators_per_node else 1


def price_of(pool: Pool, parameters: Mapping[str, Any]) -> Price | None:
    """What a trial with these parameters pays for its share of `pool` by the hour; None where the pool names no price.

    By the accelerator it pays those that it uses; by the node those that it takes, whole, also where it uses only some of their devices.
    """
    if pool.price_per_hour is None or pool.price_per is None:
        return None
    devices = int(parameters.get("devices", 1))
    units = devices if pool.price_per == "accelerator" else nodes_for(pool, devices)
    return Price(per_hour=pool.price_per_hour, per=pool.price_per, units=units, currency=pool.price_currency)


def place(pool: Pool, parameters: Mapping[str, Any]) -> Placement:
    """The resources that a trial with these parameters requests on `pool`."""
    workers = int(parameters.get("devices", 1))
    nodes = nodes_for(pool, workers)
    workers_per_node = math.ceil(workers / nodes)
    device_resource = accelerator(pool)
    per_worker: dict[str, float] = {"CPU": float(parameters.get("threads") or 1)}
    if device_resource not in ("CPU", "GPU", *pool.resources):
        per_worker[device_resource] = 1.0
    for name, amount in pool.resources.items():
        node_total = amount * pool.accelerators_per_node if pool.accelerators_per_node else None
        per_worker[name] = _share(node_total, workers_per_node) if pool.exclusive and node_total else amount
    if pool.accelerator_type:  # Ray gives a node 1 of it
        per_worker[f"accelerator_type:{pool.accelerator_type}"] = _share(1.0, workers_per_node) if pool.exclusive else 0.001
    return Placement(
        workers=workers,
        nodes=nodes,
        use_gpu=device_resource == "GPU",
        per_worker=per_worker,
        accelerator_type=pool.accelerator_type,
        strategy="STRICT_PACK" if nodes == 1 else "PACK",
        in_job=workers == 1 and pool.device in _IN_JOB,
        driver=dict.fromkeys([name for name in per_worker if name not in ("CPU", "HPU", "GPU")], _DRIVER_SHARE),
        start_timeout_s=pool.start_timeout_s,
    )


def needs(placement: Placement) -> dict[str, float]:
    """The resources that one worker uses on its node, GPU included."""
    return {**placement.per_worker, **({"GPU": 1.0} if placement.use_gpu else {})}


def of_job(placement: Placement) -> dict[str, Any]:
    """The resources that the job itself holds, as keyword arguments of Ray's `submit_job`: its only worker's, or a driver's."""
    if not placement.in_job:
        return {"entrypoint_resources": placement.driver or None}
    others = {name: amount for name, amount in placement.per_worker.items() if name != "CPU"}
    return {
        "entrypoint_num_cpus": placement.per_worker["CPU"],
        "entrypoint_num_gpus": 1 if placement.use_gpu else None,
        "entrypoint_resources": others or None,
    }


def room(placement: Placement, node: Mapping[str, float]) -> int:
    """How many of the trial's workers fit on a node with the resources `node` (name -> total)."""
    return min(int((node.get(name, 0.0) + 1e-9) // amount) for name, amount in needs(placement).items())


def _share(node_total: float, workers: int) -> float:
    """A worker's share of a node's resource. The shares of all workers together leave no room for another trial."""
    return max(1, math.floor((node_total - _FOR_DRIVERS) / workers * _DIGITS)) / _DIGITS
