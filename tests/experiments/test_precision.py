"""The words for precisions: what computes around the linear layers, and which FLOPs are computed in what."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import ValidationError

from experiments.parameters import TrainingParameters, as_reference
from experiments.precision import FUSED, LOW, Plain, Precision, around, flops_by_precision, needs_fp8_units


def test_each_word_is_plain_or_of_linear_layers_and_these_have_bf16_around_them() -> None:
    assert set(get_args(Precision)) == set(get_args(Plain)) | set(LOW) and set(FUSED) <= set(LOW)
    assert {precision: around(precision) for precision in get_args(Plain)} == {name: name for name in get_args(Plain)}
    assert {around(precision) for precision in get_args(Precision) if precision in LOW} == {"bf16"}
    assert {name for name in get_args(Precision) if needs_fp8_units(name)} == {"fp8", "fp8_rowwise", "fp8_switchback", "mxfp8"}


@pytest.mark.parametrize(
    ("precision", "trained", "inferred"),
    [
        ("fp16", {"fp16": 12.0}, {"fp16": 12.0}),
        ("fp8", {"bf16": 3.0, "fp8": 9.0}, {"bf16": 3.0, "fp8": 9.0}),
        ("fp8_switchback", {"bf16": 6.0, "fp8": 6.0}, {"bf16": 3.0, "fp8": 9.0}),
        ("int8_switchback", {"bf16": 6.0, "int8": 6.0}, {"bf16": 3.0, "int8": 9.0}),
        ("fp8_simulated", {"bf16": 12.0}, {"bf16": 12.0}),
        ("llm_int8", None, None),
    ],
)
def test_flops_are_the_same_in_every_precision_and_shared_by_what_computes_them(
    precision: Precision, trained: dict[str, float] | None, inferred: dict[str, float] | None
) -> None:
    assert flops_by_precision(precision, 12.0, 9.0, trains=True) == trained
    assert flops_by_precision(precision, 12.0, 9.0, trains=False) == inferred


def test_what_multiplies_and_how_many_of_three_products() -> None:
    """As docs/settings.md says in its table: the weight's gradient is in 16 bits with switchback."""
    assert {name: (low.unit, low.products) for name, low in LOW.items()} == {
        "fp8": ("fp8", 3),
        "fp8_rowwise": ("fp8", 3),
        "fp8_switchback": ("fp8", 2),
        "mxfp8": ("fp8", 3),
        "int8_switchback": ("int8", 2),
        "int8_switchback_m": ("int8", 2),
        "int8_switchback_q": ("int8", 2),
        "llm_int8": ("int8", None),
        "fp8_simulated": (None, 0),
        "fp8_simulated_switchback": (None, 0),
    }


def test_a_share_that_nobody_knows_is_none_and_no_share_is_no_entry() -> None:
    assert flops_by_precision("fp8", 12.0, None, trains=True) is None
    assert flops_by_precision("bf16", 12.0, None, trains=True) == {"bf16": 12.0}
    assert flops_by_precision("fp8", 12.0, 12.0, trains=True) == {"fp8": 12.0}


def test_fused_kernels_are_refused_where_there_are_none_and_a_reference_needs_none() -> None:
    parameters = TrainingParameters(precision="fp8", kernels="fused")
    for precision in ("bf16", "fp8_rowwise", "int8_switchback_m"):
        with pytest.raises(ValidationError, match=f"kernels fused: there are none for precision {precision}; those are fp8, "):
            TrainingParameters(precision=precision, kernels="fused")  # type: ignore[arg-type]
    reference = TrainingParameters.model_validate(as_reference(parameters.model_dump()))
    assert (reference.precision, reference.kernels) == ("fp32", "stock")
