"""Scalars as text, for machines and for people."""

from __future__ import annotations

import pytest

from experiments.config.scalar_text import table_text, yaml_text
from experiments.config.yaml_document import scalar


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (False, "false"), (0, "0"), (8, "8"), (0.5, "0.5"), (1e-05, "1e-05"), ("bf16", "bf16"), ("", "")],
)
def test_text_is_as_yaml_writes_it_and_in_tables_a_missing_value_is_a_word(value: object, text: str) -> None:
    assert yaml_text(value) == text
    assert table_text(value) == ("none" if value is None else text)
    assert table_text(value, missing="") == ("" if value is None else text)


@pytest.mark.parametrize("value", [None, True, False, 0, 8, 0.5, "bf16"])
def test_an_option_of_the_command_line_reads_back_what_was_written(value: object) -> None:
    assert scalar(yaml_text(value)) == value and type(scalar(yaml_text(value))) is type(value)
