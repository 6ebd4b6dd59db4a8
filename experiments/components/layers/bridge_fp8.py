"""A Gaudi's own fp8: linear layers of the bridge's transformer engine, which compute all three products in 8 bits.

Written from Habana's guide "FP8 Training with Intel Gaudi Transformer Engine" (https://docs.habana.ai) and from how optimum-habana 1.21.2
calls it, in training alone, and tested on an emulated device only: it has not run on a Gaudi.

A tensor's scale is of the largest magnitudes in the steps before (delayed scaling), by the engine's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from experiments.components.workload import Unsupported

if TYPE_CHECKING:
    from experiments.parameters import TrainingParameters

ONLY = "fp8"  # the one precision that the engine has: a scale for each tensor


def why_not(precision: str) -> str | None:
    """Why the bridge here computes nothing in this 8-bit floating-point precision; None if it does."""
    if precision != ONLY:
        return f"a Gaudi's own fp8 has a scale for each tensor, which is precision {ONLY}"
    try:
        _engine()
    except ImportError as error:
        return f"the bridge here has no transformer engine ({error})"
    return None


def maker(parameters: TrainingParameters, *, trains: bool) -> Callable[[nn.Linear], nn.Module]:
    """What makes a layer of the engine, with the same parameters, from a linear one. Raises Unsupported for settings beside which it would
    compute something else, unsaid, or may."""
    if not trains:
        raise Unsupported(f"precision {ONLY}: on a Gaudi in training alone, whose steps the engine finds its scales from")
    if parameters.hpu_graphs:
        raise Unsupported(f"precision {ONLY}: on a Gaudi not with hpu_graphs, whose replays run nothing that finds scales; set it to false")
    if not parameters.autocast:
        raise Unsupported(f"precision {ONLY}: on a Gaudi the engine's layers compute in 8 bits under autocast alone; set autocast to true")
    if parameters.activation_checkpointing:
        raise Unsupported(f"precision {ONLY}: on a Gaudi not with activation_checkpointing, of which its engine would have to be told")
    engine = _engine()

    def make(old: nn.Linear) -> nn.Module:
        new = engine.Linear(
            old.in_features,
            old.out_features,
            bias=old.bias is not None,
            params_dtype=old.weight.dtype,
            skip_weight_param_allocation=True,
        )
        new.weight = old.weight
        if old.bias is not None:
            new.bias = old.bias
        return new  # type: ignore[no-any-return]

    return make


@contextmanager
def within(around: AbstractContextManager[None]) -> Iterator[None]:
    """The context in which the engine's layers compute in 8 bits, inside `around`. It notes the step's largest magnitudes at its end, so it
    is entered once for a forward pass."""
    engine = _engine()
    with around, engine.fp8_autocast(enabled=True, fp8_recipe=engine.recipe.DelayedScaling()):
        yield


def _engine() -> Any:
    """Raises ImportError."""
    import habana_frameworks.torch.hpex.experimental.transformer_engine as engine

    return engine
