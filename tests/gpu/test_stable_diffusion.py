"""Images by CUDA graphs of UNet and decoder are those of single launches. `make test-gpu` runs it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from experiments.components.workload import Context
from experiments.workloads import stable_diffusion

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("values", [{}, {"precision": "bf16", "cast_weights": False, "autocast": True}], ids=["fp32", "autocast"])
def test_images_are_those_of_single_launches(values: dict[str, Any]) -> None:
    from cluster.devices.cuda import Cuda
    from cluster.worker.train.train_step import TrainStep

    losses, images = {}, {}
    for graph in (False, True):
        settings = {"batch_size": 2, "denoising_steps": 3, "seed": 7, "cuda_graph": graph, **values}
        parameters = stable_diffusion.Parameters.model_validate(settings)
        one = stable_diffusion.build(Context(parameters, None, "cuda", 0, 1, 2))
        torch.manual_seed(0)
        step = TrainStep(one, one.model(), parameters, Cuda(0))
        batches = [step.place(batch) for batch in islice(one.batches(), 3)]
        losses[graph] = [step.forward_backward(batch) for batch in batches]
        with torch.inference_mode(), step._autocast():
            images[graph] = step.model(batches[0]).clone()
    torch.testing.assert_close(images[True], images[False], rtol=1e-3, atol=5e-3)
    torch.testing.assert_close(torch.stack(losses[True]), torch.stack(losses[False]), rtol=0.02, atol=0)  # other images: 0.27
    assert float(losses[True][0]) != float(losses[True][1]), "each batch its own images"
