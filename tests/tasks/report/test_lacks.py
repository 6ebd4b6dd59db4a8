"""What a page lacks: kept as data, and of early pages read from their README."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.config.errors import DamagedFile
from tasks.report.lacks import LACKS, Lack, lacks_of, write_lacks

SWEEP = "flava-20261125-142906-24ee"
YET = "not measured when this page was written"


def test_they_are_read_as_they_were_written_and_a_page_without_any_has_no_file(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A page\n")
    write_lacks(tmp_path, [])
    assert not (tmp_path / LACKS).exists() and lacks_of(tmp_path) == []
    lacks = [
        Lack(called="a", suite="s", profile="p", what=YET),
        Lack(called="b", sweep_id=SWEEP, what="fewer: *x*, \\y"),
        Lack(what="z"),
    ]
    write_lacks(tmp_path, lacks)
    assert lacks_of(tmp_path) == lacks
    path = tmp_path / LACKS
    path.write_text(path.read_text().replace('"z"', '"other"'))
    with pytest.raises(DamagedFile, match=f"{LACKS} was changed after it was written"):
        lacks_of(tmp_path)


@pytest.mark.parametrize(
    ("line", "lack"),
    [
        (
            "parity (bridgetower, profile every\\_setting): " + YET,
            Lack(called="parity", suite="bridgetower", profile="every_setting", what=YET),
        ),
        (
            "flava-fit: 1 cell not measured for want of time: 13b",
            Lack(called="flava-fit", what="1 cell not measured for want of time: 13b"),
        ),
        (f"a ({SWEEP}): fewer trials than planned: x (y)", Lack(called="a", sweep_id=SWEEP, what="fewer trials than planned: x (y)")),
        ("nothing else", Lack(what="nothing else")),
    ],
)
@pytest.mark.parametrize("heading", ["", ", or not as often as planned", ", or not as often as planned, by what the campaign calls them"])
def test_an_early_pages_readme_tells_them(tmp_path: Path, line: str, lack: Lack, heading: str) -> None:
    (tmp_path / "README.md").write_text(f"# A page\n\nText.\n\nNot measured{heading}:\n- {line}\n- {line}\n\n- **Device:** none: x\n")
    assert lacks_of(tmp_path) == [lack, lack]
    assert lack.sentence == line.replace("\\", "")


def test_what_tells_a_sweep_from_others_of_its_profile_is_told() -> None:
    """Else a page says that the very profile was not measured of which it has a sweep."""
    lack = Lack(called="a", suite="s", profile="p", chosen={"width": "64 and 256", "steps": "9"}, what=YET)
    assert lack.sentence == f"a (s, profile p with width 64 and 256 and steps 9): {YET}"


def test_a_reason_that_earlier_versions_assumed_is_not_told(tmp_path: Path) -> None:
    write_lacks(tmp_path, [Lack(called="a", what="not measured, there was no time for it")])
    assert lacks_of(tmp_path) == [Lack(called="a", what=YET)]


def test_a_file_of_a_later_version_is_not_read_as_one_of_today(tmp_path: Path) -> None:
    write_lacks(tmp_path, [Lack(what="z")])
    path = tmp_path / LACKS
    content = {**json.loads(path.read_text()), "schema_version": 2}
    del content["seal"]
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedFile, match="schema_version"):
        lacks_of(tmp_path)
