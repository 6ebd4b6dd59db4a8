"""Scalars as text: as YAML writes them, and as people read them in a table."""

from __future__ import annotations


def yaml_text(value: object) -> str:
    """`null`, `true`, `false`; a number or a string as it is. What is read again: command lines, MLflow's parameters and tags."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def table_text(value: object, *, missing: str = "none") -> str:
    """As `yaml_text`, but None is the word `missing`: a value that nobody set reads as `none` below the name of its axis."""
    return missing if value is None else yaml_text(value)
