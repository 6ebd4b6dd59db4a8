"""The matrix products of traced steps: which shapes, types and layouts, how often, and how long their kernels took.

torch.profiler writes the arguments of each operator (`record_shapes`) and, beside each kernel, the operator that launched it. So no step
has to be run for this alone. What was launched by a CUDA graph, by a Triton kernel (also inductor's templates) or by a convolution has no
such operator and is left out.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cluster.worker.measure.trace_breakdown import ON_HOST, PRODUCTS, Event
from cluster.worker.measure.trace_parts import OPERATOR, CountedSteps, Operation

# Operators that multiply matrices -> which of their arguments are tensors, and where the two matrices are among these
SCALED, SCALED_BY_RECIPE = "_scaled_mm", "_scaled_mm_v2"  # the latter is what torch.nn.functional.scaled_mm calls (torch 2.10 and later)
OPERATORS: Mapping[str, tuple[tuple[int, ...], int]] = {
    "mm": ((0, 1), 0),
    "addmm": ((0, 1, 2), 1),
    "bmm": ((0, 1), 0),
    "baddbmm": ((0, 1, 2), 1),
    "_int_mm": ((0, 1), 0),
    SCALED: ((0, 1, 2, 3, 4), 0),
    SCALED_BY_RECIPE: ((0, 1, 2, 5, 8), 0),
}
# Where in the arguments of scaled products out_dtype and use_fast_accum stand
_RETURNS = {SCALED: (6, 7), SCALED_BY_RECIPE: (9, 11)}
_RECIPES = (3, 4, 6, 7)  # of _scaled_mm_v2: recipe and swizzle of the left scale and of the right one
_RECIPE_OF = {2: 3, 5: 6}  # where a list of scales stands -> where its recipe does
# torch.nn.functional.ScalingType -> the type of its scale: by tensor, row, and blocks of 128 in fp32; blocks of 32 in e8m0
_SCALE_TYPES = {"[0]": "float32", "[1]": "float32", "[4]": "float32", "[5]": "float32", "[3]": "float8_e8m0fnu"}
# C++ names in a trace -> torch's
_TYPES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu",
    "signed char": "int8",
}
_SCALAR_TYPES = {"": "", "5": "float16", "6": "float32", "7": "float64", "15": "bfloat16"}  # c10/core/ScalarType.h; "": the default


class Operand(NamedTuple):
    """A tensor argument: its shape, its strides in elements, and torch's name of its type."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Product:
    """One call of a matrix product, without its values. `op`: one of OPERATORS. `operands`: its tensors in order, None for one left out.

    `out_dtype` and `fast`: of scaled products alone. `scaling`: of _scaled_mm_v2, recipe and swizzle of the left scale and of the right.
    """

    op: str
    operands: tuple[Operand | None, ...]
    out_dtype: str = ""
    fast: bool = False
    scaling: tuple[tuple[int, ...], ...] = ()

    @property
    def matrices(self) -> tuple[Operand, Operand]:
        """The two that are multiplied: (..., m, k) and (..., k, n). Raises ValueError where one is not known."""
        at = OPERATORS[self.op][1]
        left, right = self.operands[at : at + 2]
        if left is None or right is None:
            raise ValueError(f"{self.op} without a matrix")
        return left, right

    @property
    def flops(self) -> int:
        """2 x batch x m x k x n, as torch.utils.flop_counter counts them; the sum that is added is left out."""
        left, right = self.matrices
        return 2 * math.prod(left.shape) * right.shape[-1]

    @property
    def key(self) -> str:
        """The same for equal products alone, in every process."""
        more = [self.scaling] if self.scaling else []
        return json.dumps([self.op, self.operands, self.out_dtype, self.fast, *more], separators=(",", ":"))

    def __str__(self) -> str:
        """Such as `addmm 8192x1024 . 1024x4096 bfloat16 NT`: N for a matrix whose rows are contiguous, T for a transposed one."""
        left, right = self.matrices
        layout = "".join("N" if one.strides[-1] == 1 else "T" for one in (left, right))
        types = left.dtype if left.dtype == right.dtype else f"{left.dtype} {right.dtype}"
        return f"{self.op} {'x'.join(map(str, left.shape))} . {'x'.join(map(str, right.shape))} {types} {layout}"


@dataclass(frozen=True)
class Called:
    """A product of traced steps: how often in a step, and how long its kernels took in a step, s."""

    product: Product
    calls: float
    seconds: float


@dataclass(frozen=True)
class TracedProducts:
    """The products of one device's traced steps. `kernels_s`: s in a step of all kernels of matrix products, also those without a shape."""

    kernels_s: float
    called: Sequence[Called]


def traced_products(events: Iterable[Event], counted: CountedSteps) -> TracedProducts:
    """The products of the steps that count, those with the most FLOPs first. `events`: the trace's traceEvents."""
    kernels: dict[Any, list[Operation]] = defaultdict(list)
    for operation in counted.operations:
        if operation.kind == PRODUCTS and counted.begin <= operation.start:
            kernels[operation.operator].append(operation)
    calls: dict[Product, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") != ON_HOST or (product := product_of(event)) is None:
            continue
        # In traces of early versions a kernel that no operator launched has the number of some other one: it was launched at another time
        until = event["ts"] + event["dur"]
        if own := [one for one in kernels.get(event["args"].get(OPERATOR), ()) if event["ts"] <= one.launched <= until]:
            calls[product].append(_micros(own))
    steps = len(counted.samples)
    found = [Called(product, len(each) / steps, math.fsum(each) / 1e6 / steps) for product, each in calls.items()]
    found.sort(key=lambda one: (-one.calls * one.product.flops, one.product.key))
    return TracedProducts(math.fsum(_micros(each) for each in kernels.values()) / 1e6 / steps, found)


def _micros(operations: Iterable[Operation]) -> float:
    return math.fsum(one.end - one.start for one in operations)


def product_of(event: Event) -> Product | None:
    """The product that an operator of the host computes; None for another operator, and for types or arguments that are not known."""
    op = str(event.get("name", "")).removeprefix("aten::")
    if op not in OPERATORS or event.get("name") == op:
        return None
    arguments: Mapping[str, Sequence[Any]] = event["args"]
    try:
        operands = tuple(_operand(arguments, at) for at in OPERATORS[op][0])
        product = Product(op, operands, *_scaled(op, arguments)) if op in _RETURNS else Product(op, operands)
        left, right = product.matrices
    except (KeyError, IndexError, ValueError):
        return None
    return product if len(left.shape) == len(right.shape) >= 2 and product.flops else None


def _scaled(op: str, arguments: Mapping[str, Sequence[Any]]) -> tuple[str, bool, tuple[tuple[int, ...], ...]]:
    """out_dtype, use_fast_accum and `scaling` of a scaled product. Raises KeyError, IndexError and ValueError for what is not known."""
    values, (out_type, fast) = arguments["Concrete Inputs"], _RETURNS[op]
    scaling = tuple(tuple(json.loads(values[at])) for at in _RECIPES) if op == SCALED_BY_RECIPE else ()
    return _SCALAR_TYPES[values[out_type]], values[fast] == "True", scaling


def _operand(arguments: Mapping[str, Sequence[Any]], at: int) -> Operand | None:
    """Of a list of scales its only tensor. Raises KeyError, IndexError and ValueError for what is not known, such as two scales."""
    kind = arguments["Input type"][at]
    if kind == "":
        return None
    if kind == "TensorList":  # whose tensors' types a trace does not tell
        [shape], [strides] = arguments["Input Dims"][at], arguments["Input Strides"][at]
        return Operand(tuple(shape), tuple(strides), _SCALE_TYPES[arguments["Concrete Inputs"][_RECIPE_OF[at]]])
    return Operand(tuple(arguments["Input Dims"][at]), tuple(arguments["Input Strides"][at]), _TYPES[kind])
