"""A small workload, two pools and a folder of suites of their own, for the tests of suites and matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments.config.errors import ConfigError
from experiments.spec.load import load_suite, profile_names
from experiments.spec.schema import Suite

WORKLOAD = """
from typing import Literal
from pydantic import Field, model_validator
from experiments.parameters import TrainingParameters

class Parameters(TrainingParameters):
    same_work = ("model",)

    model: Literal["tiny", "large"] = "tiny"
    shards: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _whole(self):
        if self.batch_size != "max" and self.batch_size % self.shards:
            raise ValueError(f"batch_size {self.batch_size} is no multiple of shards {self.shards}")
        return self

def build(context):
    raise NotImplementedError
"""

SUITE = """\
suite: toys
description: Two pools, two precisions
workload: toy
fixed:
  steps: 10
axes:
  pool: [cpu, gpu]
  precision: [fp32, bf16]
  dataloader_workers: [0, 1]
baseline: {dataloader_workers: 0}
"""


@dataclass
class Facts:
    """A pool, as far as a suite knows it."""

    device: str
    capacity: int | None = None


POOLS = {"cpu": Facts("cpu", 2), "gpu": Facts("cuda", 8)}


class Workshop:
    """Writes suites and loads them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("suites", "workloads"):
            (root / name).mkdir()
        (root / "workloads" / "toy.py").write_text(WORKLOAD)

    def write(self, text: str, name: str = "toys") -> Path:
        path = self.root / "suites" / f"{name}.yaml"
        path.write_text(text)
        return path

    def load(self, text: str, name: str = "toys", **options: Any) -> Suite:
        return load_suite(self.write(text, name), pools=POOLS, **options)

    def refused(self, text: str, name: str = "toys", **options: Any) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(text, name, **options)
        return caught.value


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    yield Workshop(tmp_path)


def every_profile(name: str) -> dict[str, Suite]:
    """The profiles of a suite by name, `full` first."""
    return {profile: load_suite(name, profile=profile, pools=load_pools()) for profile in profile_names(name)}
