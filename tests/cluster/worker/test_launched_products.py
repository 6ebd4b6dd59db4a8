"""Of recorded steps, whose replays have no operators, the matrix products are those of further steps that are launched."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.worker import trial_session
from cluster.worker.measure import profile
from cluster.worker.measure.matrix_shapes import TracedProducts
from cluster.worker.measure.profile import MarkedClock, ReadTrace
from cluster.worker.measure.trace_parts import StepParts
from cluster.worker.rank_group import Ranks
from tests.cluster.worker.test_beside_window import PARTS, of_kinds
from tests.session_support import Setting


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The matrix products that rates are then measured of."""
    found: list[Any] = []
    monkeypatch.setattr(trial_session, "add_rates", lambda context, products, window, locked: found.append(products))
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    return found


REPLAYS, LAUNCHED = TracedProducts(3.0, ()), TracedProducts(2.0, ())


@pytest.mark.parametrize(
    ("kinds", "profile_steps", "traced", "again"),
    [
        ("", 4, [10, 11, 12, 13], [14, 15]),
        ("", 2, [10, 11], [12, 13]),
        ("", 1, [10], [11]),  # a suite whose steps are so long that the first counts
        ("abcbcacabbcaacbbac", 4, [12, 13, 14, 15], [18, 19, 20, 21]),
    ],
)
def test_of_recorded_steps_the_products_are_those_of_steps_without_their_graphs(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any], kinds: str, profile_steps: int, traced: list[int], again: list[int]
) -> None:
    """Replays have no operators. A round of steps counts, after one that does not, unless one step is asked for."""
    if kinds:
        of_kinds(setting, monkeypatch, kinds + "cab", 3)
    read: list[tuple[Path | None, int]] = []

    def read_trace(path: Path, samples: list[int], kept: Path | None) -> ReadTrace:
        assert path.parent == setting.folder
        read.append((kept, setting.train_step.steps[-1]))
        assert setting.train_step.steps[-len(samples) :] == (again if len(read) > 1 else traced)
        return ReadTrace({"number": len(read)}, StepParts(**PARTS), LAUNCHED if len(read) > 1 else REPLAYS)

    monkeypatch.setattr(profile, "read_trace", read_trace)
    setting.train_step.recorded = True
    window = setting.run(profile_steps=profile_steps, evaluate=True)
    assert given == [[LAUNCHED]] and [last for _, last in read] == [traced[-1], again[-1]]
    assert [kept for kept, _ in read] == [setting.folder / "trace.json.gz", None], "the replays' trace alone is kept"
    assert window["profile"]["number"] == 1, "what the time went to is told of the replays"
    assert setting.world.after("phase rates")[:3] == ["synchronize", "graphs left out", "begin"]
    assert setting.world.log.index("graphs left out") > max(at for at, what in enumerate(setting.world.log) if what == "phase evaluate")


@pytest.mark.parametrize(("rounds", "traced", "again"), [(1, [10], [11]), (3, [10], [12, 13, 14, 15])])
def test_of_a_suite_that_traces_one_step_the_one_without_graphs_counts_unless_a_round_has_several(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any], rounds: int, traced: list[int], again: list[int]
) -> None:
    """Its steps have kinds, and came as one of them."""
    of_kinds(setting, monkeypatch, "a" * 15, rounds)
    read: list[list[int]] = []

    def read_trace(path: Path, samples: list[int], kept: Path | None) -> ReadTrace:
        read.append(setting.train_step.steps[-len(samples) :])
        return ReadTrace({}, StepParts(**{**PARTS, "steps": 1}), LAUNCHED if len(read) > 1 else REPLAYS)

    monkeypatch.setattr(profile, "read_trace", read_trace)
    setting.train_step.recorded = True
    setting.run(profile_steps=1, evaluate=False)
    assert (given, read) == ([[LAUNCHED]], [traced, again])


def test_each_trace_marks_its_steps_once(setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any]) -> None:
    """The second one too: with two marks a step it would be taken for one of twice as many steps."""
    clocks: list[Any] = []

    class Marked(MarkedClock):
        def __init__(self, clock: Any) -> None:
            clocks.append(clock)
            super().__init__(clock)

    monkeypatch.setattr(profile, "MarkedClock", Marked)
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({}, StepParts(**PARTS), LAUNCHED))
    setting.train_step.recorded = True
    setting.run(profile_steps=4, evaluate=False)
    assert len(clocks) == 2 and not any(isinstance(clock, MarkedClock) for clock in clocks) and given == [[LAUNCHED]]


def test_products_of_steps_that_are_not_the_mix_are_not_taken_for_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any]
) -> None:
    """Of kinds that are drawn without balance the first trace may have one of each; the second has one step that counts."""
    of_kinds(setting, monkeypatch, "abcabcabc" + "aacb" + "cb")
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({}, StepParts(**PARTS), LAUNCHED))
    setting.train_step.recorded = True
    assert "ranks" in setting.run(profile_steps=4, evaluate=False)["profile"] and given == [[]]
    said = "matrix products of recorded steps: not known: they are not as many of each kind of step, and FLOPs are of the mix of all kinds"
    assert said in [note["text"] for note in setting.world.of("note")]


@pytest.mark.parametrize("where", ["memory", "step", "trace"])
def test_recorded_steps_that_cannot_be_launched_are_said_and_cost_the_trial_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any], where: str
) -> None:
    read: list[Path] = []

    def full() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def leave_out() -> None:
        if where == "step":
            monkeypatch.setattr(setting.train_step, "forward_backward", lambda batch: full())

    def read_trace(path: Path, samples: list[int], kept: Path | None) -> ReadTrace:
        read.append(path)
        if where == "trace" and len(read) > 1:
            full()
        return ReadTrace({}, StepParts(**PARTS), REPLAYS)

    monkeypatch.setattr(profile, "read_trace", read_trace)
    monkeypatch.setattr(setting.train_step, "leave_graphs_out", leave_out)
    if where == "memory":
        monkeypatch.setattr(setting.device, "release_memory", full)
    setting.train_step.recorded = True
    window = setting.run(profile_steps=4, evaluate=False)
    assert given == [[]] and window["profile"]["ranks"][0]["matrix_s"] == PARTS["matrix_s"]
    said = [note["text"] for note in setting.world.of("note")]
    assert "matrix products of recorded steps: not traced: OutOfMemoryError: CUDA out of memory" in said


@pytest.mark.parametrize("parts", [None, StepParts(**PARTS)])
def test_without_kernels_in_the_trace_no_step_is_launched_for_their_products(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any], parts: StepParts | None
) -> None:
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({}, parts, REPLAYS))
    setting.train_step.recorded = True
    setting.run(profile_steps=4, evaluate=False)
    assert ("graphs left out" in setting.world.log) == (parts is not None)
    assert setting.train_step.steps[-1] == (13 if parts is None else 15)


def test_ranks_of_an_inference_keep_the_products_of_their_replays(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, given: list[Any], two_ranks: None
) -> None:
    """One could fail where the other waits for it. In training several ranks refuse `cuda_graph`."""
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({}, StepParts(**PARTS), REPLAYS))
    setting.train_step.recorded = True
    setting.run(Ranks(0, 2, 0, 2), devices=2, profile_steps=4, evaluate=False)
    assert given == [[REPLAYS, REPLAYS]] and setting.train_step.steps[-1] == 13
