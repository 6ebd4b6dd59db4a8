"""An error in one line of a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.error_text import first_line, why_not_written


@pytest.mark.parametrize(
    ("text", "line"),
    [("refused", "refused"), ("\n refused\nby peer", "refused"), ("one\r\ntwo", "one"), ("x" * 301, "x" * 300), ("", "OSError")],
)
def test_the_first_line_of_what_it_says(text: str, line: str) -> None:
    assert first_line(OSError(text)) == line


def test_what_says_nothing_is_its_type_or_as_the_message_wants_it() -> None:
    assert first_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert first_line(OSError(" \n"), empty="no message") == "no message"
    assert first_line(OSError("text"), empty="no message") == "text"


def test_what_stands_in_the_way_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "a" / "b"):
        assert why_not_written(path, NotADirectoryError(20, "Not a directory")) == f"{tmp_path}/file is no folder"
    assert why_not_written(tmp_path / "file", PermissionError(13, "Permission denied")) == "Permission denied"
    assert why_not_written(tmp_path / "no" / "such", OSError("odd")) == "odd"
