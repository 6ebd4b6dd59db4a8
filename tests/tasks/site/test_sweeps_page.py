"""The list of sweeps and certificates: what is no night, newest first, with links to the reports that the site has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.atomic_file import atomic_write
from tasks.analysis.certificates import certificate_file
from tasks.imports.pages import write_pages
from tasks.imports.store import import_files
from tasks.site.sweeps_page import known_sweeps
from tasks.site.write import write_site
from tasks.sweep.store import SweepStore
from tests.tasks.imports.others import mlperf, optimum, written
from tests.tasks.plan_support import make_plan, make_trial
from tests.tasks.report.test_certificate_text import known
from tests.tasks.site.site_support import NOW, save

OLD, NEW = "made_up-20260101-000000-0000", "made_up-20260202-000000-0000"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    for sweep_id in (OLD, NEW, "nightly-made-up-20261001-020000-0000", "nightly-mine-20261001-020000-0000"):
        plan = make_plan([make_trial(1, sweep_id=sweep_id)], git={"commit": "c" * 40})
        SweepStore(sweep_id).save_plan(plan)
    SweepStore(OLD).save_status(0, f"{OLD}: every trial ended as expected")
    (SweepStore(NEW).dir / "report.html").write_text("new")
    save(tmp_path / "runs", 1)  # of nightly made-up; `nightly-mine` is a suite
    return tmp_path / "runs"


def test_sweeps_of_nights_are_left_out_and_a_damaged_one_is_named(runs: Path) -> None:
    found, problems = known_sweeps(runs)
    assert [sweep.plan.sweep_id for sweep in found] == ["nightly-mine-20261001-020000-0000", NEW, OLD] and problems == []
    assert [sweep.ended for sweep in found][1:] == ["runs, or was interrupted", f"{OLD}: every trial ended as expected"]
    (SweepStore(OLD).dir / "plan.json").write_text("{")
    found, problems = known_sweeps(runs)
    assert len(found) == 2 and len(problems) == 1 and f"{OLD}/plan.json" in problems[0]


def test_the_page_links_to_the_reports_there_are_and_shows_certificates(runs: Path, tmp_path: Path) -> None:
    certificate = known(sweeps=[NEW, "gone"]).certificate
    assert certificate is not None
    path = certificate_file(SweepStore(NEW).dir)
    path.parent.mkdir()
    atomic_write(path, certificate.model_dump_json())
    atomic_write(path.with_name("broken.json"), "{")
    made = write_site(tmp_path / "site", now=NOW)
    page = (tmp_path / "site" / "sweeps.html").read_text()
    assert (tmp_path / "site" / "reports" / f"{NEW}.html").read_text() == "new" and made.files == 5
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r'<tr><th scope="row">.*?</tr>', page)]
    assert page.count(f'<a href="reports/{NEW}.html">{NEW}</a>') == 2, "in the list, and beside the certificate"
    assert "NVIDIA H200" in rows[0] and "68 of 71 (88.1–99.1 %)" in rows[0] and "0 of 71" in rows[0] and "gone" in rows[0]
    assert [row.strip("|").partition("|")[0] for row in rows[1:]] == ["nightly-mine-20261001-020000-0000", NEW, OLD]
    assert "|every trial ended as expected|" in rows[3] and "cccccccccc" in rows[3]
    assert "broken.json is damaged and left out" in page


def test_what_others_measured_is_a_list_of_its_own_and_a_damaged_import_is_named(runs: Path, tmp_path: Path) -> None:
    shown, damaged = (import_files([written(tmp_path, *file)]) for file in (("a.txt", mlperf()), ("benchmark.json", optimum())))
    write_pages(shown, SweepStore(shown.sweep_id).dir)
    (SweepStore(damaged.sweep_id).dir / "imported.json").write_text("{")
    made = write_site(tmp_path / "site", now=NOW)
    page = (tmp_path / "site" / "sweeps.html").read_text()
    [row] = re.findall(rf'<tr><th scope="row"><a href="reports/{shown.sweep_id}.html">.*?</tr>', page)
    assert "1 result of MLPerf logs, measured by others" in row and "Measured by others. Nothing here" in page
    assert (tmp_path / "site" / "reports" / f"{shown.sweep_id}.html").is_file()
    assert [damaged.sweep_id in text for text in made.left_out] == [True] and f"{damaged.sweep_id}/imported.json" in page
