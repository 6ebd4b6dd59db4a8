"""What a probe of a batch runs: every batch with the optimiser's states, nothing beside its steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.worker import max_batch
from cluster.worker.max_batch import Answer
from cluster.worker.rank_group import Ranks
from cluster.worker.train.train_step import TrainStep
from cluster.worker.try_sizes import try_sizes
from experiments.trial import Trial
from tests.cluster.worker.probe_support import Here, Pretended, found_on


def test_every_batch_of_a_probe_is_run_with_the_optimisers_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of FLAVA's kinds the one that needs most memory may come first, when there are no states yet."""
    seen = list[tuple[float, bool]]()
    compute = TrainStep.forward_backward

    def watched(self: TrainStep, *batches: Any) -> Any:
        seen.append((float(batches[0]["vectors"].sum()), bool(self.optimizer.state)))
        return compute(self, *batches)

    monkeypatch.setattr(TrainStep, "forward_backward", watched)
    found_on(tmp_path, monkeypatch, Pretended)
    steps = max_batch.PROBE_WARMUP + max_batch.PROBE_STEPS
    first, again, further = (seen[at * steps : (at + 1) * steps] for at in range(3))
    assert [states for _, states in first] == [False, *[True] * (steps - 1)]
    assert again == [(batch, True) for batch, _ in first] and len({batch for batch, _ in first}) == steps
    assert all(states for _, states in further) and len(further) == steps


@pytest.mark.parametrize(
    ("parameters", "passes", "resized"),
    [({}, 1, True), ({"cuda_graph": True}, 2, False), ({"compile": "layer"}, 1, False), ({"hpu_graphs": True}, 1, False)],
)
def test_what_records_graphs_is_run_until_it_has_them_and_tries_no_other_size(
    parameters: dict[str, Any], passes: int, resized: bool
) -> None:
    ran, windows = list[list[int]](), list[dict[str, Any]]()
    told = {"compile": "none", "cuda_graph": False, "hpu_graphs": False, "warmup_steps": 2, "steps": 2, **parameters}
    device = SimpleNamespace(
        free_share_at_peak=lambda: 0.5, releases_memory=True, release_memory=lambda: None, synchronize=lambda: None, torch_device=None
    )
    context: Any = SimpleNamespace(
        parameters=SimpleNamespace(**told),
        device=device,
        ranks=Ranks(),
        recorder=SimpleNamespace(window=windows.append),
        train_step=SimpleNamespace(),
        workload=None,
        resized=lambda size: None,
    )
    steps: Any = SimpleNamespace(
        stop=lambda: None,
        restart=lambda workload: None,
        clock=SimpleNamespace(begin=lambda: None),
        run=lambda numbers, record: ran.append(list(numbers)),
    )
    try_sizes(context, steps, {"batch_size": 1}, {8: Answer(False)} if resized else {})
    assert ran[:passes] == [[1, 2, 3, 4]] * passes and (len(ran) > passes) == resized
    assert windows[0]["probes"]["1"] == [True, 0.5] and len(windows) == len(ran) - passes + 1


def test_a_probe_neither_evaluates_nor_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_on(tmp_path, monkeypatch, Pretended, evaluate=True, profile_steps=3)
    for command in Here.commands:
        parameters = Trial.model_validate_json(Path(command[command.index("--trial") + 1]).read_text()).parameters
        assert (parameters["evaluate"], parameters["profile_steps"]) == (False, 0)
