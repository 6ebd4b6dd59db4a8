"""docs/python.md: its examples give what it shows."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "python.md"
RUN = doctest.register_optionflag("RUN")  # an example that runs a sweep


def failures(*, running: bool) -> tuple[int, int]:
    """(examples that failed, examples run): those that run a sweep, with the import before them, or the others."""
    text = PAGE.read_text().replace("```", "")  # else the end of a block is part of what is expected
    whole = doctest.DocTestParser().get_doctest(text, {}, "python.md", str(PAGE), 0)
    whole.examples = [one for one in whole.examples if "import" in one.source or (RUN in one.options) is running]
    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(whole)
    return found.failed, found.attempted


def test_what_the_page_shows_is_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, attempted = failures(running=False)
    assert failed == 0 and attempted >= 12


@pytest.mark.integration
def test_the_suite_of_the_page_runs(monkeypatch: pytest.MonkeyPatch, prefect_server: str) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    monkeypatch.chdir(ROOT)
    assert failures(running=True) == (0, 3)
