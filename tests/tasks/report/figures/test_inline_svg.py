"""Figures on the page: smaller than their files, and the same to look at."""

from __future__ import annotations

from pathlib import Path

from tasks.report.figures.inline_svg import inline_svg

FIGURE = """<?xml version="1.0"?>
<svg width="619.2pt" viewBox="0 0 619.2 331.2">
 <metadata>made by hand</metadata>
 <g id="lines">
  <path d="M 1.2345 2
L 3 4.5678
L 5 6
" clip-path="url(#p1)" style="fill: none; stroke: #14181f; stroke-opacity: 0.25"/>
 </g>
 <path d="M 0 3
C 0.8 3 1.55 2.68 2.12 2.12
L 3 0
z
" style="opacity: 0.15"/>
 <defs><clipPath id="p1"><rect x="10.25" y="7.2" width="4.04" height="1"/></clipPath></defs>
</svg>
"""


def made(tmp_path: Path) -> str:
    path = tmp_path / "figure.svg"
    path.write_text(FIGURE)
    return inline_svg(path, "A & B", "f1")


def test_coordinates_are_rounded_and_how_it_looks_is_not(tmp_path: Path) -> None:
    svg = made(tmp_path)
    assert 'd="M 1.2 2 3 4.5 5 6 "' in svg and 'x="10.2" y="7.2" width="4.0"' in svg
    assert "stroke-opacity: 0.25" in svg and "opacity: 0.15" in svg and "metadata" not in svg


def test_a_line_behind_a_curve_stays_a_line(tmp_path: Path) -> None:
    assert 'd="M 0 3 C 0.8 3 1.5 2.6 2.1 2.1 L 3 0 z "' in made(tmp_path)


def test_ids_that_are_used_are_the_figures_own_and_it_has_a_name_and_the_pages_ink(tmp_path: Path) -> None:
    svg = made(tmp_path)
    assert 'clip-path="url(#f1i0)"' in svg and '<clipPath id="f1i0">' in svg and "lines" not in svg
    assert svg.startswith('<svg role="img" aria-label="A &amp; B" ') and "stroke: currentColor" in svg
