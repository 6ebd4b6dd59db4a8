"""Which matrix products a trace tells: of a real trace of a small model, to which kernels are added as a GPU would write them."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from cluster.worker.measure.matrix_shapes import Called, Operand, Product, TracedProducts, product_of, traced_products
from cluster.worker.measure.trace_parts import LOADER, CountedSteps, counted_steps

GEMM, NORM = "nvjet_sm90_tst_128x224", "void at::native::vectorized_layer_norm_kernel<float>"
F32 = "float32"


def of(op: str, *operands: tuple[tuple[int, ...], tuple[int, ...]], dtype: str = F32) -> Product:
    return Product(op, tuple(Operand(shape, strides, dtype) for shape, strides in operands))


def small_model() -> Any:
    """A step: two linear layers on (2, 5, 8) with their gradients, a batched product, and a convolution."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4, bias=False))
    convolution = torch.nn.Conv1d(4, 4, 3)
    batch = torch.ones(2, 5, 8)

    def step() -> None:
        found = model(batch)
        seen = found.detach()
        torch.bmm(seen, seen.transpose(1, 2))
        convolution(seen.transpose(1, 2))
        found.square().sum().backward()

    return step


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The events of two steps of the small model on the CPU."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    step = small_model()
    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        for _ in range(2):
            with torch.profiler.record_function(LOADER):
                pass
            step()
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def with_kernels(events: list[dict[str, Any]], micros: float = 2.0) -> list[dict[str, Any]]:
    """Each operator launches a kernel at its start, which begins at its end: products those of matrices, others a norm."""
    products = ("aten::mm", "aten::addmm", "aten::bmm", "aten::mkldnn_convolution")
    made: list[dict[str, Any]] = []
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    for number, event in enumerate(operators):
        name = GEMM if event["name"] in products else NORM
        end, asked = event["ts"] + event["dur"], {"correlation": number, "External id": event["args"]["External id"]}
        made.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": event["ts"], "dur": 0, "args": asked})
        made.append({"ph": "X", "cat": "kernel", "name": name, "ts": end, "dur": micros, "args": asked})
    return [*events, *made]


def test_the_products_of_a_small_model_are_found_exactly(traced: list[dict[str, Any]]) -> None:
    events = with_kernels(traced)
    counted = counted_steps(events, [2, 2])
    assert counted is not None
    found = traced_products(events, counted)
    forward = of("addmm", ((16,), (1,)), ((10, 8), (8, 1)), ((8, 16), (1, 8)))
    expected = [
        forward,
        of("mm", ((16, 10), (1, 16)), ((10, 8), (8, 1))),  # the gradient of the first weight
        of("mm", ((10, 16), (16, 1)), ((16, 4), (1, 16))),
        of("mm", ((10, 4), (4, 1)), ((4, 16), (16, 1))),  # of the second layer's input
        of("mm", ((4, 10), (1, 4)), ((10, 16), (16, 1))),
        of("bmm", ((2, 5, 4), (20, 4, 1)), ((2, 4, 5), (20, 1, 4))),
    ]
    assert {one.product for one in found.called} == set(expected), "no convolution, and none of the first step"
    assert [one.calls for one in found.called] == [1.0] * 6
    assert [one.seconds for one in found.called] == pytest.approx([2e-6] * 6)
    assert found.kernels_s == pytest.approx(7 * 2e-6), "the convolution's kernel is one of matrix products too"
    assert [one.product.flops for one in found.called] == [2560, 2560, 1280, 1280, 1280, 400], "those with the most FLOPs first"
    assert str(forward) == "addmm 10x8 . 8x16 float32 NT" and str(expected[-1]) == "bmm 2x5x4 . 2x4x5 float32 NT"


def test_flops_are_those_that_torch_counts(traced: list[dict[str, Any]]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        small_model()()
    by_operator = counter.get_flop_counts()["Global"]
    products = [product for event in traced if event.get("cat") == "cpu_op" and (product := product_of(event))]
    for op in ("mm", "addmm", "bmm"):
        own = sum(product.flops for product in products if product.op == op)
        assert own == 2 * by_operator[getattr(torch.ops.aten, op)], "two steps were traced"


def test_a_trace_without_links_knows_the_kernels_time_alone(traced: list[dict[str, Any]]) -> None:
    events = [
        {**event, "args": {"correlation": event["args"]["correlation"]}} if event.get("cat") == "kernel" else event
        for event in with_kernels(traced)
    ]
    counted = counted_steps(events, [2, 2])
    assert counted is not None
    assert traced_products(events, counted) == TracedProducts(pytest.approx(7 * 2e-6), [])  # type: ignore[arg-type]


def test_a_kernel_that_was_launched_at_another_time_is_not_the_operators(traced: list[dict[str, Any]]) -> None:
    """Its number is the operator's by chance."""
    events = with_kernels(traced)
    for event in events:
        if event.get("cat") == "cuda_runtime":
            event["ts"] += 1e6
    counted = counted_steps(events, [2, 2])
    assert counted is not None and traced_products(events, counted).called == []


def event_of(op: str, dims: Any, strides: Any, types: Any, values: Any = ()) -> dict[str, Any]:
    arguments = {"External id": 1, "Input Dims": dims, "Input Strides": strides, "Input type": types, "Concrete Inputs": list(values)}
    return {"ph": "X", "cat": "cpu_op", "name": f"aten::{op}", "ts": 0.0, "dur": 1.0, "args": arguments}


FP8 = ["c10::Float8_e4m3fn", "c10::Float8_e5m2", "float", "float", "", "", "Scalar", "Scalar"]
DIMS = [[32, 64], [64, 48], [32, 1], [1, 48], [], [], [], []]
STRIDES = [[64, 1], [1, 64], [1, 1], [48, 1], [], [], [], []]


def test_a_scaled_product_has_its_scales_and_what_it_returns() -> None:
    found = product_of(event_of("_scaled_mm", DIMS, STRIDES, FP8, ["", "", "", "", "", "", "15", "True"]))
    assert found is not None and found.flops == 2 * 32 * 64 * 48
    assert found.operands[2:] == (Operand((32, 1), (1, 1), F32), Operand((1, 48), (48, 1), F32), None)
    assert (found.out_dtype, found.fast) == ("bfloat16", True) and str(found) == "_scaled_mm 32x64 . 64x48 float8_e4m3fn float8_e5m2 NT"


@pytest.mark.skipif(not hasattr(torch, "_scaled_mm_v2"), reason="torch before 2.10 has no _scaled_mm_v2")
@pytest.mark.parametrize(("scale", "recipe"), [((), 0), ((32, 1), 1)], ids=["by tensor", "by row"])
def test_a_scaled_product_by_recipe_is_one_too(tmp_path: Path, scale: tuple[int, ...], recipe: int) -> None:
    """What torch.nn.functional.scaled_mm calls, traced by this torch's own profiler."""
    left, right = (torch.ones(rows, 64).to(torch.float8_e4m3fn) for rows in (32, 48))
    left_scale, right_scale = torch.ones(scale), torch.ones(scale and (1, 48))
    recording = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
    with recording as profiler, contextlib.suppress(RuntimeError):  # a CPU need not have it; the call is traced in any case
        torch._scaled_mm_v2(left, right.t(), [left_scale], [recipe], [], [right_scale], [recipe], [], None, torch.bfloat16, [], True)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    [found] = [one for event in events if event.get("cat") == "cpu_op" and (one := product_of(event)) and one.op == "_scaled_mm_v2"]
    assert found.flops == 2 * 32 * 64 * 48 and found.matrices[1] == Operand((64, 48), (1, 64), "float8_e4m3fn")
    of_right = Operand(tuple(right_scale.shape), right_scale.stride(), F32)
    assert found.operands[2:] == (Operand(scale, left_scale.stride(), F32), of_right, None)
    assert (found.out_dtype, found.fast, found.scaling) == ("bfloat16", True, ((recipe,), (), (recipe,), ()))
    assert str(found) == "_scaled_mm_v2 32x64 . 64x48 float8_e4m3fn NT"


V2_TYPES = ["c10::Float8_e4m3fn"] * 2 + ["TensorList", "ScalarList", "ScalarList"] * 2 + ["", "Scalar", "ScalarList", "Scalar"]
V2_DIMS = [[32, 64], [64, 48], [[]], [], [], [[]], [], [], [], [], [], []]
V2_STRIDES = [[64, 1], [1, 64], [[]], [], [], [[]], [], [], [], [], [], []]
V2_VALUES = ["", "", "", "[0]", "[]", "", "[0]", "[]", "", "15", "[]", "True"]


def test_what_a_product_is_written_into_is_no_operand() -> None:
    made = event_of("mm", [[5, 8], [8, 5], [5, 5]], [[8, 1], [1, 8], [5, 1]], ["float"] * 3)
    assert product_of(made) == of("mm", ((5, 8), (8, 1)), ((8, 5), (1, 8)))


@pytest.mark.parametrize(
    "made",
    [
        event_of("_scaled_mm", DIMS, STRIDES, FP8, ["", "", "", "", "", "", "99", "True"]),
        event_of("_scaled_mm", DIMS, STRIDES, FP8),
        event_of("_scaled_mm_v2", V2_DIMS, V2_STRIDES, V2_TYPES, [*V2_VALUES[:3], "[2]", *V2_VALUES[4:]]),
        event_of(
            "_scaled_mm_v2", [*V2_DIMS[:2], [[], []], *V2_DIMS[3:]], [*V2_STRIDES[:2], [[], []], *V2_STRIDES[3:]], V2_TYPES, V2_VALUES
        ),
        event_of("mm", [[5, 8], [8, 5]], [[8, 1], [1, 8]], ["c10::complex<float>"] * 2),
        event_of("mm", [[5, 8], [8, 5]], [[8, 1], [1, 8]], ["float", ""]),
        event_of("mm", [[0, 8], [8, 5]], [[8, 1], [1, 8]], ["float", "float"]),
        event_of("mm", [[5, 8]], [[8, 1]], ["float"]),
        event_of("convolution", [[5, 8], [8, 5]], [[8, 1], [1, 8]], ["float"] * 2),
        {"name": "aten::mm", "cat": "cpu_op", "args": {"External id": 1}},
        {"name": "mm", "cat": "cpu_op", "args": {}},
    ],
)
def test_what_is_not_known_is_left_out(made: dict[str, Any]) -> None:
    assert product_of(made) is None


def test_calls_and_times_are_of_a_step_and_equal_products_are_one() -> None:
    events, operations = [], []
    from cluster.worker.measure.trace_parts import Operation

    for number in range(6):
        made = event_of("mm", [[5, 8], [8, 5]], [[8, 1], [1, 8]], ["float"] * 2)
        made["args"]["External id"] = number
        events.append(made)
        operations += [Operation(number, number + 0.5, 0.0, "matrix products", number)] * (2 if number == 3 else 1)
    operations.append(Operation(5.5, 5.75, 0.0, "other", 5))
    found = traced_products(events, CountedSteps(operations, [], [], 2.0, 6.0, [8, 8]))
    [one] = found.called
    assert (one.calls, one.seconds) == (2.0, pytest.approx(5 * 0.5e-6 / 2)), "from 2 us on: four calls, one of them of two kernels"
    assert found.kernels_s == pytest.approx(one.seconds)
    assert Called(one.product, 1.0, 1.0).product.key == one.product.key != of("mm", ((5, 8), (8, 1)), ((8, 5), (5, 1))).key


def test_a_key_tells_type_and_layout(tmp_path: Path) -> None:
    made = [of("mm", ((5, 8), (8, 1)), ((8, 5), (1, 8)), dtype=kind) for kind in (F32, "bfloat16")]
    assert len({one.key for one in [*made, of("mm", ((5, 8), (1, 5)), ((8, 5), (1, 8)))]}) == 3
    assert json.loads(made[0].key) == ["mm", [[[5, 8], [8, 1], F32], [[8, 5], [1, 8], F32]], "", False]
