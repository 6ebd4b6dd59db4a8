"""The folder of a results page: what a killed command left beside it, and two commands of one page. Nothing here is a measurement."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tasks.report.manifest import check_published
from tasks.report.page_folder import PublishError, clear_leftovers, new_page
from tasks.report.publish import publish
from tasks.report.republish import republish
from tests.tasks.fake_sweep import SWEEP_ID
from tests.tasks.report.publish_support import whole


@pytest.mark.parametrize("at", ["writing", "moved away", "replaced"])
def test_what_a_killed_command_left_beside_the_page_is_cleared_and_the_page_is_still_there(tmp_path: Path, at: str) -> None:
    store, beside = whole(), tmp_path / "pages"
    page, other = beside / "page", beside / ".page.b.0123abcd.tmp"
    publish([store], page)
    other.mkdir()  # another page's
    before = (page / "manifest.json").read_bytes()
    if at == "moved away":
        page.rename(beside / ".page.0123abcd.old")
    if at == "replaced":
        (beside / ".page.0123abcd.old" / "earlier").mkdir(parents=True)
    (beside / ".page.0123abcd.tmp" / SWEEP_ID).mkdir(parents=True)
    clear_leftovers(page)
    assert {path.name for path in beside.iterdir()} == {"page", other.name}
    assert (page / "manifest.json").read_bytes() == before
    for again in (lambda: publish([store], page), lambda: republish(page)):
        (beside / ".page.0123abcd.tmp").mkdir()
        again()
        assert {path.name for path in beside.iterdir()} == {"page", other.name} and check_published(page) == []


def test_a_page_that_another_command_writes_is_left_to_it(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    publish([store], page)
    for again in (lambda: publish([store], page), lambda: republish(page)):
        with pytest.raises(RuntimeError, match="stops"), new_page(page) as temporary:
            with pytest.raises(PublishError, match=f"nothing was written: another command writes {page} now; wait until it has ended"):
                again()
            assert temporary.is_dir() and check_published(page) == []
            raise RuntimeError("stops")
        assert [path.name for path in tmp_path.iterdir() if "page" in path.name] == ["page"] and check_published(page) == []


def test_no_command_removes_the_folder_of_a_page_that_another_has_made_and_not_locked_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a leftover between mkdir and flock, and the page was lost when it was to be put in its place."""
    page, flock = tmp_path / "pages" / "page", fcntl.flock
    met: list[str] = []

    def after_mkdir(descriptor: int, operation: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        met.append(name)
        if name.endswith(".tmp"):
            with monkeypatch.context() as other, pytest.raises(BlockingIOError):  # it would wait for this one
                other.setattr(fcntl, "flock", lambda descriptor, operation: flock(descriptor, operation | fcntl.LOCK_NB))
                clear_leftovers(page)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", after_mkdir)
    with new_page(page) as temporary:
        (temporary / "README.md").write_text("whole")
    assert met == ["pages", temporary.name]
    assert [path.name for path in page.parent.iterdir()] == ["page"] and (page / "README.md").read_text() == "whole"


def test_of_two_commands_that_both_found_nothing_beside_the_page_one_writes_it(tmp_path: Path) -> None:
    page = tmp_path / "pages" / "page"
    clear_leftovers(page)  # the second one's, before the first begins
    with new_page(page) as first:
        with pytest.raises(PublishError, match=f"nothing was written: another command writes {page} now"), new_page(page):
            raise AssertionError("it writes too")
        (first / "README.md").write_text("the first one's")
    assert [path.name for path in page.parent.iterdir()] == ["page"] and (page / "README.md").read_text() == "the first one's"
