"""How long pools take together."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.pools.lanes import lanes, together_s

POOLS = """pools:
  shared: {device: cpu, address: embedded, exclusive: false}
  a: {device: cuda, address: "http://far:8265"}
  b: {device: cuda, address: "http://far:8265"}
"""


@pytest.fixture(autouse=True)
def more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "more.yaml"
    path.write_text(POOLS)
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(path))
    return path


def test_exclusive_pools_of_the_same_nodes_take_turns() -> None:
    assert together_s([]) == 0.0 and together_s([("cpu", 5.0)]) == 5.0
    assert together_s([("cpu", 5.0), ("cuda", 7.0), ("local", 1.0), ("unknown here", 4.0)]) == 13.0
    assert together_s([("cpu", 5.0), ("cuda", 7.0), ("unknown here", 14.0)]) == 14.0
    assert together_s([("a", 5.0), ("b", 7.0), ("cpu", 3.0)]) == 12.0
    assert together_s([("cpu", 5.0), ("shared", 7.0)]) == 7.0


def test_the_parts_of_a_pools_work_follow_each_other() -> None:
    assert together_s((pool, 2.0) for pool in ("cpu", "shared", "cpu", "cpu")) == 6.0


def test_what_is_known_of_the_pools_is_not_asked_again(more: Path) -> None:
    assert together_s([("cpu", 5.0), ("cuda", 7.0)], {"cpu": "cpu", "cuda": "cuda"}) == 7.0


def test_pools_that_cannot_be_read_are_taken_for_apart(more: Path) -> None:
    more.write_text("pools: [")
    assert lanes(["cpu", "cuda"]) == {"cpu": "cpu", "cuda": "cuda"}
    assert together_s([("cpu", 5.0), ("cuda", 7.0)]) == 7.0
