"""What a trial is known by, and what each way to end means for a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.trial import Outcome, Scalar, Trial, digest, key_parts, label, trial_key

GIVEN: dict[str, Any] = {
    "configuration": {"workload": "synthetic", "parameters": {"steps": 5}},
    "code": "c" * 16,
    "data": "d" * 16,
    "libraries": "l" * 16,
    "seed": 0,
    "repeat": 1,
    "sweep": "made_up-20260101-000000-0000",
}


def key(**changes: Any) -> str:
    return trial_key(key_parts(**{**GIVEN, **changes}))


def test_a_key_is_the_same_whenever_all_that_matters_is() -> None:
    assert key() == key()
    assert len(key()) == 16 and int(key(), 16) >= 0


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("configuration", {"workload": "synthetic", "parameters": {"steps": 6}}),
        ("code", "e" * 16),
        ("data", "e" * 16),
        ("libraries", "e" * 16),
        ("seed", 1),
        ("repeat", 2),
        ("sweep", "made_up-20260101-000000-0001"),
    ],
)
def test_each_part_changes_the_key_and_only_its_own_part(name: str, other: object) -> None:
    assert key(**{name: other}) != key()
    before, after = key_parts(**GIVEN), key_parts(**{**GIVEN, name: other})
    assert [part for part in before if before[part] != after[part]] == [name]


def test_the_parts_of_a_key_can_be_read() -> None:
    parts = key_parts(**GIVEN)
    assert parts == {**GIVEN, "configuration": digest(GIVEN["configuration"]), "seed": "0", "repeat": "1"}


def test_a_digest_does_not_depend_on_the_order_of_names() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest([1, 2]) != digest([2, 1])


def test_a_digest_is_of_canonical_json() -> None:
    """A fixed value: were it another one, every sweep on disk would be run again. From `printf '{"a":1,"b":[2,null]}' | sha256sum`."""
    assert digest({"b": [2, None], "a": 1}) == "cc243773f70c3dff"


@pytest.mark.parametrize("value", [object(), {1, 2}])
def test_what_json_cannot_hold_has_no_digest(value: object) -> None:
    with pytest.raises(TypeError):
        digest({"value": value})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_have_have_no_digest(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        digest({"value": value})


@pytest.mark.parametrize(
    ("outcome", "expected", "final"),
    [
        ("ok", True, True),
        ("does_not_fit", True, True),
        ("diverged", False, True),
        ("unsupported", True, True),
        ("hang", False, True),
        ("crashed", False, True),
        ("infra", False, False),
        ("cancelled", False, False),
    ],
)
def test_what_each_way_to_end_means_for_the_sweep(outcome: str, expected: bool, final: bool) -> None:
    assert (Outcome(outcome).expected, Outcome(outcome).final) == (expected, final)


def test_there_is_no_other_way_to_end() -> None:
    assert {str(outcome) for outcome in Outcome} == {
        "ok",
        "does_not_fit",
        "diverged",
        "unsupported",
        "hang",
        "crashed",
        "infra",
        "cancelled",
    }


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        ("dataloader_workers", 1, "MP-1"),
        ("loader", "threads", "loader threads"),
        ("clip_grad_norm", None, "not clipped"),
        ("clip_grad_norm", 0.5, "clipped at 0.5"),
        ("fused", True, "fused"),
        ("fused", False, "no fused"),
        ("compile", "default", "compile default"),
        ("compile_mode", "default", "compile_mode default"),
        ("image_decode", "host", "image_decode host"),
        ("batch_size", 8, "batch_size 8"),
        ("block_weights", "bf16", "block_weights bf16"),
        ("kernels", "fused", "kernels fused"),
        ("prediction", "all", "prediction all"),
        ("image_size", None, "image_size default"),
        ("dropout", None, "dropout default"),
        ("measure_s", None, "measure_s none"),
        ("packing", "plain", "packing plain"),
        ("lora_targets", "attention", "lora_targets attention"),
        ("engine", "native", "engine native"),
        ("memory_format", "contiguous", "memory_format contiguous"),
        ("attention", "eager", "attention eager"),
        ("attention", "sdpa", "sdpa"),
        ("parallel", "ddp", "ddp"),
        ("precision", "bf16", "bf16"),
    ],
)
def test_axis_values_as_a_person_says_them(axis: str, value: Any, text: str) -> None:
    assert label(axis, value) == text


def test_a_trial_is_named_by_its_axes_in_order_and_its_repeat() -> None:
    trial = Trial(
        key="k",
        key_parts={},
        sweep_id="s",
        suite="s",
        workload="w",
        pool="cpu",
        device="cpu",
        cell="c",
        repeat=2,
        index=0,
        axes={"pool": "cpu", "precision": "bf16", "dataloader_workers": 1},
        parameters={},
    )
    assert trial.name == "cpu · bf16 · MP-1 · #2"


def test_a_name_leaves_out_what_has_no_effect_in_its_trial() -> None:
    def named(axes: dict[str, Scalar], **parameters: Any) -> str:
        known = {"key": "k", "key_parts": {}, "sweep_id": "s", "suite": "s", "workload": "w", "pool": "cpu", "device": "cpu", "cell": "c"}
        return Trial.model_validate({**known, "repeat": 1, "index": 0, "axes": axes, "parameters": {**parameters, **axes}}).name

    modes: list[dict[str, Scalar]] = [
        {"compile": "none", "compile_mode": "default"},
        {"compile": "model", "compile_mode": "default"},
        {"compile": "none", "compile_mode": "max-autotune"},
    ]
    assert [named(axes) for axes in modes] == [
        "compile none · #1",
        "compile model · compile_mode default · #1",
        "compile none · compile_mode max-autotune · #1",
    ]
    assert named({"kernels": "stock"}, precision="bf16") == "#1", "its precision is no axis and counts all the same"
