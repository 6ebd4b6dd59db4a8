"""The folder: what is refused, what is replaced, what is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from filelock import FileLock

from experiments.config.errors import ConfigError
from tasks.site.folder import RECORD, SiteError, site_folder


def make(folder: Path, pages: dict[str, str]) -> int:
    with site_folder(folder) as site:
        for name, text in pages.items():
            site.write(name, text)
        return site.finish()


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")}


def test_a_site_replaces_an_earlier_one_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "site"
    assert make(folder, {"index.html": "1", "cells/old.html": "2"}) == 2
    assert files(folder) == {"index.html", "cells/old.html", RECORD}
    assert make(folder, {"index.html": "1", "cells/new.html": "2"}) == 2
    assert files(folder) == {"index.html", "cells/new.html", RECORD}


def test_a_file_of_the_same_content_keeps_its_time(tmp_path: Path) -> None:
    source = tmp_path / "report.html"
    source.write_text("r")
    times = []
    for text in ("1", "1", "2"):
        with site_folder(tmp_path / "site") as site:
            site.write("index.html", text)
            site.copy(source, "reports/r.html")
            site.finish()
        times.append([(tmp_path / "site" / name).stat().st_ino for name in ("index.html", "reports/r.html")])
    assert times[0] == times[1] and times[2][0] != times[1][0] and times[2][1] == times[1][1]
    assert (tmp_path / "site/reports/r.html").read_text() == "r"


def test_a_folder_with_other_things_and_a_file_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"--out: .*mine: holds other things \(notes.txt\); name an empty folder, or one to be made"):
        make(tmp_path / "mine", {"index.html": ""})
    with pytest.raises(ConfigError, match=r"--out: .*is a file; name a folder"):
        make(tmp_path / "mine" / "notes.txt", {"index.html": ""})
    with pytest.raises(SiteError, match="cannot be written"):
        make(tmp_path / "mine" / "notes.txt" / "site", {"index.html": ""})
    assert files(tmp_path / "mine") == {"notes.txt"}
    (tmp_path / "empty").mkdir()
    assert make(tmp_path / "empty", {"index.html": ""}) == 1


def test_a_record_that_names_files_elsewhere_removes_none_of_them(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    make(tmp_path / "site", {"index.html": ""})
    (tmp_path / "site" / RECORD).write_text(json.dumps({"files": ["../precious", "index.html", 7]}))
    make(tmp_path / "site", {"other.html": ""})
    assert (tmp_path / "precious").read_text() == "mine" and not (tmp_path / "site" / "index.html").exists()


def test_two_processes_do_not_write_one_site_at_once(tmp_path: Path) -> None:
    make(tmp_path, {"index.html": ""})
    with FileLock(tmp_path / ".site.lock"), pytest.raises(SiteError, match="another `sweep site` writes there"):
        make(tmp_path, {"index.html": ""})


def test_an_error_leaves_the_earlier_site(tmp_path: Path) -> None:
    make(tmp_path, {"index.html": "1", "cells/a.html": "2"})
    with pytest.raises(ValueError, match="made up"), site_folder(tmp_path) as site:
        site.write("index.html", "3")
        raise ValueError("made up")
    assert files(tmp_path) == {"index.html", "cells/a.html", RECORD}
    with site_folder(tmp_path) as site:
        site.write("index.html", "4")
        site.finish()
    assert files(tmp_path) == {"index.html", RECORD}
