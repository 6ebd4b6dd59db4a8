"""Functions that torch.compile takes as one operation each, forward and backward, whose parts are compiled all the same.

Its own tracing of autograd functions ended in an AssertionError at some widths (torch 2.11, SwitchBack at 2048). What it takes whole it
finds in its cache again only where it is told what the code was: else every process traces the backward pass of every kind of layer anew,
which took 10 to 19 s of a trial (docs/results/bridgetower-fast-h100-x1).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Function = Callable[..., torch.Tensor]
_FUNCTIONS: list[Function] = []


def code_of(folder: Path) -> str:
    """A hash of every file of Python in a folder: what is marked calls functions of others."""
    files = sorted(folder.glob("*.py"))
    return hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


CODE = code_of(Path(__file__).parent)  # once, on import: a process forked later runs what was imported then, not what lies there by now


def whole(function: Function) -> Function:
    """Mark a function of a module, whose first argument is a tensor, to be taken whole. Autocast is off within."""

    @functools.wraps(function)
    def without_autocast(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return function(x, *rest)

    _FUNCTIONS.append(without_autocast)
    return without_autocast


def take_whole() -> None:
    """Let torch.compile take all that is marked so, and keep the compiled graphs for as long as no file of this folder changes."""
    import torch._inductor.config as inductor

    for function in _FUNCTIONS:
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
    names = {f"{function.__module__}.{function.__name__}": CODE for function in _FUNCTIONS}
    # set anew, not added to: torch hashes its settings again only where one was set
    inductor.unsafe_marked_cacheable_functions = {**inductor.unsafe_marked_cacheable_functions, **names}
