"""A process's command line as the record has it, which is published: file names, and no folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

# scheme://host is no path, sqlite:////folder/name and --log=/folder/name end in one
_HOST_OR_PATH = re.compile(r"(\w+://[^/\s]+)|(?<![\w./~@-])/[^\s'\",:;=&?]*")


def shown(words: Sequence[str], most: int = 160) -> str:
    """The words, each absolute path in them by its last name; `most` characters of it."""
    return " ".join(_HOST_OR_PATH.sub(lambda found: found[1] or PurePosixPath(found[0]).name, word) for word in words)[:most]
