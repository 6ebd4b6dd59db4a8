"""The one list of sections: Markdown and HTML show the same sections, in its order."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.report.cautions import CautionGroup
from tasks.report.comparison_table import ComparisonTable, TextTable
from tasks.report.html import render_html
from tasks.report.markdown import render_markdown
from tasks.report.model import Report, report_of
from tasks.report.section import Bullets, Facts, Figures, Section, TrialLine, TrialTable, table_section
from tasks.report.sections import order
from tests.tasks.cell_support import repeats, row, settings, source_of, workers
from tests.tasks.cell_support import report_of as report_of_rows

EVIL = "<script>alert('x')</script>|`$*_[a](b)`\\1"


def rich() -> Report:
    """A report with something of nearly every section that needs no files."""
    facts = {"torch": "2.13", "host": "a"}
    same: Any = {"parameters": {"steps": 10}}
    rows = [
        *repeats(workers(0, "a"), 100.0, environment=facts, notes=["a note"], **same, summary={"eval_loss_after": 2.0}),
        *repeats(workers(1, "a"), 150.0, environment={**facts, "host": "b"}, **same),
        *repeats(workers(0, "b"), 10.0, environment=facts, **same),
        *repeats(workers(1, "b"), 10.0, environment=facts, **same),
        row(workers(2, "a"), None, outcome=None, **same),
    ]
    return report_of_rows(rows)


def titles(text: str, heading: str) -> list[str]:
    return re.findall(heading, text, flags=re.M)


def test_markdown_and_page_show_the_sections_in_the_lists_order() -> None:
    report = rich()
    names = [
        "ranking",
        "comparison",
        "data_loading",
        "aa",
        "step_decomposition",
        "evaluation",
        "outcomes",
        "confounders",
        "parameters",
        "environment",
        "notes",
    ]
    assert report.section_names == [*names, "trials", "sweep_facts"]
    expected = [section.title for section in report.sections]
    assert titles(render_markdown(report), r"^##+ (.*)$") == expected
    page = render_html(report).replace("&#39;", "'")
    assert titles(page[page.index('<section id="ranking">') :], r"<h[23][^>]*>(.*)</h[23]>") == expected


def test_the_list_alone_decides_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of([row(workers(0))])

    def added(_: object) -> Section:
        return Section("added", "A new section", [Bullets(["its line"])], "Why it is there.")

    monkeypatch.setattr("tasks.report.model.SECTIONS", (added, *order.SECTIONS[-1:]))
    report = report_of(source)
    assert render_markdown(report).endswith(
        "## A new section\n\nWhy it is there.\n\n- its line\n\n## Sweep\n\n- Sweep: made-up\n- Planned: 2023-11-14 22:13 UTC\n"
        "- Trials: 1, all ended\n- Command: `sweep run made_up`\n"
    )
    assert '<h2>A new section</h2>\n<p class="about">Why it is there.</p>' in render_html(report)


def test_each_section_has_a_file_of_its_own_in_the_list() -> None:
    files = {path.stem for path in Path(order.__file__).parent.glob("*.py")} - {"__init__", "order"}
    listed = [make.__module__.rpartition(".")[2] for make in order.SECTIONS]
    assert sorted(listed) == sorted(files) and len(set(listed)) == len(listed)


def test_every_kind_of_block_is_escaped_in_both(tmp_path: Path) -> None:
    drawn = tmp_path / "figures" / "a.svg"
    drawn.parent.mkdir()
    drawn.write_text('<svg width="1"><g id="x"/><use href="#y"/><path id="y" d="M 1.23456 2"/></svg>')
    line = TrialLine(EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, "http://host/a b)", emulated=True)
    blocks = [
        TextTable([EVIL], [[EVIL]]),
        Bullets([EVIL]),
        Facts([(EVIL, EVIL), ("c", EVIL)], code=frozenset({"c"})),
        Figures([(EVIL, drawn)]),
        TrialTable([line]),
    ]
    report = replace(rich(), title=EVIL, description=EVIL, answers=[], no_answer=EVIL, loading=[EVIL], origin=[EVIL], constant=[EVIL])
    report = replace(report, caution_groups=[CautionGroup(EVIL, [EVIL])])
    report = replace(report, sections=[Section("all", EVIL, blocks)])
    text, page = render_markdown(report), render_html(report)
    outside_code = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", re.sub(r"\\.", "", text))
    assert not re.search(r"[<>]script|\[a\]", outside_code)
    assert page.count("<script") == 1 and page.count("&lt;script") >= 16
    escaped = r"\<script\>alert('x')\</script\>\|\`$\*\_\[a\](b)\`\\1"
    assert f"![{escaped}](figures/a.svg)\n" in text
    assert f"- {escaped}: {escaped}\n" in text
    command = "`` <script>alert('x')</script>\\|`$*_[a](b)`\\1 ``"
    assert f"| [{escaped}](http://host/a%20b%29) | {escaped} (emulated) | {escaped} | {escaped} | {command} |\n" in text
    assert '<svg role="img" aria-label="&lt;script>' in page
    assert '<use href="#f0i0"/><path id="f0i0" d="M 1.2 2"/>' in page and 'id="f0-x"' not in page, "what nothing refers to has no id"


def test_the_text_of_a_section_holds_no_value_from_outside() -> None:
    """Markdown does not escape it."""
    axes = {"pool": EVIL, EVIL: EVIL, "dataloader_workers": 0}
    rows = [row({**axes, "dataloader_workers": n}, environment={"x": f"{EVIL}{n}"}, notes=[EVIL]) for n in (0, 1)]
    suite = settings(title=EVIL)
    report = report_of_rows([*rows, row({**axes, "dataloader_workers": 2}, None, outcome=Outcome.CRASHED, reason=EVIL)], suite)
    assert len(report.sections) >= 8 and report.section("comparison").block(ComparisonTable).title == EVIL
    assert not [section.name for section in report.sections if "script" in section.text + (section.page_text or "")]


def test_a_page_has_more_to_say_where_it_has_room() -> None:
    section = Section("a", "A", [Bullets(["b"])], "short", "long")
    report = replace(rich(), sections=[section, Section("hidden", "Hidden", [Bullets(["c"])], on_page=False)])
    text, page = render_markdown(report), render_html(report)
    assert "## A\n\nshort\n\n- b\n\n## Hidden\n\n- c\n" in text
    assert (
        '<p class="about">long</p>' in page
        and "Hidden" not in page
        and "short" not in page[page.index('<section id="a">') : page.index("<footer>")]
    )


def test_a_table_without_rows_is_no_section() -> None:
    assert table_section("a", "A", TextTable(["x"], []), "") is None
    section = table_section("a", "A", TextTable(["x"], [["1"]]), "text", "longer")
    assert section == Section("a", "A", [TextTable(["x"], [["1"]])], "text", "longer")
