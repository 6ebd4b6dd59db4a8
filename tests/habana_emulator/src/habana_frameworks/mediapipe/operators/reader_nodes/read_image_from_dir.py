"""The largest file sets the size of the decoder's buffers."""

from pathlib import Path
from typing import Any


def get_max_file(files: Any, file_sizes: Any = None) -> Any:
    """Raises OSError unless these are files on disk, which is what makes a pipe over Parquet bytes impossible."""
    return max(files, key=lambda path: Path(path).stat().st_size)
