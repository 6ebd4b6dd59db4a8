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
    hub = weights is not None and not weights.startswith(("/", ".", "~"))
    if hub and not COMMIT.fullmatch(revision or ""):
        problem = f"{prefix}weights {weights!r} is a hub id: {prefix}revision must be its commit, 40 hex digits"
        raise ValueError(f"{problem} (a path starts with / or .)")
    if not hub and revision is not None:
        raise ValueError(f"{prefix}revision is only for {prefix}weights that are a hub id")


def is_config_alone(weights: str) -> bool:
    """Whether it is a local folder with a config.json and no file of weights."""
    folder = Path(weights)
    return (folder / "config.json").is_file() and not any(True for pattern in _OF_WEIGHTS for _ in folder.glob(pattern))


def from_pretrained(kind: Any, weights: str, revision: str | None, attention: str) -> Any:
    """A model of the transformers class `kind` in fp32. Reads safetensors only and never runs code that a checkpoint brings.

    Raises DataError where there are none that can be read.
    """
    try:
        model = kind.from_pretrained(
            weights,
            revision=revision or "main",
            local_files_only=Path(weights).is_dir(),
            use_safetensors=True,  # never unpickle a checkpoint
            trust_remote_code=False,
            attn_implementation=attention,
        )
    except OSError as error:
        raise DataError(f"weights {weights}: {error}; safetensors are read, as save_pretrained writes them, and no other format") from error
    return model.float()  # transformers 5 keeps a checkpoint's own type
