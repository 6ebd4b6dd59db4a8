"""What `precision` may say: one word for how a model's matrix products are computed. Importable without torch.

fp32, tf32, bf16 and fp16 are the precision of all of them. Any other word is that of the linear layers in the model's blocks; what lies
around these layers (attention, norms, embeddings, heads) then computes under bf16 autocast. How the layers are replaced:
experiments/components/layers/convert.py; which device can do what: cluster/devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Plain = Literal["fp32", "tf32", "bf16", "fp16"]
Precision = Literal[
    Plain,
    "fp8",
    "fp8_rowwise",
    "fp8_switchback",
    "mxfp8",
    "int8_switchback",
    "int8_switchback_m",
    "int8_switchback_q",
    "llm_int8",
    "fp8_simulated",
    "fp8_simulated_switchback",
]
SAYS = (
    "fp32; tf32 (matrix products); bf16 (autocast); fp16 (autocast, GradScaler); others: of the blocks' linear layers under bf16 autocast, "
    "as fp8 (a scale for each tensor), fp8_rowwise, int8_switchback"
)


@dataclass(frozen=True)
class LowPrecision:
    """How a precision computes the linear layers of a model's blocks.

    unit: what multiplies, as cluster/devices/peaks.csv names it; None: simulated, computed in bf16.
    products: of a layer's three in training (output, gradient of the input, gradient of the weight), how many the unit computes, the
    output first; None: not documented.
    """

    unit: Literal["fp8", "int8"] | None
    products: int | None


LOW: Mapping[str, LowPrecision] = {
    "fp8": LowPrecision("fp8", 3),
    "fp8_rowwise": LowPrecision("fp8", 3),
    "fp8_switchback": LowPrecision("fp8", 2),
    "mxfp8": LowPrecision("fp8", 3),
    "int8_switchback": LowPrecision("int8", 2),
    "int8_switchback_m": LowPrecision("int8", 2),
    "int8_switchback_q": LowPrecision("int8", 2),
    "llm_int8": LowPrecision("int8", None),
    "fp8_simulated": LowPrecision(None, 0),
    "fp8_simulated_switchback": LowPrecision(None, 0),
}
FUSED = ("fp8", "fp8_switchback", "int8_switchback")  # of which there are kernels of our own


def around(precision: Precision) -> Plain:
    """The precision of everything but the linear layers of the blocks: bf16 where these have their own, else `precision` itself."""
    return "bf16" if precision in LOW else precision  # type: ignore[return-value]  # what is not in LOW is Plain


def needs_fp8_units(precision: Precision) -> bool:
    """Whether it computes on fp8 matrix units, which not every device has."""
    return precision in LOW and LOW[precision].unit == "fp8"


def flops_by_precision(precision: Precision, flops: float, in_linears: float | None, *, trains: bool) -> dict[str, float] | None:
    """FLOPs of a step by the precision that computes them, which add up to `flops`; None where that is not known.

    `in_linears`: those of them in the blocks' linear layers, in training all three products; None: not known. An inference step has a
    layer's output alone.
    """
    low = LOW.get(precision)
    if low is None or low.unit is None:
        return {around(precision): flops}
    if low.products is None or in_linears is None:
        return None
    in_unit = in_linears * (low.products / 3 if trains else 1)
    return {name: count for name, count in ((around(precision), flops - in_unit), (low.unit, in_unit)) if count}
