"""Give the linear layers of a model's blocks a precision of their own: for every workload, once its model is built.

What lies outside the blocks (embeddings, heads, projections between towers) keeps the precision around them, as does a layer whose widths
8-bit units cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from experiments.components.layers import bridge_fp8, fused
from experiments.components.layers.attention import ApartAttention
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.layers.whole import take_whole
from experiments.components.workload import Unsupported
from experiments.precision import LOW, Precision

if TYPE_CHECKING:
    from experiments.parameters import TrainingParameters

WIDTHS = 16  # of a layer must be divisible by this
# torchao's names: a scale for each tensor; for each row; for each row, the weight gradient in 16 bits
RECIPES = {"fp8": "tensorwise", "fp8_rowwise": "rowwise", "fp8_switchback": "rowwise_with_gw_hp"}


def convert(model: nn.Module, blocks: Sequence[nn.Module], parameters: TrainingParameters, device_kind: str, *, trains: bool = True) -> str:
    """Replace the linear layers of `blocks`, modules of `model`, by those of the trial's precision, with the same parameters.

    `precision` is one of LOW. Returns a sentence on what was replaced. torch's multi-head attention is taken apart first. Raises
    Unsupported where a library, the kernels or the model cannot do it; whether the device can is asked before (Device.unsupported).
    """
    precision = parameters.precision
    if parameters.kernels == "fused" and (wrong := fused.why_not(device_kind)):
        raise Unsupported(wrong)
    _exchange(model, blocks, lambda old: type(old) is nn.MultiheadAttention, ApartAttention)
    all_layers = {id(module): module for block in blocks for module in block.modules() if type(module) is nn.Linear}
    chosen = {name: layer for name, layer in all_layers.items() if _fits(layer)}
    if not chosen:
        raise Unsupported(f"precision {precision}: no block of this model has a linear layer with widths divisible by {WIDTHS}")
    share = sum(layer.weight.numel() for layer in chosen.values()) / sum(parameter.numel() for parameter in model.parameters())
    _exchange(model, blocks, lambda old: id(old) in chosen, _maker(precision, parameters, device_kind, trains=trains))
    others = len(all_layers) - len(chosen)
    return f"precision {precision}, kernels {parameters.kernels}: {len(chosen)} linear layers, {share:.1%} of the model's parameters" + (
        f"; {others} more in the blocks have widths not divisible by {WIDTHS}" if others else ""
    )


def _fits(layer: nn.Linear) -> bool:
    return layer.in_features % WIDTHS == 0 and layer.out_features % WIDTHS == 0


def _exchange(model: nn.Module, blocks: Sequence[nn.Module], wanted: Callable[[nn.Module], bool], make: Callable[[Any], nn.Module]) -> None:
    """Put `make(old)` in the place of each wanted module of `blocks`: one new module for all places of an old one."""
    inside = {id(module) for block in blocks for module in block.modules()}
    new: dict[int, tuple[nn.Module, nn.Module]] = {}  # with the old one, so that no other takes its id
    for parent, name, old in list(_places(model)):
        if id(old) in inside and wanted(old):
            if id(old) not in new:
                new[id(old)] = old, make(old).train(old.training)
            setattr(parent, name, new[id(old)][1])


def _places(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in model.modules():
        for name, child in parent._modules.items():
            if child is not None:
                yield parent, name, child


def _maker(precision: Precision, parameters: TrainingParameters, device_kind: str, *, trains: bool) -> Callable[[nn.Linear], nn.Module]:
    """What makes a layer of this precision from a linear one."""
    if precision == "llm_int8":
        return _bitsandbytes(device_kind)
    if device_kind == "hpu" and precision in RECIPES:
        return bridge_fp8.maker(parameters, trains=trains)
    if precision in RECIPES and parameters.kernels == "stock":
        return _torchao(precision, parameters.batch_size)
    if LOW[precision].unit == "int8" and device_kind not in ("cpu", "cuda"):
        raise Unsupported(f"precision {precision}: torch's int8 product runs on cpu and cuda, and this is {device_kind}")
    if parameters.compile != "none":
        take_whole()
    return lambda old: LowPrecisionLinear(old, precision, fused=parameters.kernels == "fused")


def _torchao(precision: Precision, batch_size: int | str) -> Callable[[nn.Linear], nn.Module]:
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise Unsupported(f"precision {precision}: torchao is not installed ({error})") from error
    from dataclasses import replace

    # a weight gradient's sum runs over rows (batch x tokens), of which the units take a multiple of 16; padding costs a copy
    padded = not (isinstance(batch_size, int) and batch_size % 16 == 0)
    settings = replace(Float8LinearConfig.from_recipe_name(RECIPES[precision]), pad_inner_dim=padded)
    return lambda old: convert_to_float8_training(old, config=settings)


def _bitsandbytes(device_kind: str) -> Callable[[nn.Linear], nn.Module]:
    try:
        from bitsandbytes.nn import Linear8bitLt
    except ImportError as error:
        raise Unsupported(f"precision llm_int8: bitsandbytes is not installed ({error})") from error
    if device_kind != "cuda":
        raise Unsupported(f"precision llm_int8: bitsandbytes' int8 training runs on cuda, and this is {device_kind}")

    def make(old: nn.Linear) -> nn.Module:
        new = Linear8bitLt(old.in_features, old.out_features, bias=old.bias is not None, has_fp16_weights=True)
        new.weight.data, new.bias = old.weight.data, old.bias
        return new  # type: ignore[no-any-return]

    return make
