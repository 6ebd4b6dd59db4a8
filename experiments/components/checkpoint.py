"""Pretrained weights: a folder made by save_pretrained, or a model of the Hugging Face hub at a pinned commit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from experiments.components.workload import DataError

COMMIT = re.compile(r"[0-9a-f]{40}")
_OF_WEIGHTS = ("*.safetensors*", "*.bin*", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.gguf")  # files, and the indexes of several


def check_pinned(weights: str | None, revision: str | None, prefix: str = "") -> None:
    """Raises ValueError unless a hub id has a commit as its revision, and nothing else has one.

    `prefix`: what the parameters' names `weights` and `revision` begin with.
    """
    hub = weights is not None and not is_path(weights)
    if hub and not COMMIT.fullmatch(revision or ""):
        problem = f"{prefix}weights {weights!r} is a hub id: {prefix}revision must be its commit, 40 hex digits"
        raise ValueError(f"{problem} (a path starts with / or .)")
    if not hub and revision is not None:
        raise ValueError(f"{prefix}revision is only for {prefix}weights that are a hub id")


def is_path(weights: str) -> bool:
    """Whether it names a folder; else it is a hub id, whatever lies below the working directory."""
    return weights.startswith(("/", ".", "~"))


def place_of(weights: str) -> str:
    """What transformers is given: a hub id as it is, and a folder's path, with ~ for the home folder."""
    return str(Path(weights).expanduser()) if is_path(weights) else weights


def is_config_alone(weights: str) -> bool:
    """Whether it is a folder with a config.json and no file of weights."""
    folder = Path(place_of(weights))
    there = is_path(weights) and (folder / "config.json").is_file()
    return there and not any(True for pattern in _OF_WEIGHTS for _ in folder.glob(pattern))


def from_pretrained(kind: Any, weights: str, revision: str | None, attention: str) -> Any:
    """A model of the transformers class `kind` in fp32. Reads safetensors only and never runs code that a checkpoint brings.

    Raises DataError where there are none that can be read.
    """
    from safetensors import SafetensorError

    place = place_of(weights)
    try:
        model = kind.from_pretrained(
            place,
            revision=revision or "main",
            local_files_only=is_path(weights),
            use_safetensors=True,  # never unpickle a checkpoint
            trust_remote_code=False,
            attn_implementation=attention,
        )
    except (OSError, SafetensorError) as error:
        lacking = is_path(weights) and not any(Path(place).glob("*.safetensors*"))
        hint = "; safetensors are read, as save_pretrained writes them, and no other format" if lacking else ""
        raise DataError(f"weights {weights}: {error}{hint}") from error
    return model.float()  # transformers 5 keeps a checkpoint's own type
