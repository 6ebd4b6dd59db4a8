"""The parts of a traced step, from traces made by hand: every value below is worked out on paper from the intervals beside it."""

from __future__ import annotations

import gc
import gzip
import json
import re
import weakref
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest
import torch

from cluster.devices.clock import HostClock
from cluster.worker.measure import profile
from cluster.worker.measure.profile import MarkedClock, ReadTrace, read_trace, trace, trace_file, without_collections
from cluster.worker.measure.trace_parts import LOADER, StepParts, counted_steps, device_operations, step_parts, time_by_kind
from cluster.worker.outcome import Cancelled

S = 1e6  # a second, in a trace's microseconds
GEMM, FLASH, NORM = "nvjet_sm90_tst_128x224", "void flash_fwd_kernel<bf16>", "void at::native::vectorized_layer_norm_kernel<float>"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING"


class Trace:
    """Events as Kineto writes them for CUDA; times in s."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0.0, "dur": 100 * S, "pid": 1, "tid": 1},
            {"ph": "X", "cat": "gpu_user_annotation", "name": LOADER, "ts": 0.0, "dur": 100 * S, "pid": 0, "tid": 7},
        ]
        self._last = 0

    def loads(self, start: float, end: float) -> Trace:
        """The host is in the loader, where a step begins."""
        span = {"ph": "X", "cat": "user_annotation", "name": LOADER, "ts": start * S, "dur": (end - start) * S, "pid": 1, "tid": 1}
        self.events.append(span)
        return self

    def calls(self, name: str, start: float, end: float, *, cat: str = "cuda_runtime") -> Trace:
        """The host is in a call of CUDA that launches nothing."""
        self.events.append({"ph": "X", "cat": cat, "name": name, "ts": start * S, "dur": (end - start) * S, "tid": 1, "args": {}})
        return self

    def runs(self, name: str, start: float, end: float, launched: float | None, *, stream: int = 7, cat: str = "kernel") -> Trace:
        """Something runs on the device. `launched` None: the trace does not say when."""
        self._last += 1
        args = {"stream": stream, "correlation": self._last}
        self.events.append({"ph": "X", "cat": cat, "name": name, "ts": start * S, "dur": (end - start) * S, "tid": stream, "args": args})
        if launched is not None:
            launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launched * S, "dur": 0.01 * S, "tid": 1}
            self.events.append({**launch, "args": {"correlation": self._last}})
        return self


def parts_of(events: list[dict[str, Any]], samples: list[int]) -> StepParts | None:
    counted = counted_steps(events, samples)
    return None if counted is None else step_parts(counted)


def two_steps() -> Trace:
    """The first ends at 4 s, with what was launched before 3 s; the second at 20 s."""
    made = Trace().loads(0.0, 1.0).runs(GEMM, 2.0, 4.0, 1.5)
    made.loads(3.0, 6.0)  # idle from 4 on: 2 s of waiting for data
    made.runs("Memcpy HtoD (Pageable -> Device)", 6.0, 6.5, 6.0, cat="gpu_memcpy")
    made.runs(GEMM, 7.0, 10.0, 6.9)  # launched after the copy had ended: 0.5 s of waiting for the launch
    made.runs(FLASH, 10.0, 12.0, 6.95)
    made.runs(NCCL, 11.0, 16.0, 6.96, stream=20)  # 11 to 12 behind attention, 13 to 14 behind the norm
    made.runs(NORM, 13.0, 14.0, 6.97)  # so 12 to 13 and 14 to 16 are exposed
    made.runs("void multi_tensor_apply_kernel<Adam>", 17.0, 20.0, 6.98)  # launched long before: 16 to 17 is a gap
    return made


def test_an_instant_counts_once_and_the_parts_add_up_to_the_step() -> None:
    found = parts_of(two_steps().events, [8, 6])
    expected = StepParts(
        steps=1,
        step_s=16.0,
        matrix_s=3.0,
        attention_s=2.0,
        other_s=4.0,
        communication_s=3.0,
        copies_s=0.5,
        data_wait_s=2.0,
        allocator_s=0.0,
        launch_s=0.5,
        idle_s=1.0,
        hidden_s=2.0,
        samples=6.0,
    )
    assert found is not None
    assert found.record() == pytest.approx(expected.record())
    parts = (found.matrix_s, found.attention_s, found.other_s, found.communication_s, found.copies_s)
    assert sum(parts) + found.data_wait_s + found.launch_s + found.idle_s == pytest.approx(found.step_s)


def test_one_step_counts_from_its_batch_on() -> None:
    made = Trace().loads(0.0, 1.0).runs(GEMM, 2.0, 4.0, 1.5).runs(GEMM, 5.0, 6.0, 4.5)
    found = parts_of(made.events, [8])
    assert found is not None and (found.steps, found.step_s, found.matrix_s, found.samples) == (1, 6.0, 3.0, 8.0)
    assert (found.data_wait_s, found.launch_s, found.idle_s) == (1.0, 2.0, 0.0), "before its first operation the device was idle"


def test_parts_are_means_of_the_steps_after_the_first() -> None:
    made = Trace().loads(0.0, 0.1).runs(GEMM, 1.0, 2.0, 0.5)
    made.loads(1.0, 1.1).runs(GEMM, 2.0, 5.0, 1.5)
    made.loads(1.6, 1.7).runs(NORM, 5.0, 6.0, 1.9)
    found = parts_of(made.events, [1, 2, 4])
    assert found is not None and (found.steps, found.samples) == (2, 3.0)
    assert (found.step_s, found.matrix_s, found.other_s, found.idle_s) == (2.0, 1.5, 0.5, 0.0)


@pytest.mark.parametrize(("launched", "waited", "gap"), [(3.0, 0.0, 1.0), (3.001, 1.0, 0.0), (None, 1.0, 0.0)])
def test_the_device_waits_for_a_launch_that_came_after_it_was_idle(launched: float | None, waited: float, gap: float) -> None:
    """Idle from 3 to 4 s. A launch that is not in the trace is taken to be at the operation's start."""
    found = parts_of(Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 3.0, 0.0).runs(GEMM, 4.0, 5.0, launched).events, [1])
    assert found is not None and (found.launch_s, found.idle_s) == pytest.approx((waited, gap))


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync"])
def test_a_device_that_waits_while_the_host_is_in_cudas_allocation_waits_for_the_allocator(name: str) -> None:
    """The call begins while the device computes, which counts as that, and ends at 5 s; the next launch is at 6 s, another wait at 8.5."""
    made = Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 3.0, 0.0).calls(name, 1.0, 5.0).runs(GEMM, 6.5, 8.0, 6.0).runs(NORM, 9.0, 10.0, 8.5)
    found = parts_of(made.events, [1])
    assert found is not None and (found.matrix_s, found.other_s) == (4.5, 1.0)
    assert (found.allocator_s, found.launch_s, found.idle_s) == pytest.approx((2.0, 1.5 + 1.0, 0.0))


@pytest.mark.parametrize(
    ("name", "cat"), [("cudaFreeHost", "cuda_runtime"), ("cudaEventSynchronize", "cuda_runtime"), ("cudaFree", "cpu_op")]
)
def test_other_calls_are_no_allocation(name: str, cat: str) -> None:
    made = Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 3.0, 0.0).calls(name, 3.0, 5.0, cat=cat).runs(GEMM, 6.0, 7.0, 5.5)
    found = parts_of(made.events, [1])
    assert found is not None and (found.allocator_s, found.launch_s) == (0.0, 3.0)


def test_an_allocation_behind_operations_that_were_launched_in_time_costs_nothing() -> None:
    made = Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 3.0, 0.0).runs(GEMM, 4.0, 7.0, 0.5).calls("cudaMalloc", 1.0, 6.0)
    found = parts_of(made.events, [1])
    assert found is not None and (found.allocator_s, found.launch_s, found.idle_s) == (0.0, 0.0, 1.0)


def test_a_gap_while_the_host_is_in_the_loader_of_the_next_step_is_no_wait_for_data() -> None:
    """The host has launched both products by 2 s and waits for the next batch from 3 to 9 s: the device waits for it from 6 s on."""
    made = Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 1.0, 0.0).loads(1.0, 1.0).runs(GEMM, 2.0, 4.0, 1.5).runs(GEMM, 5.0, 6.0, 2.0)
    found = parts_of(made.loads(3.0, 9.0).runs(NORM, 9.5, 10.0, 9.2).events, [1, 1, 1])
    assert found is not None and found.steps == 2
    assert (2 * found.idle_s, 2 * found.data_wait_s, 2 * found.launch_s) == pytest.approx((1.0, 3.0, 0.5 + 1.0))


def test_what_runs_at_once_counts_to_products_attention_others_communication_and_copies_in_this_order() -> None:
    made = Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 2.0, 0.0).runs(FLASH, 1.0, 4.0, 0.0, stream=8).runs(NORM, 3.0, 6.0, 0.0, stream=9)
    made.runs(NCCL, 5.0, 8.0, 0.0, stream=20).runs("Memcpy DtoH", 7.0, 10.0, 0.0, stream=21, cat="gpu_memcpy")
    found = parts_of(made.events, [1])
    assert found is not None and found.hidden_s == 1.0
    assert (found.matrix_s, found.attention_s, found.other_s, found.communication_s, found.copies_s) == (2.0, 2.0, 2.0, 2.0, 2.0)


def test_a_device_is_idle_once_all_of_its_streams_are() -> None:
    """A short kernel beside a long one ends first. The next one is launched before the long one ends, so the host is not waited for."""
    made = Trace().loads(0.0, 0.0).runs(GEMM, 0.0, 5.0, 0.0).runs(NORM, 1.0, 2.0, 0.0, stream=8).runs(GEMM, 6.0, 7.0, 3.0)
    found = parts_of(made.events, [1])
    assert found is not None and (found.launch_s, found.idle_s) == (0.0, 1.0)


def test_a_step_begins_when_the_last_operation_of_the_one_before_ends_and_its_own_are_launched_from_its_loader_on() -> None:
    made = Trace().loads(0.0, 0.1).runs(GEMM, 1.0, 4.0, 0.5).runs(NORM, 1.0, 2.0, 0.6, stream=8)
    found = parts_of(made.loads(2.0, 2.0).runs(GEMM, 4.0, 6.0, 2.0).events, [1, 1])
    assert found is not None and (found.step_s, found.matrix_s) == (2.0, 2.0)


def test_triton_launches_by_the_driver_and_what_took_no_time_did_not_run() -> None:
    made = Trace().runs("triton_poi_fused_add_0", 1.0, 2.0, 0.5).runs(NORM, 3.0, 3.0, 2.5)
    assert made.events[-3]["cat"] == "cuda_runtime"
    made.events[-3]["cat"] = "cuda_driver"
    assert [(operation.start, operation.launched) for operation in device_operations(made.events)] == [(1.0 * S, 0.5 * S)]


def test_kernels_of_a_graph_are_launched_with_it() -> None:
    made = Trace().runs(GEMM, 1.0, 2.0, 0.5).runs(NORM, 2.5, 3.0, None)
    made.events[-1]["args"]["correlation"] = 1
    assert [operation.launched for operation in device_operations(made.events)] == [0.5 * S, 0.5 * S]


def test_a_trace_without_kernels_has_no_parts_and_one_of_other_steps_is_refused() -> None:
    assert parts_of(Trace().loads(0.0, 1.0).events, [8]) is None
    with pytest.raises(ValueError, match="3 steps were traced, and the trace has 2"):
        parts_of(two_steps().events, [8, 8, 8])
    with pytest.raises(ValueError, match="0 steps"):
        parts_of(Trace().runs(GEMM, 0.0, 1.0, 0.0).events, [])


def test_a_first_step_that_ends_last_leaves_nothing_to_count() -> None:
    made = Trace().loads(0.0, 0.1).runs(GEMM, 1.0, 9.0, 0.5).loads(2.0, 2.1).runs(GEMM, 3.0, 4.0, 2.5, stream=9)
    assert parts_of(made.events, [1, 1]) is None


def test_time_goes_to_the_first_kind_that_holds_and_is_cut_at_both_ends() -> None:
    kinds = [("a", [(1.0, 3.0), (2.0, 4.0), (2.0, 4.0)]), ("b", [(0.0, 2.0), (9.0, 20.0)]), ("c", [])]
    assert time_by_kind(kinds, 0.5, 10.0) == {"b": 0.5 + 1.0, "a": 3.0, "": 5.0}
    assert time_by_kind(kinds, 20.0, 21.0) == {"": 1.0}


def test_a_real_trace_has_a_mark_for_each_step_and_on_a_cpu_no_parts(tmp_path: Path) -> None:
    clock = MarkedClock(HostClock())
    plain, kept = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    with trace(plain):
        clock.begin()
        for step in (1, 2):
            clock.fetch()
            batch = torch.ones(4, 4)
            for boundary in range(4):
                clock.mark(boundary)
            assert [timing.step for timing in clock.finish(step, 4, (batch @ batch).sum())] == [step]
    found, *others = read_trace(plain, [4, 4], kept)
    assert found is not None and (found["where"], found["steps"], others) == ("host", 2, [None] * 4)
    assert "matrix products" in {group["group"] for group in found["groups"]}
    assert {file.name for file in tmp_path.iterdir()} == {"trace.json", "trace.json.gz"}, "nothing else is left beside them"
    assert gzip.decompress(kept.read_bytes()) == plain.read_bytes()
    events = json.loads(plain.read_bytes())["traceEvents"]
    marks = [event for event in events if event.get("name") == LOADER]
    assert [(mark["ph"], mark["cat"]) for mark in marks] == [("X", "user_annotation")] * 2
    events.append({"ph": "X", "cat": "kernel", "name": GEMM, "ts": marks[1]["ts"] + marks[1]["dur"] + 1, "dur": 5, "args": {}})
    assert parts_of(events, [4, 4]) is not None, "the times of host and device are on one axis"


def test_a_trace_is_kept_whatever_it_tells_and_one_that_is_not_to_be_kept_is_not(tmp_path: Path) -> None:
    plain, kept = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    plain.write_text(json.dumps({"traceEvents": [{"args": {}, **event} for event in two_steps().events]}))
    told = read_trace(plain, [8], kept)
    assert (type(told.unread), str(told.unread)) == (ValueError, "1 steps were traced, and the trace has 2")
    assert told._replace(unread=None) == ReadTrace(None), "nothing is told, and it is kept"
    assert gzip.decompress(kept.read_bytes()) == plain.read_bytes()
    kept.unlink()
    assert read_trace(plain, [8, 8]).parts == parts_of(two_steps().events, [8, 8]) and list(tmp_path.iterdir()) == [plain]


@pytest.mark.parametrize("error", [ValueError("cut"), MemoryError(), OSError(5, "Input/output error")])
def test_of_a_trace_that_could_not_be_read_nothing_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Its events are gigabytes, and the trial goes on with the error that says why. It is kept all the same."""

    class Events(dict[str, Any]):
        """What json makes cannot be referred to weakly."""

    plain, kept, made = tmp_path / "trace.json", tmp_path / "trace.json.gz", list[weakref.ref[Events]]()
    plain.write_text("{}")

    def loads(data: bytes) -> dict[str, Any]:
        events = Events()
        made.append(weakref.ref(events))
        return {"traceEvents": events}

    def fails(events: object, samples: object) -> None:
        raise error

    monkeypatch.setattr(orjson, "loads", loads)
    monkeypatch.setattr(profile, "counted_steps", fails)
    with without_collections():
        told = read_trace(plain, [8], kept)
        assert told.unread is error and [events() for events in made] == [None]
    assert gzip.decompress(kept.read_bytes()) == b"{}"


def test_what_a_trace_tells_counts_where_it_cannot_be_kept_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, kept = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    plain.write_text(json.dumps({"traceEvents": [{"args": {}, **event} for event in two_steps().events]}))
    whole = read_trace(plain, [8, 8])

    def full(written: Any, chunk: bytes) -> None:
        written.fileobj.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gzip.GzipFile, "write", full)
    told = read_trace(plain, [8, 8], kept)
    assert str(told.not_kept) == f"[Errno 28] No space left on device: '{kept}'", "it names the disk"
    assert told._replace(not_kept=None) == whole and whole.parts is not None
    both = read_trace(plain, [8], kept)
    assert (type(both.unread), type(both.not_kept)) == (ValueError, OSError), "one does not hide the other"
    assert list(tmp_path.iterdir()) == [plain]


def test_a_trial_that_is_told_to_end_while_it_reads_a_trace_does_not_wait_for_what_is_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 400 MiB that would be longer than its grace. What an earlier attempt kept stays, since that may be the one that counts."""
    plain, kept, begun, given_up, chunks = tmp_path / "trace.json", tmp_path / "trace.json.gz", Event(), Event(), list[bytes]()
    plain.write_text(json.dumps({"traceEvents": two_steps().events}))
    kept.write_bytes(b"earlier")

    def compresses(written: Any, chunk: bytes) -> None:
        chunks.append(chunk)
        begun.set()
        if len(chunks) == 1:
            given_up.wait(60)

    def told(path: Path, samples: object) -> None:
        assert begun.wait(60)
        raise Cancelled("told to end (SIGTERM)")

    monkeypatch.setattr(profile, "_CHUNK", 20)
    monkeypatch.setattr(profile, "Event", lambda: given_up)
    monkeypatch.setattr(profile, "_told", told)
    monkeypatch.setattr(gzip.GzipFile, "write", compresses)
    with pytest.raises(Cancelled):
        read_trace(plain, [8, 8], kept)
    assert len(chunks) == 1 and kept.read_bytes() == b"earlier" and sorted(tmp_path.iterdir()) == [plain, kept]


def test_the_file_that_is_written_before_a_trace_is_kept_goes_away(tmp_path: Path) -> None:
    """Beside it, and by a name that tidies away what a killed process left (tasks/sweep/attempt_files.py)."""
    with pytest.raises(KeyError), trace_file(tmp_path / "trace.json.gz") as plain:
        plain.write_text("{}")
        assert [file.name for file in tmp_path.glob(".*trace.json.gz*")] == [plain.name]
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_two_hosts_that_share_a_folder_write_no_trace_over_each_others(tmp_path: Path) -> None:
    """Their processes may have the same number."""
    with trace_file(tmp_path / "trace.json.gz") as one, trace_file(tmp_path / "trace.json.gz") as other:
        one.write_text("one")
        other.write_text("other")
        assert one.read_text() == "one"


def test_a_trace_is_read_without_collections_and_what_is_half_compressed_is_hidden_by_a_name_that_tidies_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collections would take half of the time in which it is read."""
    plain, kept, seen = tmp_path / "trace.json", tmp_path / "trace.json.gz", list[Any]()
    plain.write_text(json.dumps({"traceEvents": [{"args": {}, **event} for event in two_steps().events]}))
    write = gzip.GzipFile.write

    def compresses(written: Any, chunk: bytes) -> None:
        write(written, chunk)
        half, *others = sorted(file.name for file in tmp_path.iterdir())
        assert [file.name for file in tmp_path.glob(".*trace.json.gz*")] == [half]
        seen.append([re.sub("[0-9a-f]{8}", "HEX", half), *others])

    def told(events: object, steps: int) -> dict[str, Any]:
        seen.append(gc.isenabled())
        return {}

    monkeypatch.setattr(gzip.GzipFile, "write", compresses)
    monkeypatch.setattr(profile, "breakdown", told)
    assert gc.isenabled()
    read_trace(plain, [8, 8], kept)
    assert False in seen and True not in seen and gc.isenabled()
    assert [".trace.json.gz.HEX.tmp", "trace.json"] in seen and kept.exists()
