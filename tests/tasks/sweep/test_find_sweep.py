"""How a sweep is named: by its id, as `last`, by its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.paths import runs_root
from tasks.sweep.find_sweep import find_sweep
from tasks.sweep.store import StoreError
from tests.tasks.fake_sweep import Fake, make_sweep

OLD, NEW = "made-up-20260101-000000-0000", "made-up-20260102-000000-0000"


def test_by_its_id_as_the_last_or_by_its_folder(tmp_path: Path) -> None:
    old, new = (make_sweep(runs_root(), [Fake({"pool": "cpu"})], sweep_id=name) for name in (OLD, NEW))
    assert (find_sweep(OLD), find_sweep("last"), find_sweep(old), find_sweep(str(new))) == (old, new, old, new)


def test_what_is_none_says_why(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no sweep yet"):
        find_sweep("last")
    with pytest.raises(StoreError, match=f"there is no sweep {OLD}"):
        find_sweep(OLD)
    with pytest.raises(StoreError, match="is not a sweep id"):
        find_sweep("nothing")
    with pytest.raises(StoreError, match=r"is no sweep: it has no plan.json"):
        find_sweep(tmp_path)
