"""Section: certificates of the sweep's devices, and what an A/A sweep's own pairs show."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster.trial_layout import AA_CERTIFICATES
from experiments.json_file import seal_of
from experiments.stats.coverage import Share
from experiments.trial import Outcome
from tasks.analysis.aa import AaResult, GroupShares
from tasks.analysis.results import Sweep
from tasks.report.html import render_html
from tasks.report.markdown import render_markdown
from tasks.report.model import make_report
from tasks.report.section import Bullets
from tasks.report.sections.certificates import coverage_table, remarks
from tasks.report.write import write_report
from tests.tasks.aa_support import DEVICE, SETTINGS, aa_sweep, noise, pair_rows
from tests.tasks.cell_support import report_of, row, workers
from tests.tasks.fake_sweep import Fake, make_sweep


def test_every_report_of_trials_that_measured_says_what_is_known_of_their_device() -> None:
    report = report_of([row(workers(0), environment={"device_name": DEVICE}), row(workers(1, "b"))])
    assert report.section("aa").block(Bullets).lines == [
        f"No A/A pairs of {name} were known where the sweep ran, nor how often its intervals are right; `{command}` measures it."
        for name, command in ((DEVICE, "sweep aa made_up --pool cpu"), ("cpu", "sweep aa made_up --pool b"))
    ]
    sentence = "nor how often its intervals are right"
    assert render_markdown(report).count(sentence) == 2 and render_html(report).count(sentence) == 2


def test_where_nothing_measured_nothing_is_said() -> None:
    assert "aa" not in report_of([row(workers(0), None, outcome=Outcome.CRASHED)]).section_names
    emulated = [row(workers(0), emulated=True)]
    assert "aa" not in report_of(emulated).section_names
    assert "aa" not in report_of(emulated, emulated=True).section_names


def test_an_aa_sweep_has_a_table_by_the_size_of_groups_and_nobody_wins() -> None:
    report = make_report(aa_sweep(pair_rows(*noise(30))))
    section = report.section("aa")
    assert [line[0] for line in section.table.rows][1:] == ["2 pairs", "3 pairs", "5 pairs"]
    assert [line[1] for line in section.table.rows] == ["30", "15", "10", "6"]
    first, second = (block.lines for block in section.blocks if isinstance(block, Bullets))
    assert first[0].startswith(f"30 A/A pairs (made_up) on {DEVICE}: intervals of three repeats covered ")
    assert second[0] == "30 pairs, in turns A B B A; shares with exact 95 % intervals."
    assert report.title == "made_up · full · A/A"
    said = "An A/A sweep: both cells are the same, so none can win; all 30 pairs count."
    assert (report.answers, report.winners, report.headline) == ([], [], said)
    assert "| 3 pairs | 10 | " in render_markdown(report) and "30 A/A pairs (made_up) on" in render_html(report)


def result(**fields: Any) -> AaResult:
    groups = [GroupShares(2, Share(hits=95, of=100), Share(hits=1, of=100)), GroupShares(3, Share(), Share())]
    whole: dict[str, Any] = {
        "pairs": 200, "left_out": {}, "single": Share(hits=190, of=200), "groups": groups, "steps": Share(), "times_apart": None,
        "comparisons": [], "with_disturbed": None,
    }  # fmt: skip
    return AaResult(**{**whole, **fields})


def test_shares_with_their_exact_intervals() -> None:
    assert coverage_table(result()).rows == [
        ["1 pair, the spread between trials known from the others", "200", "95.0 % (91.0–97.6)", "–"],
        ["2 pairs", "100", "95.0 % (88.7–98.4)", "1: 1.0 % (0.0–5.4)"],
        ["3 pairs", "0", "–", "–"],
    ]


def test_what_was_left_out_and_how_far_steps_are_from_the_truth() -> None:
    lines = remarks(result(left_out={"disturbed": 3, "interrupted": 1}, times_apart=3.14, steps=Share(hits=90, of=200)))
    assert lines[1:] == [
        "3 pairs left out: disturbed.",
        "1 pair left out: interrupted.",
        "Trials lie 3.1 times as far apart as the steps within them suggest: "
        "an interval of steps alone would have covered 45.0 % (38.0–52.2).",
    ]
    lines = remarks(result(pairs=0, left_out={"disturbed": 4}, with_disturbed=Share(hits=3, of=4)))
    assert lines[2:] == [
        "With the disturbed pairs among them, the interval of one pair covered 75.0 % (19.4–99.4).",
        "No pair counts, so there is no certificate.",
    ]
    assert remarks(result(with_disturbed=Share())) == remarks(result())
    assert remarks(result()) == ["200 pairs, in turns A B B A; shares with exact 95 % intervals."]


# --- written reports


def aa_on_disk(root: Path, name: str, pairs: int) -> Path:
    """An A/A sweep with files."""
    fakes = [Fake({"pool": "gpu", "twin": twin}, repeats=pairs, between=0.02) for twin in "AB"]
    folder = make_sweep(root, fakes, sweep_id=name, suite=SETTINGS)
    plan = folder / "plan.json"
    content = {**json.loads(plan.read_text()), "aa": {"pairs": 9, "minutes": None}}
    plan.write_text(json.dumps({**content, "seal": seal_of(content)}))
    for path in folder.glob("trials/*/result.json"):  # as if a sampler had been beside them
        path.write_text(path.read_text().replace('"summary":{}', '"summary":{"state_coverage":1.0}'))
    return folder


def test_reports_write_certificates_and_later_sweeps_show_them(tmp_path: Path) -> None:
    paths = write_report(aa_on_disk(tmp_path, "aa-20260101-000000-0000", 4))
    assert [path.name for path in (tmp_path / AA_CERTIFICATES).iterdir()] == ["aa-20260101-000000-0000.json"]
    line = " on Made-up CPU: too few to test intervals of three repeats; single pairs, "
    assert f"4 A/A pairs (made\\_up){line}" in paths.markdown.read_text() and f"4 A/A pairs (made_up){line}" in paths.html.read_text()
    assert "aa-pairs.svg" in [path.name for path in paths.figures]
    assert not (tmp_path / "aa-20260101-000000-0000" / "certificates.json").exists()

    mine = make_sweep(tmp_path, [Fake({"pool": "gpu", "model": "a", "dataloader_workers": 0})])
    assert f"4 A/A pairs (made\\_up){line}" in write_report(mine).markdown.read_text()
    write_report(aa_on_disk(tmp_path, "aa-20260102-000000-0000", 5))
    assert f"4 A/A pairs (made\\_up){line}" in write_report(mine).markdown.read_text(), "as it was when the sweep had ended"
    other = make_sweep(tmp_path, [Fake({"pool": "gpu", "model": "b", "dataloader_workers": 0})], sweep_id="other-20260103-000000-0000")
    assert f"9 A/A pairs (made\\_up){line}" in write_report(other).markdown.read_text()


def test_an_aa_sweep_without_a_pair_says_nothing() -> None:
    sweep = aa_sweep(pair_rows(*noise(2)))
    half = Sweep(sweep.dir, sweep.plan, [sweep.rows[0], replace(sweep.rows[1], result=None)])
    assert "aa" not in make_report(half).section_names
