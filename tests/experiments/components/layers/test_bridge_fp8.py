"""A Gaudi's own fp8 on the emulator's transformer engine, on the CPU: which layers, with what, and where it is refused."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from experiments.components.layers import bridge_fp8
from experiments.components.layers.convert import convert
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters

NAME = "habana_frameworks.torch.hpex.experimental.transformer_engine"
SOURCES = Path(__file__).parents[4] / "tests" / "habana_emulator" / "src"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The emulator's, without the bridge."""
    for at in range(1, NAME.count(".") + 1):
        monkeypatch.setitem(sys.modules, parent := ".".join(NAME.split(".")[:at]), ModuleType(parent))
    folder = SOURCES / NAME.replace(".", "/")
    for name, file in ((f"{NAME}.recipe", folder / "recipe.py"), (NAME, folder / "__init__.py")):
        spec = spec_from_file_location(name, file, submodule_search_locations=[str(folder)] if name == NAME else None)
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        if name == NAME:
            module.recipe = sys.modules[f"{NAME}.recipe"]  # type: ignore[attr-defined]
        spec.loader.exec_module(module)
    return sys.modules[NAME]


def parameters(**changes: Any) -> TrainingParameters:
    return TrainingParameters(**{"precision": "fp8", **changes})


def made() -> tuple[nn.Module, nn.Module]:
    """A model with one block, and one with equal weights."""
    torch.manual_seed(0)
    model, same = (
        nn.Sequential(nn.Linear(32, 32), nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16, bias=False))) for _ in "ab"
    )
    same.load_state_dict(model.state_dict())
    return model, same


def test_a_blocks_layers_are_the_engines_with_the_same_parameters(engine: Any) -> None:
    model, _ = made()
    before = dict(model.named_parameters())
    said = convert(model, [model[1]], parameters(), "hpu")
    assert type(model[0]) is nn.Linear and [type(layer) for layer in model[1]] == [engine.Linear, nn.ReLU, engine.Linear]
    after = dict(model.named_parameters())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert said.startswith("precision fp8, kernels stock: 2 linear layers, ")


def test_they_compute_in_8_bits_within_the_context_and_exactly_outside_it(engine: Any) -> None:
    model, plain = made()
    convert(model, [model[1]], parameters(), "hpu")
    x = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=0)
    assert engine.Linear.passes == 0
    with bridge_fp8.within(nullcontext()):
        out = model(x)
    assert engine.Linear.passes == 2
    off = (out - plain(x)).norm() / plain(x).norm()
    assert 0.005 < off < 0.1, "e4m3 has three bits of fraction"
    out.sum().backward()
    plain(x).sum().backward()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None and theirs.grad is not None
        assert (ours.grad - theirs.grad).norm() < 0.2 * theirs.grad.norm()


def test_the_engine_is_told_how_scales_are_found_once_a_pass(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(engine, "fp8_autocast", lambda **asked: told.append(asked) or nullcontext())
    with bridge_fp8.within(torch.autocast("cpu", torch.bfloat16)):
        assert torch.is_autocast_enabled("cpu")
    assert told == [{"enabled": True, "fp8_recipe": engine.recipe.DelayedScaling()}]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"autocast": False, "parallel": "fsdp2", "fsdp_compute": "bf16"}, "under autocast alone; set autocast to true"),
        ({"activation_checkpointing": True}, "not with activation_checkpointing"),
        ({"engine": "optimum_habana", "hpu_graphs": True}, "not with hpu_graphs, whose replays"),
        ({"kernels": "fused"}, "kernels fused: Triton's, for cuda, and this is hpu"),
    ],
)
def test_what_it_would_compute_otherwise_unsaid_is_refused(engine: Any, changes: dict[str, Any], why: str) -> None:
    model, _ = made()
    with pytest.raises(Unsupported, match=why):
        convert(model, [model[1]], parameters(**changes), "hpu")


def test_in_inference_it_is_refused(engine: Any) -> None:
    model, _ = made()
    with pytest.raises(Unsupported, match="on a Gaudi in training alone"):
        convert(model, [model[1]], parameters(), "hpu", trains=False)


def test_a_bridge_without_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "habana_frameworks", None)
    assert (bridge_fp8.why_not("fp8") or "").startswith("the bridge here has no transformer engine (")
    assert bridge_fp8.why_not("mxfp8") == "a Gaudi's own fp8 has a scale for each tensor, which is precision fp8"
