"""Bare loops of matrix products on a GPU, and that its traces tell which kernel is of which product. `make test-gpu` runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from cluster.devices.peaks import peak_of_work
from cluster.worker.measure.matrix_rates import operand_sets, seconds_of
from cluster.worker.measure.matrix_shapes import Operand, Product, traced_products
from cluster.worker.measure.trace_parts import LOADER, counted_steps

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def mm(m: int, k: int, n: int, kind: str = "bfloat16") -> Product:
    return Product("mm", (Operand((m, k), (k, 1), kind), Operand((k, n), (1, k), kind)))


def scaled(m: int, k: int, n: int) -> Product:
    left, right = mm(m, k, n, "float8_e4m3fn").operands
    one = Operand((), (), "float32")
    return Product("_scaled_mm", (left, right, one, one, None), "bfloat16", True)


@pytest.mark.parametrize("product", [mm(8192, 8192, 8192), scaled(8192, 8192, 8192)], ids=["bf16", "fp8"])
def test_a_large_product_runs_at_a_good_part_of_the_peak_and_not_above_it(product: Product) -> None:
    precision = "bf16" if product.op == "mm" else "fp8"
    peak, _ = peak_of_work(torch.cuda.get_device_name(), {precision: 1.0})
    if not peak or (precision == "fp8" and torch.cuda.get_device_capability() < (8, 9)):
        pytest.skip(f"the peak of this device for {precision} is not known")
    rate = product.flops / seconds_of(product, torch.device("cuda", 0))
    assert 0.4 * peak < rate < 1.15 * peak, "a device may run above the data sheet's clock"


def test_a_small_product_is_timed_without_its_launches() -> None:
    """A launch takes some 5 us of the host; this one takes the device less."""
    assert 5e-7 < seconds_of(mm(64, 64, 64), torch.device("cuda", 0)) < 1e-5


def test_copies_are_twice_the_cache() -> None:
    sets = operand_sets(mm(1024, 1024, 1024), torch.device("cuda", 0))
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    assert 2 * cache <= len(sets) * 4 * 2**20 < 2 * cache + 4 * 2**20


def test_a_trace_tells_which_kernels_are_of_which_product(tmp_path: Path) -> None:
    """Beside a convolution, attention, and additions; in eager mode and compiled."""
    layer = torch.nn.Linear(1024, 4096, device="cuda", dtype=torch.bfloat16)
    batch = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)
    heads = torch.randn(4, 8, 256, 64, device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(lambda x: torch.nn.functional.gelu(x) @ x.t())

    def step() -> None:
        layer(batch).square().sum().backward()
        compiled(batch)
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        torch.bmm(heads[0], heads[0].transpose(1, 2))

    step()
    torch.cuda.synchronize()
    path = tmp_path / "trace.json"
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for _ in range(3):
            with torch.profiler.record_function(LOADER):
                pass
            step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    counted = counted_steps(events, [1, 1, 1])
    assert counted is not None
    found = traced_products(events, counted)
    by_shape = {(one.product.op, *(matrix.shape for matrix in one.product.matrices)): one.calls for one in found.called}
    assert by_shape == {
        ("addmm", (2048, 1024), (1024, 4096)): 1.0,
        ("mm", (4096, 2048), (2048, 1024)): 1.0,
        ("mm", (2048, 1024), (1024, 2048)): 1.0,
        ("bmm", (8, 256, 64), (8, 64, 256)): 1.0,
    }
    assert sum(one.seconds for one in found.called) == pytest.approx(found.kernels_s, rel=0.01), "no product has another one's kernels"
    assert all(one.seconds > 0 for one in found.called)
