"""Figures of equal cells are drawn once in a process of tests: several hundred pages hold the same made-up sweeps."""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Draw = Callable[..., list[tuple[str, Path]]]


class DrawnOnce:
    """Draws as `draw` does, and writes the same files again where all that it is given is equal to what an earlier call was given.

    What is remembered goes only into a folder without other files, as `draw` removes old ones.
    """

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._drawn: dict[bytes, list[tuple[str, dict[str, bytes]]]] = {}  # of each figure its title and files, the SVG first

    def __call__(self, cells: Sequence[Any], folder: Path, watermark: str | None = None, **more: Any) -> list[tuple[str, Path]]:
        given = hashlib.sha256(pickle.dumps((cells, watermark, more))).digest()  # before it is drawn: cells keep what they derive
        if given not in self._drawn:
            made = self._draw(cells, folder, watermark, **more)
            self._drawn[given] = [
                (title, {name.name: name.read_bytes() for name in (path, path.with_suffix(".png"))}) for title, path in made
            ]
            return made
        figures = self._drawn[given]
        names = {name for _, files in figures for name in files}
        if folder.exists() and any(path.name not in names for path in folder.iterdir()):
            return self._draw(cells, folder, watermark, **more)
        folder.mkdir(parents=True, exist_ok=True)
        for _, files in figures:
            for name, content in files.items():
                (folder / name).write_bytes(content)
        return [(title, folder / next(iter(files))) for title, files in figures]


@pytest.fixture(autouse=True, scope="session")
def figures_are_drawn_once() -> Iterator[None]:
    """Drawing them was four fifths of what writing a page takes."""
    write = sys.modules.get("tasks.report.write")  # imported by the tests that use it
    with pytest.MonkeyPatch.context() as patch:
        if write is not None:
            patch.setattr(write, "draw_figures", DrawnOnce(write.draw_figures))
        yield


@contextmanager
def drawn_anew() -> Iterator[None]:
    """Within it each figure is drawn, for a test that compares what two drawings made."""
    from tasks.report.figures.draw import draw_figures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.report.write.draw_figures", draw_figures)
        yield
