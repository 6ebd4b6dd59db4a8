"""How many steps a window takes that is to last a time: in virtual time, on one rank and on several."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.worker import measured_window
from cluster.worker.measure import profile
from cluster.worker.measure.records import RankWindow
from cluster.worker.measured_window import window_steps
from cluster.worker.rank_group import Ranks
from experiments.workloads import synthetic
from tests.session_support import STEP, STEPS, Setting


def taken(least: int, measure_s: float | None, costs: Any, ranks: Ranks = Ranks()) -> tuple[list[int], float]:  # noqa: B008 - it is frozen
    """(numbers of the steps, seconds) where step i costs `costs(i)` s; the least number of steps begins with 11."""
    numbers: list[int] = []

    def seconds() -> float:
        return float(sum(costs(number) for number in numbers))

    for number in window_steps(range(11, 11 + least), measure_s, ranks, lambda: (seconds(), len(numbers))):
        numbers.append(number)  # noqa: PERF402 - the window asks how many there are
    return numbers, seconds()


@pytest.mark.parametrize(
    ("least", "measure_s", "cost", "expected"),
    [
        (5, None, 1.0, 5),
        (5, 3.0, 1.0, 5),  # long enough already
        (5, 5.0, 1.0, 5),  # to the second
        (5, 5.5, 1.0, 6),
        (5, 30.0, 1.0, 30),
        (2, 30.0, 7.0, 5),
        (100, 30.0, 0.25, 120),
    ],
)
def test_steps_of_equal_length_are_counted_at_once(least: int, measure_s: float | None, cost: float, expected: int) -> None:
    numbers, seconds = taken(least, measure_s, lambda number: cost)
    assert numbers == list(range(11, 11 + expected))
    assert seconds >= (measure_s or 0)


@pytest.mark.parametrize("costs", [lambda number: 1 / number, lambda number: 0.5 if number < 20 else 0.1, lambda number: 0.02 * number])
def test_a_window_is_as_long_as_asked_where_steps_become_shorter_or_longer(costs: Any) -> None:
    numbers, seconds = taken(10, 8.0, costs)
    assert seconds >= 8 and numbers == list(range(11, 11 + len(numbers)))
    assert seconds < 8 * 1.6, "steps that became longer were not foreseen; no more than the mean so far is planned"


def test_steps_are_added_in_whole_rounds() -> None:
    """Of 1 s each: 10 more were enough for 16.5 s after 6, and 12 are four rounds of three."""
    asked = window_steps(range(1, 7), 16.5, Ranks(), lambda: (float(len(numbers)), len(numbers)), 3)
    numbers: list[int] = []
    for number in asked:
        numbers.append(number)  # noqa: PERF402 - the window asks how many there are
    assert numbers == list(range(1, 19))


class Together(Ranks):
    """Ranks that hear what rank 0 said, in this process."""

    said: dict[str, int] = {}  # noqa: RUF012 - all share it

    def as_rank_0_says(self, question: str, own: int) -> int:
        return self.said.setdefault(question, own)


def test_all_ranks_run_the_steps_that_rank_0_counted() -> None:
    Together.said.clear()
    first, seconds = taken(10, 8.0, lambda number: 0.5, Together(0, 2))
    second, slower = taken(10, 8.0, lambda number: 0.7, Together(1, 2))
    assert first == second == list(range(11, 27))
    assert seconds == 8 < slower
    assert Together.said == {"steps after 20": 6, "steps after 26": 0}, "each question is asked once"


@pytest.mark.parametrize(("finished", "planned"), [(0, 2), (3, 2), (4, 18)])
def test_what_a_step_takes_is_not_guessed_from_fewer_than_have_finished(finished: int, planned: int) -> None:
    """0.2 s after two steps were submitted, of a window of 1 s. The host may be ahead of the device by more steps than have finished."""
    Together.said.clear()
    steps = window_steps(range(1, 3), 1.0, Together(), lambda: (0.2, finished))
    assert [next(steps) for _ in range(3)] == [1, 2, 3]
    assert Together.said == {"steps after 2": planned}


def test_a_session_measures_for_as_long_as_it_is_told_without_waiting_for_the_device(setting: Setting) -> None:
    window = setting.run(measure_s=40 * STEP)
    steps = setting.world.of("step")
    measured = [step for step in steps if step["measured"]]
    assert window["wall_s"] >= 40 * STEP
    assert 40 <= len(measured) <= 46, "the host is up to three steps ahead of the device when it counts"
    assert (window["last_measured_step"], window["last_learning_step"]) == (3 + len(measured), 3 + STEPS)
    assert window["samples"] == len(measured) * 8
    assert [after["step"] - before["step"] for before, after in pairwise(steps)] == [1] * (len(steps) - 1)
    before = ["reset", "synchronize", "energy", "begin"]
    assert setting.world.after("phase measure")[:8] == [*before, "synchronize", "energy", "peak", "retries"], "one window, no wait inside"


@pytest.mark.parametrize("warmup_steps", [1, 3, 10])
@pytest.mark.parametrize("measure_s", [None, 40 * STEP])
def test_a_warm_up_goes_on_for_as_long_as_it_is_told(setting: Setting, warmup_steps: int, measure_s: float | None) -> None:
    window = setting.run(warmup_steps=warmup_steps, warmup_s=20 * STEP, measure_s=measure_s, evaluate=False)
    steps = setting.world.of("step")
    first, last = window["first_measured_step"], window["last_measured_step"]
    assert warmup_steps + 20 < first <= warmup_steps + 20 + 7, "the host is up to three steps ahead of the device when it begins and ends"
    assert [step["step"] for step in steps] == list(range(1, last + 1))
    assert [step["measured"] for step in steps] == [False] * (first - 1) + [True] * (last + 1 - first)
    measured = last + 1 - first
    assert measured == STEPS if measure_s is None else 40 <= measured <= 46, "the window is no shorter for it"
    assert window["last_learning_step"] == warmup_steps + STEPS, "what is learnt does not depend on how fast the device is"


def test_what_is_compiled_in_a_warm_up_takes_none_of_its_time(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLAVA compiles for a kind of batch at its first step: the device waits for that, and its clock rises again."""
    forward_backward = setting.train_step.forward_backward

    def slow(*batches: object) -> object:
        setting.world.host += 100 * STEP if len(setting.train_step.steps) < 3 else 0.0
        return forward_backward(*batches)

    monkeypatch.setattr(setting.train_step, "forward_backward", slow)
    assert setting.run(warmup_steps=3, warmup_s=20 * STEP, evaluate=False)["first_measured_step"] > 3 + 20


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> Iterator[set[int]]:
    """Steps with a batch of another shape than any before, for which torch really compiles. The host needs 100 steps' time for that."""
    torch.compiler.reset()
    steps, forward_backward = set[int](), setting.train_step.forward_backward
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(1))

    def changing(*batches: object) -> object:
        if (number := len(setting.train_step.steps) + 1) in steps:
            compiled(torch.ones(1 + number))
            setting.world.host += 100 * STEP
        return forward_backward(*batches)

    monkeypatch.setattr(setting.train_step, "forward_backward", changing)
    yield steps
    torch.compiler.reset()


def test_steps_of_the_window_in_which_torch_compiles_are_noted_and_take_none_of_its_time(setting: Setting, growing: set[int]) -> None:
    growing |= {2, 6, 9}
    window = setting.run(measure_s=40 * STEP, evaluate=False)
    assert window["first_measured_step"] == 4, "the second belongs to the warm-up"
    assert (window["compiled_steps"], window["left_out_steps"]) == ([6, 9], [6, 9])
    [rank] = window["ranks"]
    took = {step["step"]: step["total_s"] for step in setting.world.of("step")}
    assert rank["left_out_s"] == pytest.approx(took[6] + took[9]) and 190 * STEP < rank["left_out_s"] < 202 * STEP
    assert window["wall_s"] >= 40 * STEP + rank["left_out_s"]
    assert 40 <= window["last_measured_step"] - 3 - 2 <= 48, "as long as without them"


def test_what_a_step_takes_is_not_guessed_while_one_that_compiled_is_not_recorded(setting: Setting, growing: set[int]) -> None:
    """The sixth step of six: meanwhile the device finished those before it. So six more are planned, and only then what is needed."""
    growing |= {9}
    window = setting.run(measure_s=20 * STEP, evaluate=False)
    assert window["compiled_steps"] == [9] and 20 <= window["last_measured_step"] - 3 - 1 <= 26


def test_the_steps_before_one_that_compiled_tell_nothing_however_many_have_finished(setting: Setting, growing: set[int]) -> None:
    """Twelve steps, of which the last compiled: eight before it are recorded. Twelve more are planned, though 100 are to come."""
    Together.said.clear()
    growing |= {15}
    window = setting.run(Together(), steps=12, measure_s=100 * STEP, evaluate=False)
    assert (window["compiled_steps"], Together.said["steps after 15"]) == ([15], 12)


def test_where_steps_differ_in_kind_the_whole_round_is_left_out(
    setting: Setting, growing: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of three begin with the first step of all, so the window begins within one."""
    monkeypatch.setattr(synthetic.Synthetic, "steps_per_round", 3, raising=False)
    growing |= {8}
    window = setting.run(warmup_steps=4, evaluate=False)
    assert (window["first_measured_step"], window["compiled_steps"], window["left_out_steps"]) == (5, [8], [7, 8, 9])


def test_a_step_in_which_another_rank_compiled_is_left_out_of_both(
    setting: Setting, two_ranks: None, growing: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the second rank tells: that it compiled in the sixth step, in which this one waited for it."""

    def gather(everyone: list[Any], mine: Any) -> None:
        other = (6,) if mine == () else replace(mine, rank=1) if isinstance(mine, RankWindow) else mine
        everyone[:] = [mine, other]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    forward_backward = setting.train_step.forward_backward

    def waiting(*batches: object) -> object:
        setting.world.host += 100 * STEP if len(setting.train_step.steps) + 1 == 6 else 0.0
        return forward_backward(*batches)

    monkeypatch.setattr(setting.train_step, "forward_backward", waiting)
    window = setting.run(Ranks(0, 2), evaluate=False, communication_steps=0)
    assert (window["compiled_steps"], window["left_out_steps"], len(window["ranks"])) == ([6], [6], 2)
    assert all(rank["left_out_s"] > 90 * STEP for rank in window["ranks"])


def test_a_window_in_which_nothing_is_compiled_says_so(setting: Setting) -> None:
    window = setting.run(evaluate=False)
    assert (window["compiled_steps"], window["left_out_steps"], window["ranks"][0]["left_out_s"]) == ([], [], 0.0)


def test_a_rank_tells_how_long_it_waited_for_its_host_in_the_steps_that_count(
    setting: Setting, growing: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches 6 and 8 are late; step 6 does not count, since torch compiles in it."""
    growing |= {6}
    restart = measured_window.Steps.restart

    def late(steps: measured_window.Steps, workload: Any) -> None:
        def batches(all_: Iterator[Any]) -> Iterator[Any]:
            for number, batch in enumerate(all_, 1):
                setting.world.host += 50 * STEP if number in (6, 8) else 0.0
                yield batch

        restart(steps, workload)
        steps._batches = batches(steps._batches)

    monkeypatch.setattr(measured_window.Steps, "restart", late)
    [rank] = setting.run(evaluate=False)["ranks"]
    waits = {step["step"]: step["data_wait_s"] for step in setting.world.of("step") if step["measured"]}
    assert len(waits) == STEPS and waits[6] > 40 * STEP and waits[8] > 40 * STEP
    assert rank["data_wait_s"] == pytest.approx(sum(waits.values()) - waits[6])


def test_a_warm_up_has_whole_rounds(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic.Synthetic, "steps_per_round", 3, raising=False)
    first = setting.run(warmup_steps=6, warmup_s=20 * STEP, evaluate=False)["first_measured_step"]
    assert first > 26 and (first - 7) % 3 == 0


def test_a_shorter_time_than_the_steps_take_changes_nothing(setting: Setting) -> None:
    window = setting.run(measure_s=STEP)
    assert (window["last_measured_step"], window["samples"]) == (3 + STEPS, STEPS * 8)


def test_what_follows_the_window_goes_on_from_its_last_step(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_trace(path: Path) -> Iterator[None]:
        yield

    monkeypatch.setattr(profile, "trace", no_trace)
    monkeypatch.setattr(profile, "read_trace", lambda path, samples, kept: profile.ReadTrace({"steps": len(samples)}))
    window = setting.run(measure_s=20 * STEP, profile_steps=2)
    last = window["last_measured_step"]
    assert last > 3 + STEPS and setting.train_step.steps == list(range(1, last + 3))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "JSONDecodeError"),
        (b'{"traceEv', "JSONDecodeError"),
        (b"{}", "KeyError"),
    ],
)
def test_a_trace_that_cannot_be_read_costs_the_trial_its_profile_alone(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    @contextmanager
    def damaged(path: Path) -> Iterator[None]:
        yield
        path.write_bytes(content)

    monkeypatch.setattr(profile, "trace", damaged)
    window = setting.run(measure_s=20 * STEP, profile_steps=2)
    assert window["profile"] is None and window["samples"] > 0
    notes = [note["text"] for note in setting.world.of("note")]
    assert [note for note in notes if note.startswith(f"the trace of the further steps could not be read: {why}: ")] != [], notes
    assert gzip.decompress((setting.folder / "trace.json.gz").read_bytes()) == content, "whoever asks why can look at it"
