"""Steps as CUDA graphs: which steps are launched, what a replay reads and writes, and what cannot be recorded. A recorder on the CPU stands
in for CUDA: a replay computes again from the recorded batch, into the recorded gradients and result. tests/gpu has the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.worker.train import step_graph
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.step_graph import MOST_SHAPES, StepGraphs
from cluster.worker.train.train_step import TrainStep
from experiments.components.workload import Context, Unsupported
from experiments.workloads import synthetic


class Rerun:
    """Records a step by computing it, as a graph would: at the addresses of its first time."""

    def __init__(self, trained: list[torch.nn.Parameter]) -> None:
        self.trained, self.recorded, self.replayed = trained, 0, 0

    def launch(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        self.recorded += 1
        before = [None if one.grad is None else one.grad.clone() for one in self.trained]
        result = compute()
        places = [one.grad for one in self.trained]
        result.fill_(torch.nan)  # a recording computes nothing
        for place, old in zip(places, before, strict=True):
            if place is not None:
                place.copy_(torch.full_like(place, torch.nan) if old is None else old)

        def replay() -> None:
            self.replayed += 1
            for one in self.trained:
                one.grad = None
            result.copy_(compute())
            for one, place, old in zip(self.trained, places, before, strict=True):
                if place is not None:
                    assert one.grad is not None
                    place.copy_(one.grad if old is None else place + one.grad)  # what was there while recording is added to
                one.grad = torch.full_like(one, torch.nan)  # only the recorded gradients are the step's

        return replay, result


def line() -> tuple[torch.nn.Linear, Callable[..., torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1)

    def compute(*batches: Any) -> torch.Tensor:
        losses = []
        for batch in batches:
            loss = (layer(batch["x"]) * batch.get("weight", 1)).square().mean()
            loss.backward()
            losses.append(loss.detach().clone())
        return torch.stack(losses).mean()

    return layer, compute, [torch.randn(4, 3) for _ in range(12)]


def trained(batches: list[tuple[dict[str, Any], ...]], *, recorded: bool) -> tuple[list[float], torch.Tensor, Any, StepGraphs | None]:
    layer, compute, _ = line()
    parameters = list(layer.parameters())
    recorder = Rerun(parameters)
    graphs = StepGraphs(compute, parameters, recorder) if recorded else None
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    for batch in batches:
        losses.append((graphs or compute)(*batch))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return [float(loss) for loss in losses], layer.weight.detach().clone(), recorder, graphs


def test_the_third_batch_of_a_shape_is_recorded_and_every_step_learns_what_it_learns_without() -> None:
    values = line()[2]
    batches: list[tuple[dict[str, Any], ...]] = [({"x": value},) for value in values[:8]]
    losses, weight, recorder, graphs = trained(batches, recorded=True)
    plain, plain_weight, *_ = trained(batches, recorded=False)
    assert losses == plain and torch.equal(weight, plain_weight)
    assert (recorder.recorded, recorder.replayed) == (1, 6)
    assert graphs is not None and graphs.launched == 2


def test_each_shape_and_each_plain_value_has_a_graph_of_its_own() -> None:
    values = line()[2]
    kinds: list[dict[str, Any]] = [{"x": values[0]}, {"x": values[1][:2]}, {"x": values[2], "weight": 2}, {"x": values[3], "weight": 3}]
    batches = [(kind,) for _ in range(5) for kind in kinds]
    losses, weight, recorder, graphs = trained(batches, recorded=True)
    plain, plain_weight, *_ = trained(batches, recorded=False)
    assert losses == plain and torch.equal(weight, plain_weight)
    assert (recorder.recorded, recorder.replayed) == (4, 12)
    assert graphs is not None and graphs.launched == 8


def test_micro_batches_are_one_graph_whose_gradients_add_up_once() -> None:
    values = line()[2]
    batches: list[tuple[dict[str, Any], ...]] = [({"x": values[n]}, {"x": values[n + 1]}) for n in range(6)]
    losses, weight, recorder, _ = trained(batches, recorded=True)
    plain, plain_weight, *_ = trained(batches, recorded=False)
    assert losses == plain and torch.equal(weight, plain_weight)
    assert (recorder.recorded, recorder.replayed) == (1, 4)


def test_steps_that_leave_the_graphs_out_learn_the_same_and_nothing_that_was_recorded_is_kept() -> None:
    layer, compute, values = line()
    parameters = list(layer.parameters())
    recorder = Rerun(parameters)
    graphs = StepGraphs(compute, parameters, recorder)
    layer_alone, alone, _ = line()
    seen = []

    def learns(value: torch.Tensor) -> bool:
        losses = [float(graphs({"x": value})), float(alone({"x": value}))]
        for one in (layer, layer_alone):
            torch.optim.SGD(one.parameters(), lr=0.1).step()
            one.zero_grad()
        seen.append((graphs.launched, recorder.recorded, recorder.replayed))
        return losses[0] == losses[1] and torch.equal(layer.weight, layer_alone.weight)

    assert all(learns(value) for value in values[:4])
    layer.weight.grad = torch.full_like(layer.weight, 7.0)  # as a replay would leave one that nobody took
    graphs.leave_out()
    assert all(one.grad is None for one in parameters) and not graphs._graphs
    assert all(learns(value) for value in values[4:7])
    graphs({"x": values[7][:2]})
    assert seen == [(1, 0, 0), (2, 0, 0), (2, 1, 1), (2, 1, 2), (3, 1, 2), (4, 1, 2), (5, 1, 2)]
    assert (graphs.launched, recorder.recorded) == (6, 1), "nor is a new shape recorded"


def test_a_result_and_a_batch_stay_as_they_were() -> None:
    layer, compute, values = line()
    graphs = StepGraphs(compute, list(layer.parameters()), Rerun(list(layer.parameters())))
    kept = [value.clone() for value in values]
    results = [graphs({"x": value}) for value in values[:5]]
    assert len({float(result) for result in results}) == 5  # a replay writes over no earlier result
    assert all(torch.equal(one, other) for one, other in zip(values, kept, strict=True))  # nor over a batch of the loader's


def test_a_gradient_that_was_there_before_is_added_to_no_replay() -> None:
    layer, compute, values = line()
    parameters = list(layer.parameters())
    graphs = StepGraphs(compute, parameters, Rerun(parameters))
    for value in values[:2]:
        graphs({"x": value})  # two steps whose gradients nobody took
    graphs({"x": values[2]})
    (found,) = [one.grad for one in parameters if one is layer.weight]
    layer.zero_grad()
    compute({"x": values[2]})
    assert found is not None and layer.weight.grad is not None and torch.equal(found, layer.weight.grad)


def test_too_many_shapes_are_unsupported() -> None:
    layer, compute, _ = line()
    graphs = StepGraphs(compute, list(layer.parameters()), Rerun(list(layer.parameters())))
    for rows in range(1, MOST_SHAPES + 1):
        graphs({"x": torch.zeros(rows, 3)})
    with pytest.raises(Unsupported, match=f"cuda_graph: batches have more than {MOST_SHAPES} shapes"):
        graphs({"x": torch.zeros(MOST_SHAPES + 1, 3)})


def test_a_rare_shape_beside_as_many_as_are_recorded_is_launched() -> None:
    layer, compute, _ = line()
    recorder = Rerun(list(layer.parameters()))
    graphs = StepGraphs(compute, list(layer.parameters()), recorder)
    for rows in [*range(1, MOST_SHAPES + 1)] * 4:  # each launched twice, then replayed twice
        graphs({"x": torch.zeros(rows, 3)})
    assert (graphs.launched, recorder.recorded, recorder.replayed) == (16, 8, 16)
    graphs({"x": torch.zeros(1, 3)})
    rare = {"x": torch.ones(MOST_SHAPES + 1, 3)}
    alone = compute(rare)
    assert torch.equal(graphs(rare), alone) and (graphs.launched, recorder.recorded) == (17, 8)
    with pytest.raises(Unsupported, match="most steps are of new ones; set cuda_graph to false, or have fewer shapes"):
        graphs(rare)  # 18 steps without a graph, and 17 with one


def test_no_more_shapes_are_recorded_however_often_another_one_comes() -> None:
    layer, compute, _ = line()
    recorder = Rerun(list(layer.parameters()))
    graphs = StepGraphs(compute, list(layer.parameters()), recorder)
    for rows in [*range(1, MOST_SHAPES + 1)] * 6:  # each launched twice, then replayed four times
        graphs({"x": torch.zeros(rows, 3)})
    assert (graphs.launched, recorder.recorded, recorder.replayed) == (16, 8, 32)
    for _ in range(4):
        graphs({"x": torch.ones(MOST_SHAPES + 1, 3)})
    assert (graphs.launched, recorder.recorded, recorder.replayed) == (20, 8, 32)


def test_what_no_graph_can_be_given_is_unsupported() -> None:
    layer, compute, values = line()
    graphs = StepGraphs(compute, list(layer.parameters()), Rerun(list(layer.parameters())))
    with pytest.raises(Unsupported, match="cuda_graph: names of a batch is a list"):
        graphs({"x": values[0], "names": ["a"]})


class Fails(Rerun):
    """As torch does: what fails while recording fails again where the recording ends."""

    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        try:
            raise self.error
        finally:
            raise RuntimeError("capture_end failed")


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (RuntimeError("operation not permitted\nmore"), Unsupported, r"this step cannot be recorded \(operation not permitted\); set"),
        (torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError, "CUDA out of memory"),
    ],
)
def test_what_cannot_be_recorded_says_what_failed_first(error: Exception, kind: type[Exception], why: str) -> None:
    _, compute, values = line()
    graphs = StepGraphs(compute, [], Fails(error))
    for value in values[:2]:
        graphs({"x": value})
    with pytest.raises(kind, match=why):
        graphs({"x": values[2]})


class Gpu(Cpu):
    kind = "cuda"


class Alone(synthetic.Synthetic):
    records_itself = True
    left_out = 0

    def leave_graphs_out(self) -> None:
        self.left_out += 1


def test_a_trial_asks_for_it_on_cuda_and_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graph, "CudaRecorder", lambda: Rerun([]))
    parameters = synthetic.Parameters(batch_size=4, steps=4, cuda_graph=True)
    with pytest.raises(Unsupported, match="cuda_graph: only on cuda, and this is cpu"):
        choose_engine(parameters, Cpu(), 1)
    engine = choose_engine(parameters, Gpu(), 2)
    with pytest.raises(Unsupported, match=r"cuda_graph: on several devices CUDA graphs hold gradients .*; set it to false"):
        engine.distribute(torch.nn.Linear(2, 2), find_unused=False, units=[])
    for kind, launched in ((synthetic.Synthetic, 1), (Alone, 0)):
        made = kind(Context(parameters, None, "cpu", 0, 1, 4))
        step = TrainStep(made, made.model(), parameters, Gpu())
        step.forward_backward(next(iter(made.batches())))
        assert (step.launched, step.recorded) == (launched, True)
        step.leave_graphs_out()
        assert getattr(made, "left_out", None) == (1 if kind is Alone else None)
        for _ in range(3):
            step.forward_backward(next(iter(made.batches())))
        assert step.launched == 4 * launched
        plain = TrainStep(made, made.model(), parameters.model_copy(update={"cuda_graph": False}), Gpu())
        plain.leave_graphs_out()
        assert not plain.recorded and getattr(made, "left_out", None) == (1 if kind is Alone else None)


def test_weights_kept_in_bf16_give_a_recorded_steps_gradients_to_their_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    for recorded in (False, True):
        recorder = Rerun([])
        monkeypatch.setattr(step_graph, "CudaRecorder", lambda recorder=recorder: recorder)
        values: dict[str, Any] = {"batch_size": 4, "precision": "bf16", "block_weights": "linear_bf16", "learning_rate": 0.1}
        parameters = synthetic.Parameters(**values, steps=8, cuda_graph=recorded)
        made = synthetic.Synthetic(Context(parameters, None, "cpu", 0, 1, 4))
        monkeypatch.setattr(Gpu, "autocast", lambda self, precision: torch.autocast("cpu", torch.bfloat16))
        torch.manual_seed(0)
        step = TrainStep(made, made.model(), parameters, Gpu())
        recorder.trained[:] = [one for one in step.plain.parameters() if one.requires_grad]
        batches = iter(made.batches())
        for number in range(1, 6):
            step.forward_backward(next(batches))
            step.update(number)
        assert recorder.replayed == (3 if recorded else 0)
        weights.append([one.detach().clone() for one in step.trained])
    assert any(one.dtype is torch.bfloat16 for one in step.plain.parameters())
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
