"""inductor's choice between kernels of a reduction, in a process that compiles and in one that reads the cache. `make test-gpu` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
WIDTH = 1280  # beyond 1,024, where inductor loops over a row by itself
TRAINED = f"""
import json, sys, torch
from cluster.devices.cuda import open_device
from cluster.worker.train.train_step import TrainStep
from cluster.worker.torch_internals import graph_lookups
from experiments.components.workload import Context
from experiments.workloads import synthetic

class Normed(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.norm, self.block = torch.nn.LayerNorm({WIDTH}), block

    def forward(self, x):
        return self.block(self.norm(x))

values = {{"batch_size": 256, "steps": 8, "width": {WIDTH}, "compile": "model", "multi_kernel": sys.argv[1] == "true"}}
parameters = synthetic.Parameters(**values)
made = synthetic.build(Context(parameters, None, "cuda", 0, 1, 256))
torch.manual_seed(0)
step = TrainStep(made, Normed(made.model()), parameters, open_device(0))
batch = step.place(next(iter(made.batches())))
losses = []
for number in range(1, 6):
    losses.append(float(step.forward_backward(batch)))
    step.update(number)
print(json.dumps([losses, graph_lookups()]))
"""


def trained(multi_kernel: bool, cache: Path) -> tuple[list[float], tuple[int, int]]:
    """Losses, and how many graphs were found in the cache and compiled."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-c", TRAINED, str(multi_kernel).lower()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    losses, lookups = json.loads(done.stdout.splitlines()[-1])
    return losses, tuple(lookups)


def test_a_process_that_reads_the_cache_learns_the_same_and_so_does_one_without_the_choice(tmp_path: Path) -> None:
    plain, _ = trained(False, tmp_path / "plain")
    first, (found, compiled) = trained(True, tmp_path / "chosen")
    assert found == 0 and compiled > 0
    again, (found, compiled) = trained(True, tmp_path / "chosen")
    assert found > 0 and compiled == 0
    assert len(set(plain)) == 5
    assert first == pytest.approx(plain, rel=1e-4) and again == pytest.approx(plain, rel=1e-4)
