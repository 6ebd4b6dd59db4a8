"""Low-precision linears against float64: what each arm quantises, its gradients, and what is refused where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers import low_precision
from experiments.components.workload import Context, Unsupported
from experiments.workloads import linear_layer

SWITCHBACKS = {"switchback": (False, False), "switchback_m": (True, False), "switchback_q": (False, True)}


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
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_each_arm_has_the_gradients_of_a_linear_layer_up_to_its_rounding(arm: str, precision: torch.dtype) -> None:
    """Against nn.Linear in float64, from the same inputs: the relative error over all values is that of 8 bits, and not zero."""
    x, weight, gradient = drawn()
    exact = nn.Linear(32, 16).double()
    with torch.no_grad():
        exact.weight.copy_(weight)
    holder = nn.Sequential(nn.Linear(32, 16))
    with torch.no_grad():
        holder[0].weight.copy_(weight)
        holder[0].bias.copy_(exact.bias)
    low_precision.replace(holder, arm, [(holder, "0")], "cpu")
    inputs, inputs64 = x.clone().requires_grad_(), x.double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        out = holder(inputs)
    assert out.dtype is precision
    out.backward(gradient.to(precision))
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


def test_what_a_device_or_an_environment_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(arm: str, kernels: str = "stock") -> nn.Module:
        holder = nn.Sequential(nn.Linear(32, 16))
        low_precision.replace(holder, arm, [(holder, "0")], "cpu", kernels)
        return holder

    for arm in ("fp8_tensorwise", "fp8_switchback"):
        with pytest.raises(Unsupported, match=f"{arm}: needs a GPU with fp8"):
            ask(arm)
    with pytest.raises(Unsupported, match="llm_int8: bitsandbytes"):
        ask("llm_int8")
    with pytest.raises(Unsupported, match=r"kernels fused: .* for cuda, and this is cpu"):
        ask("switchback", "fused")


def test_the_quantise_share_is_of_all_that_a_step_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time: each quantisation takes a second, and the rest of a loss four."""
    parameters = linear_layer.Parameters(width=32, linear="switchback", batch_size=64)
    one = linear_layer.build(Context(parameters, None, "cpu", 0, 1, 64))
    model: Any = one.model()
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
    parameters = linear_layer.Parameters(width=32, linear="switchback", batch_size=64, learning_rate=0.01)
    one = linear_layer.build(Context(parameters, None, "cpu", 0, 1, 64))
    torch.manual_seed(0)
    model: Any = one.model()
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
    assert after["loss"] < 0.5 * before["loss"]


def test_all_products_of_the_linear_layers_are_the_arms() -> None:
    def found(arm: str) -> dict[str, float] | None:
        parameters = linear_layer.Parameters(width=16, linear=arm, precision="bf16")  # type: ignore[arg-type]
        return linear_layer.build(Context(parameters, None, "cpu", 0, 1, 8)).flops_by_precision()

    flops = 6 * 2 * 4 * 16 * 16
    assert found("plain") == {"bf16": flops}
    assert found("fp8_tensorwise") == {"fp8": flops}, "nothing is left in bf16"
    assert found("switchback") == pytest.approx({"bf16": flops / 3, "int8": 2 * flops / 3})
    assert found("llm_int8") is None
