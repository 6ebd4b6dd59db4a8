"""A trial's session in virtual time, and two ranks that do the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.session_support import Setting


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    with torch.random.fork_rng(devices=[]):  # a session seeds the process
        yield Setting(tmp_path, monkeypatch)


@pytest.fixture
def two_ranks(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.distributed as two ranks see it that do the same."""

    def gather(everyone: list[Any], mine: Any) -> None:
        everyone[:] = [replace(mine, rank=rank) if hasattr(mine, "rank") else mine for rank in range(2)]

    monkeypatch.setattr(torch.distributed, "barrier", lambda: setting.world.log.append("barrier"))
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
