"""Bare loops of matrix products on a CPU: with which operands, and that they compute what was asked for."""

from __future__ import annotations

import pytest
import torch

from cluster.worker.measure import matrix_rates
from cluster.worker.measure.matrix_rates import caller, operand_sets, seconds_of
from cluster.worker.measure.matrix_shapes import Operand, Product

CPU = torch.device("cpu")
F32 = "float32"
MM = Product("mm", (Operand((6, 4), (4, 1), F32), Operand((4, 3), (1, 4), F32)))
ADDMM = Product("addmm", (Operand((3,), (1,), F32), *MM.operands))
BMM = Product("bmm", (Operand((2, 6, 4), (48, 8, 1), "bfloat16"), Operand((2, 4, 3), (0, 0, 0), "bfloat16")))
BADDBMM = Product("baddbmm", (Operand((2, 6, 3), (18, 3, 1), "bfloat16"), *BMM.operands))
INT = Product("_int_mm", (Operand((32, 16), (16, 1), "int8"), Operand((16, 8), (8, 1), "int8")))
SCALED = Product(
    "_scaled_mm",
    (
        Operand((32, 64), (64, 1), "float8_e4m3fn"),
        Operand((64, 48), (1, 64), "float8_e4m3fn"),
        Operand((), (), F32),
        Operand((), (), F32),
        None,
    ),
    "bfloat16",
)
V2 = Product("_scaled_mm_v2", SCALED.operands, "bfloat16", scaling=((0,), (), (0,), ()))
PRODUCTS = [MM, ADDMM, BMM, BADDBMM, INT, SCALED, *([V2] if hasattr(torch, "_scaled_mm_v2") else [])]


@pytest.fixture(autouse=True)
def _little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small copies and short loops."""
    monkeypatch.setattr(matrix_rates, "_HOST_CACHE", 200)
    monkeypatch.setattr(matrix_rates, "LOOP_S", 0.0)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.op)
def test_operands_are_as_in_the_step_and_are_multiplied(product: Product) -> None:
    operands = operand_sets(product, CPU)[0]
    for made, asked in zip(operands, product.operands, strict=True):
        assert (made is None) == (asked is None)
        if made is not None and asked is not None:
            assert (tuple(made.shape), made.stride(), str(made.dtype)) == (asked.shape, asked.strides, f"torch.{asked.dtype}")
    found = caller(product)(operands)
    left, right = (
        (tensor.double() for tensor in operands[-2:] if tensor is not None)
        if product not in (SCALED, V2)
        else (
            operands[0].double(),  # type: ignore[union-attr]
            operands[1].double(),  # type: ignore[union-attr]
        )
    )
    expected = left @ right
    if product.op in ("addmm", "baddbmm"):
        expected += operands[0]
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.05)
    assert seconds_of(product, CPU) > 0


def test_values_differ_and_copies_are_twice_the_cache() -> None:
    """36 elements of 4 bytes: 2 x 200 bytes take three copies."""
    sets = operand_sets(MM, CPU)
    assert len(sets) == 3
    first, second = sets[0][0], sets[1][0]
    assert first is not None and second is not None
    assert not torch.equal(first, second) and first.unique().numel() == 24
    assert torch.equal(first, operand_sets(MM, CPU)[0][0]), "the same values each time"  # type: ignore[arg-type]
    assert len(operand_sets(Product("mm", (Operand((60, 4), (4, 1), F32), Operand((4, 3), (1, 4), F32))), CPU)) == 1, "one is enough"


def test_the_median_loop_counts_and_a_loop_is_as_long_as_it_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    times = iter([0.004, 9.0, 0.003, 0.001, 0.002, 0.004])

    def timed(once: object, calls: int) -> float:
        asked.append(calls)
        return next(times)

    monkeypatch.setattr(matrix_rates, "LOOP_S", 0.1)
    monkeypatch.setattr(matrix_rates, "_on_host", timed)
    assert seconds_of(MM, CPU) == 0.003
    assert asked == [3, *[25] * 5], "0.1 s of calls that take 4 ms"


class Clock:
    """A GPU's events: a call takes 2 us of the device, a launch `launch_cycles` of the host's time while the device counts cycles."""

    def __init__(self, launch_cycles: int) -> None:
        self.launch_cycles, self.counted, self.launched = launch_cycles, list[int](), 0
        self.queue: list[str] = []

    def count_cycles(self, cycles: int) -> None:
        self.counted.append(cycles)
        self.launched, self.queue = 0, ["count"]

    def launch(self) -> None:
        self.launched += 1
        self.queue.append("call")

    def event(self, *, enable_timing: bool) -> Clock:
        assert enable_timing
        return self

    def record(self) -> None:
        self.queue.append("event")

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        """Whether the device is at the first call already."""
        return self.launched * self.launch_cycles >= self.counted[-1]

    def elapsed_time(self, _end: Clock) -> float:
        return self.launched * 0.002


@pytest.mark.parametrize(
    ("launch_cycles", "counted"),
    [(39_999, [400_000]), (40_000, [400_000, 1_600_000]), (160_000, [400_000, 1_600_000, 6_400_000])],
    ids=["in time", "late", "late twice"],
)
def test_a_gpu_is_kept_busy_until_the_host_has_launched_all(
    monkeypatch: pytest.MonkeyPatch, launch_cycles: int, counted: list[int]
) -> None:
    clock = Clock(launch_cycles)
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(matrix_rates, "count_cycles", clock.count_cycles)
    assert matrix_rates._on_gpu(clock.launch, 10) == pytest.approx(2e-6)
    assert clock.counted == counted
    assert clock.queue == ["count", "event", *["call"] * 10, "event"], "what is timed is the calls, and they are behind the counting"


def test_a_host_that_never_launches_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its launches would be taken for what the product attains."""
    clock = Clock(40_000 * 4**3)
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    monkeypatch.setattr(matrix_rates, "count_cycles", clock.count_cycles)
    with pytest.raises(matrix_rates.SlowHost, match="10 calls were not launched in the time of 25,600,000 cycles"):
        matrix_rates._on_gpu(clock.launch, 10)
    assert len(clock.counted) == 4


def test_a_device_without_a_known_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="no clock is known here for a device of kind meta"):
        seconds_of(MM, torch.device("meta"))


def test_what_torch_cannot_multiply_is_raised() -> None:
    with pytest.raises(RuntimeError):
        seconds_of(Product("mm", (Operand((6, 4), (4, 1), F32), Operand((5, 3), (1, 5), F32))), CPU)
