"""CUDA graphs of parts of a model: what is recorded, when again, where inputs and outputs lie. No GPU: a replay here computes anew."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.worker.train.train_step import TrainStep
from experiments.components.layers import recorded
from experiments.components.workload import Context, Unsupported
from experiments.workloads import stable_diffusion

pytestmark = pytest.mark.usefixtures("one_thread")


class Gpu(Cpu):
    """Computes on the CPU and says that it is a GPU."""

    kind = "cuda"


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was recorded and replayed, in order. A replay computes from where inputs lay and writes to where the output lay."""
    told: list[str] = []

    def record(call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        output = call()
        (written,) = output if isinstance(output, tuple) else (output,)
        told.append("record")

        def replay() -> None:
            told.append("replay")
            again = call()
            written.copy_(again[0] if isinstance(again, tuple) else again)

        return replay, output

    monkeypatch.setattr(recorded, "record", record)
    monkeypatch.setattr(recorded, "HOST", "another")  # here the device's memory is the host's
    return told


def test_a_graph_for_each_kind_of_input_which_is_copied_and_an_output_that_is_written_over(done: list[str]) -> None:
    called = recorded.Recorded(lambda vector, scale, *, shift: vector * scale + shift)
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 7.0])
    shift = torch.tensor(1.0)
    with torch.inference_mode():
        first = called(one, 2, shift=shift)
        assert first.tolist() == [3, 5] and done == ["record", "replay"]
        second = called(two, 2, shift=shift * 2)
        assert second.tolist() == [12, 16] and done[2:] == ["replay"]
        assert second is first, "written over"
        assert (one.tolist(), two.tolist(), shift.item()) == ([1, 2], [5, 7], 1), "a caller's tensors stay as they are"
        for number, (vector, scale) in enumerate([(one, 3), (torch.ones(3), 2), (one.double(), 2)], 1):
            assert called(vector, scale, shift=shift).shape == vector.shape
            assert done.count("record") == 1 + number, "another value, shape or type"
    assert called(one, 2, shift=shift).tolist() == [3, 5] and done.count("replay") == 5, "outside of inference mode it computes"
    held = weakref.ref(first)
    del first, second
    assert held() is not None
    called.leave_out()
    with torch.inference_mode():
        assert called(one, 2, shift=shift).tolist() == [3, 5] and done.count("replay") == 5
    assert held() is None, "what was recorded is released"


def test_weights_are_cast_in_the_graph_and_the_cache_of_autocast_is_left_as_it_was(done: list[str]) -> None:
    kept: list[bool] = []
    called = recorded.Recorded(lambda vector: kept.append(torch.is_autocast_cache_enabled()) or vector + 1)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        called(torch.ones(1))
        assert kept[0] is False and torch.is_autocast_cache_enabled()


def test_what_lies_on_the_host_no_graph_can_read() -> None:
    with torch.inference_mode(), pytest.raises(Unsupported, match="cuda_graph: argument shift of the forward pass lies on the host"):
        recorded.Recorded(lambda shift: shift)(shift=torch.ones(1))


@pytest.mark.parametrize("scheduler", ["ddim", "pndm"])
def test_all_denoising_steps_of_all_images_replay_one_graph(done: list[str], scheduler: str) -> None:
    """And the decoder another; the images are those of single launches, in a batch after the first too."""
    losses = {}
    for graph in (False, True):
        values = {"batch_size": 1, "denoising_steps": 3, "seed": 7, "scheduler": scheduler, "cuda_graph": graph}
        parameters = stable_diffusion.Parameters.model_validate(values)
        one = stable_diffusion.build(Context(parameters, None, "cpu", 0, 1, 1))
        torch.manual_seed(0)
        step = TrainStep(one, one.model(), parameters, Gpu())
        batches = one.batches()
        losses[graph] = [float(step.forward_backward(next(batches))) for _ in range(2)]
        assert graph or not done
    assert losses[True] == losses[False] and losses[True][0] != losses[True][1]
    calls = 3 + (scheduler == "pndm")
    assert done.count("record") == 2 and done.count("replay") == 2 * (calls + 1)
    step.evaluate()
    assert done.count("replay") == 2 * (calls + 1), "evaluation launches each kernel"
    assert step.recorded
    again = next(one.batches())
    with_graphs = float(step.forward_backward(again))
    step.leave_graphs_out()
    assert float(step.forward_backward(again)) == with_graphs
    assert (done.count("record"), done.count("replay")) == (2, 3 * (calls + 1)), "what was recorded launches each kernel now"
