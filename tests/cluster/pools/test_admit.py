"""What a cluster has room for, by what its head says of its nodes."""

from __future__ import annotations

import platform
from importlib.metadata import version

import pytest

from cluster.pools import probe
from cluster.pools.errors import PoolError
from cluster.pools.placement import Placement
from cluster.pools.pool import Pool


class Head:
    """In place of a Ray head: two nodes with four CPUs each."""

    url = "http://h:8265"

    def __init__(self, pool: Pool, timeout_s: float) -> None:
        pass

    def versions(self) -> dict[str, str]:
        return {"ray": version("ray"), "python": platform.python_version()}

    def nodes(self) -> list[dict[str, dict[str, float]]]:
        return [{"resources_total": {"CPU": 4.0}}, {"resources_total": {"CPU": 4.0}}]


@pytest.mark.parametrize(
    ("nodes", "workers", "lacks"), [(1, 4, None), (1, 5, "no node"), (1, 8, "no node"), (2, 8, None), (2, 9, "the cluster")]
)
def test_workers_of_one_node_need_room_on_one(monkeypatch: pytest.MonkeyPatch, nodes: int, workers: int, lacks: str | None) -> None:
    monkeypatch.setattr(probe, "_Head", Head)
    pool = Pool(name="p", device="cpu", address=Head.url, nodes=2)
    placement = Placement(workers=workers, nodes=nodes, per_worker={"CPU": 1.0})
    if lacks is None:
        probe.admit(pool, placement)
        return
    with pytest.raises(PoolError) as raised:
        probe.admit(pool, placement)
    assert str(raised.value) == f"pool p at http://h:8265: {lacks} has room for {workers} worker(s) with CPU 1 each"
    probe.admit(pool.model_copy(update={"autoscales": True}), placement)
