"""What torch.compile takes whole it finds in its cache again, for as long as the code behind it is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor
from torch import nn

from experiments.components.layers import whole
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.layers.whole import take_whole
from experiments.precision import Precision

MARKED = {"fused.fp8_tensor_wise", "fused.switchback", "low_precision.simulated_fp8", "low_precision.switchback"}


def test_each_function_is_marked_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch tells what is taken whole by its name alone: two of one name would be given each other's graphs."""
    monkeypatch.setattr(inductor, "unsafe_marked_cacheable_functions", {})
    take_whole()
    told = inductor.unsafe_marked_cacheable_functions
    assert set(told) == {f"experiments.components.layers.{name}" for name in MARKED} and set(told.values()) == {whole.CODE}


def test_the_code_is_every_file_of_the_layers(tmp_path: Path) -> None:
    found = []
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", "2"), ("notes.txt", "no code")):
        (tmp_path / name).write_text(text)
        found.append(whole.code_of(tmp_path))
    assert len(set(found)) == 3 and found[2] == found[3]
    assert whole.code_of(Path(whole.__file__).parent) == whole.CODE


def test_autocast_is_off_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "_FUNCTIONS", [])
    seen = whole.whole(lambda x, y: torch.tensor([torch.is_autocast_enabled("cpu"), y]))
    with torch.autocast("cpu", torch.bfloat16):
        assert seen(torch.ones(1), True).tolist() == [False, True]
    assert [seen] == whole._FUNCTIONS


def passed(layer: nn.Module, backward: bool = True) -> tuple[list[torch.Tensor], dict[str, int]]:
    """Output and gradients of the compiled layer, and what AOTAutograd counted, in a process that has compiled nothing yet.

    Without `backward` the output alone: what is found in the cache is known by then, and a C++ compiler takes seconds for the rest.
    """
    torch.compiler.reset()
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    x = torch.linspace(-1, 1, 32 * 32).view(32, 32).bfloat16().requires_grad_()
    layer.zero_grad()
    out = torch.compile(layer)(x)
    if backward:
        out.float().square().sum().backward()
    found = [out.detach(), *(one.grad for one in (x, *layer.parameters()) if backward)]
    return found, dict(counters["aot_autograd"])  # type: ignore[return-value]


def made(precision: Precision) -> LowPrecisionLinear:
    torch.manual_seed(0)
    return LowPrecisionLinear(nn.Linear(32, 32).bfloat16(), precision)


def test_a_compiled_layer_comes_from_the_cache_until_its_code_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", "")  # inductor sets it, for its extension
    monkeypatch.setattr(inductor.cpp, "vec_isa_ok", False)  # nor does it compile six programs to learn what this CPU has
    take_whole()
    layer = made("int8_switchback")
    first, cold = passed(layer)
    again, warm = passed(layer)
    assert (cold.get("autograd_cache_miss"), cold.get("autograd_cache_bypass", 0)) == (1, 0), cold
    assert (warm.get("autograd_cache_hit"), warm.get("autograd_cache_bypass", 0)) == (1, 0), warm
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))

    simulated, other = passed(made("fp8_simulated"), backward=False)
    assert other.get("autograd_cache_miss") == 1, "one function's graph is not another's"
    assert not torch.equal(simulated[0], first[0])
    by_row, more = passed(made("int8_switchback_q"), backward=False)
    assert more.get("autograd_cache_miss") == 1 and not torch.equal(by_row[0], first[0]), "nor are those of its other settings"

    with monkeypatch.context() as patch:
        patch.setattr(whole, "CODE", "of other code")
        take_whole()
        assert passed(layer, backward=False)[1].get("autograd_cache_miss") == 1
    take_whole()
    torch.compiler.reset()
