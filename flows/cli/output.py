"""Files that a command writes where the person says: what is wrong with a place is said of the option that named it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.config.error_text import why_not_written
from experiments.config.errors import ConfigError


@contextmanager
def written_to(option: str, path: Path, kind: str = "file") -> Iterator[None]:
    """What the block cannot write at `path`, which `option` named, is a ConfigError. `kind`: file or folder, for what would be right."""
    try:
        yield
    except OSError as error:
        raise _not_written(option, path, kind, error) from error


def check_file(option: str, path: Path) -> None:
    """Raise ConfigError where a file could not be written at `path` once a long run is over."""
    if path.is_dir():
        raise ConfigError.one(option, None, str(path), "is a folder", "name a file")
    if not path.absolute().parent.exists():
        raise ConfigError.one(option, None, str(path), f"there is no folder {path.absolute().parent}", "make it, or name another file")
    with written_to(option, path), tempfile.TemporaryFile(dir=path.absolute().parent):
        pass


def _not_written(option: str, path: Path, kind: str, error: OSError) -> ConfigError:
    hint = f"name a {kind} where you may write"
    return ConfigError.one(option, None, str(path), f"cannot be written ({why_not_written(path.absolute(), error)})", hint)
