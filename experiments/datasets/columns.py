"""What a column of a data set may hold, by its Arrow type."""

from __future__ import annotations

from typing import Any, Literal

Holds = Literal["image", "text", "label"]  # what a workload wants of a column
WANTED: dict[Holds, str] = {
    "image": "encoded images: binary, or struct{bytes: binary, path}",
    "text": "text: string, or a list of strings",
    "label": "class numbers from 0: integer",
}


def holds(kind_of_column: Any, what: Holds) -> bool:
    """Whether a column of this Arrow type may hold images, text or class numbers."""
    from pyarrow import types

    if what == "label":
        return bool(types.is_integer(kind_of_column))
    if what == "text":
        several = types.is_list(kind_of_column) or types.is_large_list(kind_of_column)
        return is_string(kind_of_column.value_type if several else kind_of_column)
    if types.is_struct(kind_of_column):
        inside = kind_of_column.get_field_index("bytes")
        return inside >= 0 and _is_binary(kind_of_column.field(inside).type)
    return _is_binary(kind_of_column)


def is_string(kind_of_column: Any) -> bool:
    """Whether a column of this Arrow type holds one text a row."""
    from pyarrow import types

    plain = kind_of_column.value_type if types.is_dictionary(kind_of_column) else kind_of_column
    return bool(types.is_string(plain) or types.is_large_string(plain))


def _is_binary(kind_of_column: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind_of_column) or types.is_large_binary(kind_of_column))
