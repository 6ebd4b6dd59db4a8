"""Both launchers keep one contract: start, follow to the end, find again from plain data, stop with nothing left running.

The local launcher is held to it here; the Ray job launcher, which needs a Ray head, in tests/integration/test_ray_jobs.py.
"""

from __future__ import annotations

from pathlib import Path

from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from tests.contracts import launcher_contract


def test_the_local_launcher_keeps_the_contract(tmp_path: Path) -> None:
    pool = Pool(name="cpu", device="cpu", address="embedded")
    launcher_contract(lambda: LocalLauncher(pool), tmp_path)
