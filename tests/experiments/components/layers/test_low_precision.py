"""Low-precision linears against float64: what each arm quantises, its gradients, and what is refused where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers import low_precision
from experiments.components.layers.convert import convert
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.layers.whole import take_whole
from experiments.components.workload import Context
from experiments.precision import Precision
from experiments.workloads import linear_layer

SWITCHBACKS = {"int8_switchback": (False, False), "int8_switchback_m": (True, False), "int8_switchback_q": (False, True)}


def as_int8(x: torch.Tensor, dim: int | None) -> torch.Tensor:
    """x, float64, as int8 with the scale of `dim` (None: one for all) would hold it."""
    top = x.abs().amax() if dim is None else x.abs().amax(dim=dim, keepdim=True)
    return (x / (top / 127)).round() * (top / 127)


def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (24, 32), W (16, 32), G (24, 16), fp32, of rows with very different magnitudes."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.logspace(-2, 2, 24)[:, None]
    return torch.randn(24, 32, generator=draw) * rows, torch.randn(16, 32, generator=draw), torch.randn(24, 16, generator=draw) * rows


@pytest.mark.parametrize("arm", SWITCHBACKS)
def test_switchback_is_its_float64_reference(arm: str) -> None:
    save_int8, by_row = SWITCHBACKS[arm]
    x, weight, gradient = drawn()
    x.requires_grad_()
    weight.requires_grad_()
    out = low_precision.SwitchBack.apply(x, weight, save_int8, by_row)
    out.backward(gradient)
    x64, w64, g64 = (value.detach().double() for value in (x, weight, gradient))
    quantised = as_int8(x64, 1)
    expected = quantised @ as_int8(w64, 1 if by_row else None).T
    to_x = as_int8(g64, 1) @ as_int8(w64, 0 if by_row else None)
    to_weight = g64.T @ (quantised if save_int8 else x64)
    assert x.grad is not None and weight.grad is not None
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(x.grad.double(), to_x, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(weight.grad.double(), to_weight, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("arm", [*SWITCHBACKS, "fp8_simulated", "fp8_simulated_switchback"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_each_arm_has_the_gradients_of_a_linear_layer_up_to_its_rounding(arm: Precision, kind: torch.dtype) -> None:
    """Against nn.Linear in float64, from the same inputs: the relative error over all values is that of 8 bits, and not zero."""
    x, weight, gradient = drawn()
    exact = nn.Linear(32, 16).double()
    with torch.no_grad():
        exact.weight.copy_(weight)
    holder = nn.Sequential(nn.Linear(32, 16))
    with torch.no_grad():
        holder[0].weight.copy_(weight)
        holder[0].bias.copy_(exact.bias)
    holder[0] = LowPrecisionLinear(holder[0], arm)
    inputs, inputs64 = x.clone().requires_grad_(), x.double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=kind is torch.bfloat16):
        out = holder(inputs)
    assert out.dtype is kind
    out.backward(gradient.to(kind))
    exact64 = exact(inputs64)
    exact64.backward(gradient.double())
    limit = 0.05 if arm.startswith("fp8") else 0.02
    for found, expected in (
        (out, exact64),
        (inputs.grad, inputs64.grad),
        (holder[0].weight.grad, exact.weight.grad),
        (holder[0].bias.grad, exact.bias.grad),
    ):
        assert found is not None and expected is not None
        error = float((found.double() - expected).norm() / expected.norm())
        assert error < limit, (arm, error)
    assert not torch.equal(out.double(), exact64)
    assert holder[0].weight.grad.dtype is torch.float32, "the parameter's own type"


@pytest.mark.parametrize("rows", [1, 16, 17, 32, 40])
@pytest.mark.parametrize("precision", ["int8_switchback", "fp8_simulated"])
def test_rows_that_units_do_not_take_are_made_up_and_change_nothing(precision: Precision, rows: int) -> None:
    """8-bit units take a multiple of 16 rows, int8's more than 16: what a row gives does not depend on how many there are."""
    layer = LowPrecisionLinear(nn.Linear(32, 16), precision)
    x = torch.randn(40, 32, generator=torch.Generator().manual_seed(0))
    x[0] *= 10 / x[0].abs().max()  # the largest of all, whose scale fp8 shares
    whole, found = layer(x), layer(x[:rows].clone().requires_grad_())
    assert found.shape == (rows, 16)
    torch.testing.assert_close(found, whole[:rows], rtol=1e-6, atol=1e-6)
    found.sum().backward()
    assert layer.bias.grad is not None and layer.bias.grad.tolist() == [rows] * 16, "a row that was made up has no gradient"
    assert layer(x.view(2, 4, 5, 32)).shape == (2, 4, 5, 16)


@pytest.mark.parametrize("precision", ["int8_switchback", "int8_switchback_m", "int8_switchback_q", "fp8_simulated"])
def test_a_compiled_layer_is_one_graph_with_the_values_of_the_eager_one(precision: Precision) -> None:
    """Captured with its backward pass, and computed operation by operation: no code is generated that would round otherwise."""
    take_whole()
    torch.compiler.reset()
    x, weight, gradient = drawn()
    layer = LowPrecisionLinear(nn.Linear(32, 16), precision)
    with torch.no_grad():
        layer.weight.copy_(weight)

    def step(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            out: torch.Tensor = layer(nn.functional.gelu(inputs))
        return out

    results = []
    for call in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        inputs = x.clone().requires_grad_()
        layer.zero_grad()
        out = call(inputs)
        out.backward(gradient.bfloat16())
        results.append([out.detach(), inputs.grad, layer.weight.grad, layer.bias.grad])
    for eager, compiled in zip(*results, strict=True):
        assert eager is not None and compiled is not None and eager.dtype is compiled.dtype
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-5)


def test_the_quantise_share_is_of_all_that_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time: each quantisation takes a second, and the rest of a loss four."""
    parameters = linear_layer.Parameters(width=32, precision="int8_switchback", batch_size=64)
    one = linear_layer.build(Context(parameters, None, "cpu", 0, 1, 64))
    model: Any = one.model()
    convert(model, one.layers(model), parameters, "cpu")
    now = 0.0

    def taking(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            nonlocal now
            now += seconds
            return work(*arguments, **options)

        return timed

    monkeypatch.setattr(linear_layer.time, "perf_counter", lambda: now)
    monkeypatch.setattr(low_precision, "quantise", taking(1.0, low_precision.quantise))
    monkeypatch.setattr(one, "loss", taking(4.0, one.loss))
    # apart: two inputs, two gradients and two weights forward and backward; within a step the same
    assert one.evaluate(model, lambda batch: batch)["quantise_share"] == pytest.approx(8 / (8 + 4))


def test_the_layers_learn_on_batches_that_are_made_and_moved_once() -> None:
    parameters = linear_layer.Parameters(width=32, precision="int8_switchback", batch_size=1024, learning_rate=0.01)
    one = linear_layer.build(Context(parameters, None, "cpu", 0, 1, 1024))
    torch.manual_seed(0)
    model: Any = one.model()
    convert(model, one.layers(model), parameters, "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before = one.evaluate(model, lambda batch: batch)
    for _ in range(30):
        loss = one.loss(model, one.prepare(next(one.batches())))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    assert one.prepare({"number": 1, "place": torch.empty(0)}) is one.prepare({"number": 1, "place": torch.empty(0)}), (
        "drawn and moved once"
    )
    after = one.evaluate(model, lambda batch: batch)
    assert after["loss"] - 1 < 0.3 * (before["loss"] - 1), "of what is not the targets' noise"
