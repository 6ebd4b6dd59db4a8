"""`sweep publish --again`: the texts of a page anew, from made-up sweeps. Nothing here is a measurement."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.trial_layout import KNOWN_SPREAD, PLAN
from experiments.config.paths import runs_root
from flows.cli.commands import app
from tasks.analysis.results import ResultsError
from tasks.report.lacks import LACKS, Lack, lacks_of
from tasks.report.manifest import MANIFEST, check_published, files_below
from tasks.report.page_folder import PublishError, new_page
from tasks.report.publish import publish, publish_again, write_page
from tasks.report.republish import republish
from tests.figure_support import drawn_anew
from tests.tasks.fake_sweep import Fake, whole_sweep

FIRST, SECOND = "made-up-20260102-000000-0000", "made-up-20260101-000000-0000"  # in the page's order
MISSING = [Lack(called="a_b", suite="s", profile="`p`", what="had no time: x (y)"), Lack(what="nor *c*")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two sweeps, which are not there any more; made once."""
    folder = tmp_path_factory.mktemp("written")
    fakes = [Fake({"pool": "cpu", "model": "base", "dataloader_workers": count}, 100.0 + count, repeats=2) for count in (0, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPBENCH_RUNS", str(folder / "runs"))
        publish([whole_sweep(runs_root(), fakes, sweep_id=sweep_id) for sweep_id in (FIRST, SECOND)], folder / "page", MISSING)
        shutil.rmtree(runs_root())
    return folder / "page"


@pytest.fixture
def page(written: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(written, tmp_path / "page"))


def contents(page: Path) -> dict[str, str]:
    return {name: hashlib.sha256((page / name).read_bytes()).hexdigest() for name in [*files_below(page), MANIFEST]}


def outdated(page: Path, name: str) -> None:
    """An earlier version wrote something else there."""
    (page / name).write_text("as it was said before")
    manifest = json.loads((page / MANIFEST).read_text())
    manifest["files"][name] = hashlib.sha256((page / name).read_bytes()).hexdigest()
    (page / MANIFEST).write_text(json.dumps(manifest))


def test_a_page_of_todays_code_stays_as_it_is(page: Path) -> None:
    before = contents(page)
    with drawn_anew():
        assert republish(page) == page / "README.md"
    assert contents(page) == before and check_published(page) == []
    heading = "Not measured, or not as often as planned, by what the campaign calls them"
    text = (page / "README.md").read_text()
    assert f"\n{heading}:\n- a\\_b (s, profile \\`p\\`): had no time: x (y)\n- nor \\*c\\*\n" in text
    assert lacks_of(page) == MISSING
    (page / LACKS).unlink()
    for earlier in ("", ", by what the campaign calls them", ", or not as often as planned, by what the campaign calls them"):
        (page / "README.md").write_text(text.replace(earlier, "", 1) if earlier else text)
        assert lacks_of(page) == MISSING, "as earlier versions wrote it"


def test_texts_are_written_anew_and_what_was_measured_stays(page: Path) -> None:
    before = contents(page)
    outdated(page, f"{FIRST}/report.md")
    outdated(page, f"{SECOND}/figures/throughput.svg")
    done = CliRunner().invoke(app, ["publish", "--again", str(page)])
    assert done.exit_code == 0 and f"published anew: {page / 'README.md'}" in done.output
    assert contents(page) == before
    assert {path.name for path in page.parent.iterdir() if "page" in path.name} == {"page"}, "nothing temporary is left"


def test_a_sweep_that_a_later_one_replaced_leaves_the_page_with_what_it_lacked(page: Path, tmp_path: Path) -> None:
    kept = Lack(called="c", sweep_id=SECOND, what="fewer trials than planned")
    lacking = [Lack(called="b", sweep_id=FIRST, what="fewer trials than planned"), kept]
    with new_page(page) as temporary:
        write_page([publish_again(page / name, temporary / name) for name in (FIRST, SECOND)], lacking, temporary, page)
    before = contents(page)
    done = CliRunner().invoke(app, ["publish", "--again", str(page), "--without", FIRST])
    assert done.exit_code == 0 and check_published(page) == [] and lacks_of(page) == [kept]
    after = contents(page)
    assert not (page / FIRST).exists() and FIRST not in (page / "README.md").read_text()
    assert {name: text for name, text in after.items() if name.startswith(SECOND)} == {
        name: text for name, text in before.items() if name.startswith(SECOND)
    }


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--again", "{page}", "--without", "sweep-of-nobody"], 1, f"sweep-of-nobody not on the page; write one of {FIRST}, {SECOND}"),
        (["--again", "{page}", "--without", FIRST, "--without", SECOND], 1, "no sweep would be left; remove the folder instead"),
        (
            ["--check", "{page}", "--without", FIRST],
            1,
            "--without: says what leaves a page that is written anew; give it with --again FOLDER",
        ),
    ],
)
def test_what_cannot_leave_a_page_is_told_and_nothing_is_written(page: Path, words: list[str], status: int, said: str) -> None:
    before = contents(page)
    done = CliRunner().invoke(app, ["publish", *(word.format(page=page) for word in words)])
    assert done.exit_code == status and said in " ".join(done.output.split())
    assert contents(page) == before


@pytest.mark.parametrize("name", [PLAN, KNOWN_SPREAD, "report.md"])
def test_a_page_that_was_changed_is_refused_and_left_alone(page: Path, name: str) -> None:
    path = page / FIRST / name
    path.write_bytes(path.read_bytes() + b" ")
    before = contents(page)
    with pytest.raises(PublishError, match=rf"nothing was written:\n- .*{FIRST}/{name} was changed"):
        republish(page)
    assert contents(page) == before


def test_a_folder_that_is_no_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="was not written by `sweep publish`"):
        republish(tmp_path)
