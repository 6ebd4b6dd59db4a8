"""Parameters that change nothing beside the others: the name of a cell leaves them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.parameters import NOT_COMPILED, OF_LOADING, REFERENCE_ARITHMETIC, WITHOUT_EFFECT, TrainingParameters
from experiments.precision import FUSED

_OF_COMPILER = ("compile_mode", "multi_kernel")
_OF_WORKERS = tuple(name for name in OF_LOADING if name != "dataloader_workers")


def without_effect(parameters: Mapping[str, Any]) -> frozenset[str]:
    """The names of those that another one leaves without effect, such as compile_mode with compile none, and that are at their default.

    One that is set otherwise stays: it may be all that tells two cells apart, and that it does nothing is then for its reader to see.
    """
    return frozenset(name for name, default in _idle(parameters).items() if name in parameters and parameters[name] == default)


def _idle(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Name -> default of each that has no effect beside these."""
    fields = TrainingParameters.model_fields
    idle: dict[str, Any] = {}
    if parameters.get("compile") == "none":
        idle |= {name: NOT_COMPILED[name] for name in _OF_COMPILER}
    if "precision" in parameters and parameters["precision"] not in FUSED:
        idle["kernels"] = fields["kernels"].default  # no linear layer in 8 bits of which there are two kinds
    if parameters.get("dataloader_workers", -1) == 0:
        idle |= {name: fields[name].default for name in _OF_WORKERS}
    if parameters.get("padding") == "kept":
        idle["round_tokens_to"] = REFERENCE_ARITHMETIC["round_tokens_to"]
    idle |= {name: fields[name].default for name in WITHOUT_EFFECT.get(str(parameters.get("parallel")), ())}
    return idle
