"""The command line's application and groups: typer's, whose completions have help that fits beside them.

fish and PowerShell print an item's help as it comes; one longer than the terminal breaks the list.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

HELP_WIDTH = 50  # characters, beside the longest parameter in a terminal of 80

_SENTENCE = re.compile(r"(?<=\w\w[\w)])[.;](?=\s)")  # not the stop of `e.g.`
_Function = TypeVar("_Function", bound=Callable[..., Any])


def short_help(text: str) -> str:
    """The first sentence, or what stands before its semicolon, cut after a word where it is longer than HELP_WIDTH."""
    return textwrap.shorten(_SENTENCE.split(text, maxsplit=1)[0].removesuffix("."), HELP_WIDTH, placeholder=" …")


def _shortened(items: list[Any]) -> list[Any]:
    for item in items:  # typer's copy of click's CompletionItem, which cannot be named
        if item.help:
            item.help = short_help(item.help)
    return items


class _Command(TyperCommand):
    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return _shortened(super().shell_complete(ctx, incomplete))


class _Group(TyperGroup):
    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return _shortened(super().shell_complete(ctx, incomplete))


class Application(typer.Typer):
    """A group of commands whose completions have short help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[_Function], _Function]:
        """As typer's."""
        return super().command(name, cls=_Command, **settings)
