"""Sentences of a report: a command in backquotes is code in Markdown and in HTML, and nothing of a trial becomes markup."""

from __future__ import annotations

import pytest

from tasks.report import html, markdown


@pytest.mark.parametrize(
    ("text", "in_markdown", "in_html"),
    [
        ("x_y: `--set a_b=2` *cuts*", "x\\_y: `--set a_b=2` \\*cuts\\*", "x_y: <code>--set a_b=2</code> *cuts*"),
        ("a ` alone, `<b>`", "a \\` alone, `<b>`", "a ` alone, <code>&lt;b&gt;</code>"),
        ("<b> `<i>", "\\<b\\> \\`\\<i\\>", "&lt;b&gt; `&lt;i&gt;"),
    ],
)
def test_a_sentence(text: str, in_markdown: str, in_html: str) -> None:
    assert markdown.prose(text) == in_markdown
    assert html.prose(text) == in_html


def test_without_backquotes_it_is_as_plain_text() -> None:
    assert markdown.prose("a_b\n<c>") == markdown.md("a_b\n<c>") == "a\\_b \\<c\\>"
