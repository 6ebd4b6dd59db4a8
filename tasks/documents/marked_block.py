"""Blocks of a document that a command writes: between `<!-- NAME: from `COMMAND` -->` and `<!-- /NAME -->`, each on a line of its own."""

from __future__ import annotations

import re

from experiments.config.errors import UserError


class BlockError(UserError):
    """A document does not have a block just once. The message names the document, the block and what would be right."""


def with_block(text: str, name: str, command: str, content: str, document: str) -> str:
    """`text` with `content` in its block `name`, whatever stood there; `document` names it in errors. Raises BlockError."""
    begin, end = f"<!-- {name}: from `{command}` -->", f"<!-- /{name} -->"
    block = re.compile(rf"^{re.escape(begin)}\n.*?^{re.escape(end)}$", re.MULTILINE | re.DOTALL)
    count = len(block.findall(text))
    if count != 1:
        raise BlockError(f"{document}: block {name} is there {count} times; write it once, from a line `{begin}` to a line `{end}`")
    return block.sub(lambda _: f"{begin}\n{content.strip()}\n{end}", text)
