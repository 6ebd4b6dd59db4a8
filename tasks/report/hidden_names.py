"""Names that a page or an export must not tell, such as a host's or a home folder's."""

from __future__ import annotations

import re
from collections.abc import Mapping


def hidden(text: str, names: Mapping[str, str]) -> str:
    """The text with what stands in the place of each of these names, which are no parts of longer ones."""
    for name, instead in names.items():
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", instead.replace("\\", r"\\"), text)
    return text
