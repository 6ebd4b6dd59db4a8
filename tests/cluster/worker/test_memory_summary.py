"""What a full device's memory held: bytes of tensors, each storage once; parts that add up; the reason of the trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from cluster.devices import DeviceMemory
from cluster.devices.cpu import Cpu
from cluster.journal.journal import JournalWriter, read_journal
from cluster.worker.measure.recorder import Recorder
from cluster.worker.memory_summary import GIB, MemoryUse, bytes_of, explaining_memory
from cluster.worker.outcome import TrialEnded, classify
from cluster.worker.rank_group import Ranks
from cluster.worker.train.train_step import TrainStep
from cluster.worker.trial_session import TrialSession
from experiments.trial import Outcome
from tests.contracts import make_trial

CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.81 GiB of which 1.26 GiB is free. Including "
    "non-PyTorch memory, this process has 138.54 GiB memory in use."
)


@pytest.fixture
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_storage_counts_once_and_only_on_the_kind_of_device_that_is_asked_for() -> None:
    weight = torch.zeros(10, 4)
    views = [weight, weight[2:], weight.t(), torch.zeros(3, dtype=torch.bfloat16), torch.zeros(100, device="meta")]
    assert bytes_of(views, "cpu") == 10 * 4 * 4 + 3 * 2
    assert bytes_of(views, "cuda") == 0 and bytes_of([], "cpu") == 0
    assert bytes_of([weight[2:]], "cpu") == 160, "the part that is viewed keeps all of it"


@pytest.mark.usefixtures("one_rank")
def test_of_a_sharded_tensor_this_ranks_part_counts() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (1,))
    part = torch.zeros(3, 4)
    whole = DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=torch.Size((6, 4)), stride=(4, 1))
    assert whole.shape == (6, 4) and bytes_of([whole, part], "cpu") == 48


class Rounded(torch.Tensor):
    """As torchao's state in 8 bits: it says that it is fp32, and holds codes and scales."""

    codes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls: Any, codes: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, device=codes.device, dtype=torch.float32)  # type: ignore[attr-defined]

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["codes"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(str(func))


def test_of_a_quantised_state_its_codes_and_scales_count() -> None:
    state = Rounded(torch.zeros(512, dtype=torch.uint8), torch.zeros(2))
    assert (state.numel(), state.dtype) == (512, torch.float32) and bytes_of([state], "cpu") == 512 + 8


def trained(steps: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.Linear(20, 10, bias=False))
    model[2].weight = nn.Parameter(model[2].weight, requires_grad=False)
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], foreach=False)
    for _ in range(steps):
        model(torch.randn(4, 10)).sum().backward()
        optimizer.step()
    return model, optimizer


TRAINED = (200 + 20) + (20 + 20)  # values of the first layer and of the norm
FROZEN, STATISTICS = 200, 20 + 20


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_parts_are_those_of_the_model_and_its_optimiser_and_add_up(steps: int) -> None:
    model, optimizer = trained(steps)
    memory = DeviceMemory(total=100_000, free=20_000, reserved=70_000, allocated=60_000)
    use = MemoryUse.of(model, optimizer, memory, "cpu")
    assert use.parameters == (TRAINED + FROZEN + STATISTICS) * 4 + 8, "with the norm's count of batches"
    assert use.gradients == (TRAINED * 4 if steps else 0)
    assert use.optimizer == (2 * TRAINED * 4 + 4 * 4 if steps else 0), "two averages, and a count of steps for each of four tensors"
    assert use.activations == 60_000 - use.parameters - use.gradients - use.optimizer
    assert (use.cache, use.outside, use.free) == (10_000, 10_000, 20_000)
    assert sum(vars(use).values()) == memory.total


def test_a_sentence_is_in_gib_of_1024_mib() -> None:
    use = MemoryUse(*(part * 2**20 for part in (1536, 256, 128, 64, 32, 16, 16)))
    assert use.sentence(2 * 2**30) == (
        "of 2.00 GiB: parameters 1.50, gradients 0.25, optimiser states 0.12, activations and the rest 0.06, cache or fragments 0.03, "
        "outside torch 0.02, free 0.02"
    )


def test_without_an_optimiser_there_are_no_states_and_no_part_is_negative() -> None:
    model, _ = trained(0)
    use = MemoryUse.of(model, None, DeviceMemory(total=100, free=60, reserved=50, allocated=50), "cpu")
    assert (use.optimizer, use.activations, use.outside) == (0, 0, 0), "the device was asked a moment after the allocator"


def block(error: BaseException, memory: Any) -> None:
    model, optimizer = trained(0)
    device: Any = SimpleNamespace(memory=memory, torch_device=torch.device("cpu"))
    step: Any = SimpleNamespace(plain=model, optimizer=optimizer)
    with explaining_memory(step, device):
        raise error


def full() -> DeviceMemory:
    return DeviceMemory(total=140 * GIB, free=GIB, reserved=137 * GIB, allocated=134 * GIB)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError(CUDA), "CUDA out of memory. Tried to allocate 2.50 GiB"),
        (torch.OutOfMemoryError(CUDA.replace("2.50 GiB", "20.00 MiB")), "CUDA out of memory. Tried to allocate 20.00 MiB"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors"), "CUDA error: out of memory CUDA kernel errors"),
        (RuntimeError("CUDA out of memory" + 300 * "x"), "CUDA out of memory" + 132 * "x"),
    ],
)
def test_the_reason_says_what_was_asked_for_and_what_held_how_much(error: Exception, asked: str) -> None:
    with pytest.raises(Exception, match="optimiser states") as raised:
        block(error, full)
    ending = classify(raised.value)
    assert ending.outcome is Outcome.DOES_NOT_FIT and raised.value.__cause__ is error
    assert ending.reason == (
        f"{asked}; of 140.00 GiB: parameters 0.00, gradients 0.00, optimiser states 0.00, activations and the rest 134.00, "
        "cache or fragments 3.00, outside torch 2.00, free 1.00"
    )
    assert ending.detail is not None and type(error).__name__ in ending.detail and "explaining_memory" in ending.detail


def lost() -> DeviceMemory:
    raise RuntimeError("CUDA error: unspecified launch failure")


@pytest.mark.parametrize("memory", [lambda: None, lost])
def test_where_the_device_says_nothing_the_error_stays_what_it_was(memory: Any) -> None:
    error = torch.OutOfMemoryError(CUDA)
    with pytest.raises(torch.OutOfMemoryError) as raised:
        block(error, memory)
    assert raised.value is error


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), MemoryError("host"), KeyboardInterrupt()])
def test_other_errors_pass_and_the_device_is_not_asked(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        block(error, lambda: pytest.fail("asked"))
    assert raised.value is error


def test_a_trial_whose_third_step_is_too_much_ends_with_the_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are freed after each update, so in a forward pass there are none; states are there since the first."""
    step = TrainStep.forward_backward

    def too_much(self: TrainStep, batch: Any) -> torch.Tensor:
        steps.append(self)
        if len(steps) == 3:
            raise torch.OutOfMemoryError(CUDA)
        return step(self, batch)

    steps: list[TrainStep] = []
    monkeypatch.setattr(TrainStep, "forward_backward", too_much)
    monkeypatch.setattr(Cpu, "memory", lambda self: full())
    small = {"width": 2048, "depth": 2, "batch_size": 4, "steps": 4, "warmup_steps": 1, "threads": 1, "evaluate": False}
    trial = make_trial(tmp_path, "aaaa00000000000f", **small)
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        with pytest.raises(TrialEnded) as raised:
            TrialSession(trial, Ranks(), recorder, tmp_path).run()
        recorder.end(classify(raised.value))
    torch.set_num_threads(threads)
    values = sum(weight.numel() for weight in steps[0].trained)
    found = read_journal(tmp_path / "journal.jsonl").end
    assert found is not None and found["outcome"] == "does_not_fit"
    held = f"parameters {values * 4 / GIB:.2f}, gradients 0.00, optimiser states {values * 8 / GIB:.2f}, "
    assert found["reason"].startswith(f"CUDA out of memory. Tried to allocate 2.50 GiB; of 140.00 GiB: {held}")
