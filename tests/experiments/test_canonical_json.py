"""The text that keys, digests and seals hash: it stays what it is, since they are kept."""

from __future__ import annotations

import math

import pytest

from experiments.canonical_json import canonical_json
from experiments.json_file import seal_of
from experiments.trial import digest

VALUE = {"b": [1, 2.5, None, True], "a": {"ü": "x y", "": 1e-7}}


def test_keys_are_sorted_and_all_is_ascii_without_spaces() -> None:
    assert canonical_json(VALUE) == '{"a":{"":1e-07,"\\u00fc":"x y"},"b":[1,2.5,null,true]}'


def test_what_is_hashed_of_it_is_what_it_was() -> None:
    assert digest(VALUE) == "7ab8396b9a896f7a"
    assert seal_of({**VALUE, "seal": "left out"})[:16] == digest(VALUE)


@pytest.mark.parametrize("value", [math.nan, math.inf, {"x": [-math.inf]}])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)
    with pytest.raises(TypeError):
        canonical_json(VALUE | {"when": object()})
