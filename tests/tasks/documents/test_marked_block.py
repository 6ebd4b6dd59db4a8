"""Blocks of a document that a command writes."""

from __future__ import annotations

import pytest

from tasks.documents.marked_block import BlockError, with_block

BEGIN, END = "<!-- table: from `x` -->", "<!-- /table -->"


def test_only_what_stands_in_the_block_is_replaced() -> None:
    text = f"before\n{BEGIN}\nold\n\nold\n{END}\nafter\n<!-- other: from `x` -->\nkept\n<!-- /other -->\n"
    new = with_block(text, "table", "x", "\nnew \\1\n\n", "README.md")
    assert new == f"before\n{BEGIN}\nnew \\1\n{END}\nafter\n<!-- other: from `x` -->\nkept\n<!-- /other -->\n"
    assert with_block(new, "table", "x", "new \\1", "README.md") == new


def test_an_empty_block_is_filled() -> None:
    assert with_block(f"{BEGIN}\n{END}", "table", "x", "new", "README.md") == f"{BEGIN}\nnew\n{END}"


@pytest.mark.parametrize(
    ("text", "count"),
    [("no block", 0), (f"{BEGIN}\nno end", 0), (f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n", 2), (f"in a line {BEGIN}\n{END}", 0)],
)
def test_a_document_without_the_one_block_is_refused_with_what_to_write(text: str, count: int) -> None:
    with pytest.raises(BlockError) as wrong:
        with_block(text, "table", "x", "new", "README.md")
    assert str(wrong.value) == f"README.md: block table is there {count} times; write it once, from a line `{BEGIN}` to a line `{END}`"
