"""What a session does beside its measured window: traced steps, what they tell, and the all-reduce on steps of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from cluster.worker import set_up, trial_session
from cluster.worker.measure import communication, profile
from cluster.worker.measure.profile import ReadTrace
from cluster.worker.measure.trace_parts import StepParts
from cluster.worker.rank_group import Ranks
from experiments.workloads import synthetic
from tests.session_support import STEPS, Setting

PARTS = {name: float(at) for at, name in enumerate(StepParts.__dataclass_fields__, 1)} | {"steps": 3}


@pytest.mark.parametrize("rank", [0, 1])
def test_profiled_steps_come_after_the_window_and_are_not_recorded(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None, rank: int
) -> None:
    traced: list[Any] = []

    @contextmanager
    def trace(path: Path) -> Iterator[None]:
        traced.append(path)
        setting.world.log.append("trace")
        yield
        setting.world.log.append("traced")

    def read_trace(path: Path, samples: list[int], kept: Path | None) -> ReadTrace:
        assert traced == [path] and kept == (setting.folder / "trace.json.gz" if rank == 0 else None)
        return ReadTrace({"samples": samples})

    monkeypatch.setattr(profile, "trace", trace)
    monkeypatch.setattr(profile, "read_trace", read_trace)
    window = setting.run(Ranks(rank, 2, rank, 2), devices=2, profile_steps=2, evaluate=False)
    assert setting.train_step.steps == list(range(1, 12)) and len(setting.world.of("step")) == 9
    assert setting.world.after("phase profile")[:4] == ["begin", "trace", "synchronize", "traced"]
    [path] = traced
    assert path.parent == setting.folder and path.match(".*trace.json.gz*"), "where tasks/sweep/attempt_files.py finds what is left of it"
    assert not path.exists() and not (setting.folder / "trace.json.gz").exists(), "what was traced is read and dropped"
    notes = [note["text"] for note in setting.world.of("note")]
    if rank == 0:
        assert window["profile"] == {"samples": [8, 8]}, "without kernels there are no parts"
        assert notes == ["2 more steps were traced into trace.json.gz"]
    else:
        assert notes == []


def no_memory(path: Path) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_trace_that_fails_takes_no_measurement_away(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "trace", no_memory)
    window = setting.run(profile_steps=2)
    assert "profile" not in window and window["last_measured_step"] == 3 + STEPS, "the window is recorded, untraced"
    assert [note["text"] for note in setting.world.of("note")] == ["no steps were traced: OutOfMemoryError: CUDA out of memory"]


@pytest.mark.parametrize("error", [ValueError("4 steps were traced, and the trace has 3"), KeyError("traceEvents"), MemoryError()])
def test_a_trace_that_cannot_be_read_is_kept_and_tells_nothing(setting: Setting, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace(None, unread=error))
    window = setting.run(profile_steps=4, evaluate=False)
    assert window["profile"] is None and window["trace_seconds"] is not None, "there is one: tasks/sweep/attempt_files.py leaves it"
    why = f"the trace of the further steps could not be read: {type(error).__name__}: {error}".strip()
    assert [note["text"] for note in setting.world.of("note")] == [why, "4 more steps were traced into trace.json.gz"]
    assert "trace_not_kept" not in window


@pytest.mark.parametrize("rank", [0, 1])
def test_a_trace_that_was_read_and_cannot_be_kept_tells_all_and_which_disk_is_full(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None, rank: int
) -> None:
    full = OSError(28, "No space left on device", f"/{'long' * 50}/trace.json.gz")
    told = ReadTrace({"where": "device"}, StepParts(**PARTS), not_kept=full if rank == 0 else None)
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: told)
    window = setting.run(Ranks(rank, 2, rank, 2), devices=2, profile_steps=4, evaluate=False)
    if rank == 0:
        why = f"OSError: [Errno 28] No space left on device: '{full.filename}'"
        assert window["profile"]["ranks"] == [{"rank": 0, **PARTS}, {"rank": 1, **PARTS}] and window["trace_not_kept"] == why
        assert [note["text"] for note in setting.world.of("note")] == [f"4 more steps were traced, and their trace is not kept: {why}"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError(), TypeError("no trace")])
def test_a_rank_that_cannot_read_its_trace_keeps_no_other_waiting(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None, rank: int, error: Exception
) -> None:
    """Whatever that was: its steps were run, so the others are in the gathers, and this one is to come there too."""
    gathered: list[Any] = []

    def told(path: Path, samples: list[int]) -> ReadTrace:
        raise error

    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "_told", told)
    monkeypatch.setattr(Ranks, "all_say", lambda self, what: pytest.fail("it asks nobody"))
    gather = Ranks.gather
    monkeypatch.setattr(Ranks, "gather", lambda self, own: gathered.append(own) or gather(self, own))
    setting.run(Ranks(rank, 2, rank, 2), devices=2, profile_steps=4, evaluate=False)
    [(parts, products, why)] = [own for own in gathered if isinstance(own, tuple) and len(own) == 3]
    assert (parts, products) == (None, None) and why == f"{type(error).__name__}: {error}".strip(), "rank 0 tells why"


@pytest.mark.parametrize("rank", [0, 1])
def test_so_it_is_on_several_ranks_if_all_of_them_fail(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None, rank: int
) -> None:
    said: list[str] = []
    monkeypatch.setattr(profile, "trace", no_memory)
    monkeypatch.setattr(Ranks, "all_say", lambda self, what: said.append(what) or True)
    gather = Ranks.gather
    apart = "they may have failed in different collectives"
    monkeypatch.setattr(Ranks, "gather", lambda self, own: pytest.fail(apart) if said else gather(self, own))
    setting.run(Ranks(rank, 2, rank, 2), devices=2, profile_steps=2, evaluate=False)
    assert said == ["the trace failed"]
    if rank == 0:
        assert "profile" not in setting.world.of("window")[-1]
        assert [note["text"] for note in setting.world.of("note")] == ["no steps were traced: OutOfMemoryError: CUDA out of memory"]


def test_one_rank_that_fails_in_a_step_ends_the_trial_since_another_may_wait_for_it(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None
) -> None:
    monkeypatch.setattr(profile, "trace", no_memory)
    monkeypatch.setattr(Ranks, "all_say", lambda self, what: False)
    with pytest.raises(torch.OutOfMemoryError):
        setting.run(Ranks(0, 2, 0, 2), devices=2, profile_steps=2, evaluate=False)


def test_a_rank_that_cannot_write_its_trace_keeps_no_other_waiting(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None
) -> None:
    """Its steps were run, so the others wait for what it tells alone."""

    @contextmanager
    def full(path: Path) -> Iterator[None]:
        yield
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(profile, "trace", full)
    monkeypatch.setattr(Ranks, "all_say", lambda self, what: pytest.fail("it asks nobody"))
    gather, gathered = Ranks.gather, list[Any]()
    monkeypatch.setattr(Ranks, "gather", lambda self, own: gathered.append(own) or gather(self, own))
    window = setting.run(Ranks(0, 2, 0, 2), devices=2, profile_steps=2, evaluate=False)
    assert "profile" not in window and window["last_measured_step"] == 3 + STEPS
    assert [note["text"] for note in setting.world.of("note")] == ["no steps were traced: OSError: [Errno 28] No space left on device"]
    assert (None, None, "OSError: [Errno 28] No space left on device") in gathered, "of another rank, rank 0 tells why"


def test_every_rank_tells_the_parts_of_its_traced_steps(setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None) -> None:
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, StepParts(**PARTS)))
    window = setting.run(Ranks(0, 2, 0, 2), devices=2, profile_steps=4, evaluate=False)
    assert window["profile"] == {"where": "device", "ranks": [{"rank": 0, **PARTS}, {"rank": 1, **PARTS}]}
    assert (window["attention_flops_per_sample"], window["peak_clock_mhz"]) == (None, None), "nobody says, and the device is not known"
    setting.world.records.clear()
    setting.device.name = "NVIDIA A100-SXM4-80GB"
    monkeypatch.setattr(synthetic.Synthetic, "attention_flops_per_sample", lambda workload: 3.0, raising=False)
    window = setting.run(Ranks(0, 2, 0, 2), devices=2, precision="bf16", profile_steps=4, evaluate=False)
    assert (window["attention_flops_per_sample"], window["peak_clock_mhz"]) == (3.0, 1410)


def test_a_rank_whose_trace_tells_nothing_is_named_with_the_reason_where_there_is_one(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None
) -> None:
    """Of four ranks: the others of the first two have none, by an error that they told, and as without any kernel."""
    parts, why = StepParts(**PARTS), "ValueError: 4 steps were traced, and the trace has 3"
    gather = Ranks.gather

    def gathers(self: Ranks, own: Any) -> list[Any]:
        return [own, (None, None, why), (None, None, None), own] if isinstance(own, tuple) and parts in own else gather(self, own)

    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, parts))
    monkeypatch.setattr(Ranks, "gather", gathers)
    found = setting.run(Ranks(0, 2, 0, 2), devices=2, profile_steps=4, evaluate=False)["profile"]
    assert [rank["rank"] for rank in found["ranks"]] == [0, 3]
    assert found["missing_ranks"] == [{"rank": 1, "why": why}, {"rank": 2, "why": None}]
    notes = [note["text"] for note in setting.world.of("note")]
    assert notes == [f"rank 1: its trace of the further steps tells nothing: {why}", "4 more steps were traced into trace.json.gz"]


@pytest.mark.parametrize(("grow", "conf"), [(True, None), (False, "max_split_size_mb:9,expandable_segments:True")])
def test_where_segments_grow_the_wait_for_the_allocator_is_within_that_for_launches(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, grow: bool, conf: str | None
) -> None:
    """Their memory comes by calls of CUDA's driver, of which the profiler records none: 0 would be said whatever they took."""
    monkeypatch.setattr(set_up, "let_segments_grow", lambda: None)
    if conf:
        monkeypatch.setenv("PYTORCH_ALLOC_CONF", conf)
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, StepParts(**PARTS)))
    [rank] = setting.run(profile_steps=4, expandable_segments=grow, evaluate=False)["profile"]["ranks"]
    assert "allocator_s" not in rank and rank["launch_s"] == PARTS["launch_s"] + PARTS["allocator_s"]
    assert {**rank, "launch_s": 0.0, "allocator_s": 0.0} == {"rank": 0, **PARTS, "launch_s": 0.0, "allocator_s": 0.0}


def of_kinds(setting: Setting, monkeypatch: pytest.MonkeyPatch, kinds: str, rounds: int = 1) -> None:
    """Steps of these kinds, a letter each, in their order from the first on; and what a workload says of them."""
    order = iter(kinds)
    monkeypatch.setattr(setting.train_step, "step_kind", lambda batch: next(order))
    monkeypatch.setattr(synthetic.Synthetic, "steps_alike", False, raising=False)
    monkeypatch.setattr(synthetic.Synthetic, "steps_per_round", rounds, raising=False)


@pytest.mark.parametrize(
    ("kinds", "rounds", "counted", "traced"),
    [
        ("aaaaaaaaa" + "aaaa", 1, 3, "aaaa"),
        ("abbaabbaa" + "bba", 2, 2, "bba"),  # the window ends within a round, whose second step does not count
        ("abbaabbaa" + "bbaab", 2, 4, "bbaab"),
        ("abccabbca" + "bac" + "cab", 3, 3, "ccab"),  # not "bacc": what follows the window is a round, and its first step would not count
    ],
)
def test_the_traced_steps_that_count_are_whole_rounds(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, kinds: str, rounds: int, counted: int, traced: str
) -> None:
    """The first of the trace does not count, and each round has an order of its own."""
    of_kinds(setting, monkeypatch, kinds, rounds)
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    parts = StepParts(**{**PARTS, "steps": counted})
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, parts))
    window = setting.run(profile_steps=counted + 1, evaluate=False)
    assert window["profile"]["step_kinds"] == list(traced) and "ranks" in window["profile"]
    assert setting.train_step.steps == list(range(1, len(kinds) + 1)) and window["last_measured_step"] == 3 + STEPS
    assert [note["text"] for note in setting.world.of("note")] == [f"{counted + 1} more steps were traced into trace.json.gz"]


@pytest.mark.parametrize(
    ("kinds", "rounds", "profile_steps", "known", "says"),
    [
        ("abcabcabc" + "aacb", 1, 4, True, ""),  # drawn without balance, and by chance one of each
        ("abcabcabc" + "abba", 1, 4, False, ""),
        ("abcabcabc" + "abab", 1, 4, False, ""),  # the third kind was measured, and is not among the traced
        ("abcabcabc" + "abcabc", 3, 3, False, "; profile_steps=4 are a whole round"),
        ("abcabcabc" + "abcabc", 3, 1, False, "; profile_steps=4 are a whole round"),
        ("abcabcabc" + "abcacc", 3, 4, False, ""),  # no round, whatever the workload says
        (None, 3, 4, False, ""),  # a workload that does not tell its kinds
    ],
)
def test_steps_that_are_not_the_mix_that_the_flops_are_of_have_no_parts(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, kinds: str | None, rounds: int, profile_steps: int, known: bool, says: str
) -> None:
    of_kinds(setting, monkeypatch, kinds or "", rounds)
    if kinds is None:
        monkeypatch.setattr(setting.train_step, "step_kind", lambda batch: None)
    parts = StepParts(**{**PARTS, "steps": max(1, profile_steps - 1)})
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, parts))
    window = setting.run(profile_steps=profile_steps, evaluate=False)
    assert ("ranks" in window["profile"]) == known and ("step_kinds" in window["profile"]) == (kinds is not None)
    notes = [note["text"] for note in setting.world.of("note")]
    why = f"they are not as many of each kind of step, and FLOPs are of the mix of all kinds{says}"
    assert notes[1:] == ([] if known else [f"what the traced steps reached is not known: {why}"])


@pytest.mark.parametrize(("repeat", "first", "traced"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False), (3, None, True)])
def test_the_first_so_many_repeats_are_traced(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, repeat: int, first: int | None, traced: bool
) -> None:
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, StepParts(**PARTS)))
    session = setting.session(profile_steps=4, profile_repeats=first, evaluate=False)
    dataclasses.replace(session, trial=session.trial.model_copy(update={"repeat": repeat})).run()
    assert ("profile" in setting.world.of("window")[-1]) == traced
    assert len(setting.train_step.steps) == 3 + STEPS + (4 if traced else 0)


@pytest.mark.parametrize(("steps", "seconds"), [(4, 10.0 - 7.0), (0, None)])
def test_what_trace_and_rates_took_is_told(setting: Setting, monkeypatch: pytest.MonkeyPatch, steps: int, seconds: float | None) -> None:
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace({"where": "device"}, StepParts(**PARTS)))
    session = setting.session(profile_steps=steps, evaluate=False)
    monkeypatch.setattr(trial_session, "time", SimpleNamespace(monotonic=iter((7.0, 10.0)).__next__))
    session.run()
    assert setting.world.of("window")[-1]["trace_seconds"] == seconds


def test_the_all_reduce_is_measured_on_steps_of_its_own(setting: Setting, monkeypatch: pytest.MonkeyPatch, two_ranks: None) -> None:
    setting.train_step.model = DistributedDataParallel.__new__(DistributedDataParallel)
    kept: list[Any] = []

    def measure(train_step: Any, device: Any, steps: int, run: Any) -> dict[str, Any]:
        assert (train_step, device, steps) == (setting.train_step, setting.device, 4)
        setting.world.log.append("measured apart")
        run(2, kept.append)
        return {"found": 1}

    monkeypatch.setattr(communication, "measure", measure)
    monkeypatch.setattr(profile, "trace", lambda path: nullcontext())
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: ReadTrace(None))
    window = setting.run(Ranks(0, 2, 0, 2), devices=2, communication_steps=4, profile_steps=2)
    assert window["communication"] == {"found": 1}
    assert setting.world.after("measured apart")[:3] == ["barrier", "synchronize", "begin"]
    assert [timing.step for timing in kept] == [10, 11] and len(setting.world.of("step")) == 9
    assert setting.train_step.steps[-2:] == [12, 13], "traces come last: nothing runs steps after one that may have failed within one"
    setting.train_step.steps = []
    setting.run(Ranks(0, 2, 0, 2), devices=2, communication_steps=0)
    assert setting.train_step.steps == list(range(1, 10))
