"""report.html: one offline file of a bounded size, whose only script is the one that its policy names, and which links lead somewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.stats.loss_parity import Parity, ParityStatus
from experiments.trial import Outcome
from tasks.report.comparison_table import TextTable
from tasks.report.html import prose, render_html
from tasks.report.markdown import render_markdown
from tasks.report.model import Report
from tasks.report.section import Facts, Ranking, Section
from tasks.report.sections.ranking import BARS, CUT, NO_BARS, TEXT, TOP, ranking_of
from tests.tasks.cell_support import OTHER, in_threes, repeats, report_of, row, settings, workers
from tests.tasks.report.page_support import Page, many_cells

LARGEST = 300_000  # bytes, of a page of 50 cells


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, str]:
    report = many_cells(50, tmp_path_factory.mktemp("figures"))
    return report, render_html(report)


def test_a_page_of_fifty_cells_is_one_small_file_that_fetches_nothing(fifty: tuple[Report, str]) -> None:
    report, html = fifty
    assert len(report.cells) == 50 and len(html.encode()) < LARGEST
    page = Page(html)
    assert page.open == [] and html.count("<svg") == 50 + 2, "a bar for each cell, and two figures"
    fetched = [*page.all("src"), *page.all("srcset"), *page.all("data"), *page.all("action"), *page.all("xlink:href")]
    assert all(address.startswith("#") for address in fetched) and "link" not in dict(page.elements)
    assert all(address.startswith("#") for address in page.all("href"))
    assert not re.search(r"url\((?!#)|@import|//[a-z]+\.[a-z]", re.sub(r'xmlns(:\w+)?="[^"]*"', "", html))


def test_the_policy_lets_the_pages_own_script_run_and_no_other(fifty: tuple[Report, str]) -> None:
    page = Page(fifty[1])
    [script] = page.texts["script"]
    [policy] = [attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None and f"script-src 'sha256-{digest}'" in policy and policy.startswith("default-src 'none'; base-uri 'none'")
    assert "unsafe-eval" not in policy and "script-src 'unsafe" not in policy
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")], "no handler in an attribute"


def test_every_link_of_the_contents_leads_to_a_heading_and_ids_are_unique(fifty: tuple[Report, str]) -> None:
    report, html = fifty
    page = Page(html)
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    links = [address.removeprefix("#") for address in page.all("href", "a")]
    assert links and set(links) <= set(ids)
    sections = [section.name for section in report.sections if section.on_page and not section.part_of_previous]
    assert [link for link in links if link in sections] == sections, "all sections, in their order"


def test_the_ranked_list_stands_before_the_matrix_and_says_its_numbers_in_words(fifty: tuple[Report, str]) -> None:
    report, html = fifty
    names = report.section_names
    assert names.index("ranking") < names.index("comparison")
    ranked = report.section("ranking").block(Ranking).cells
    assert len(ranked) == 50 and [one.place for one in ranked] == list(range(1, 51))
    assert all(a.cell.estimate.value >= b.cell.estimate.value for a, b in pairwise(ranked) if a.cell.estimate and b.cell.estimate)
    page = Page(html)
    ranking = report.section("ranking").block(Ranking)
    assert ranking.top is not None and ranking.top[0] > 30, "the first ten are seen closer"
    hovers = page.texts["title"][1:]  # the first is the page's own
    assert len(hovers) >= 50 and all(", 95 % interval " in hover for hover in hovers[:50])
    assert hovers[0] == ranked[0].hover
    assert "In every cell: h200 · large" in page.words and not [name for name in page.texts["th"] if "h200" in name and "#" not in name]


def test_headings_descend_one_level_at_a_time_and_controls_are_named(fifty: tuple[Report, str]) -> None:
    page = Page(fifty[1])
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1 and all(after - before <= 1 for before, after in pairwise(levels))
    assert all(attrs.get("aria-label") for tag, attrs in page.elements if attrs.get("role") == "region" or tag in ("nav", "form"))
    assert set(page.all("aria-sort")) == {"none", "descending"}
    assert page.all("data-filter") == ["0", "1", "2", "3"] and len(page.texts["select"]) == 5
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in page.elements if tag == "th")


def test_filters_find_rows_and_columns_by_their_tokens(fifty: tuple[Report, str]) -> None:
    page = Page(fifty[1])
    tokens = [value.split() for value in page.all("data-t", "tr")]
    ranked, matrix = [one for one in tokens if len(one) == 4], [one for one in tokens if len(one) == 3]
    assert len(ranked) == 50 and matrix and all(one[0] in ("0.0", "0.1") for one in ranked + matrix), "two precisions"
    assert {one[0][:2] for one in (value.split() for value in page.all("data-t", "th"))} == {"3."}, "columns are the loader's processes"


def test_few_cells_have_no_filters_and_one_alone_no_ranking() -> None:
    few = report_of([one for count in range(3) for one in repeats(workers(count), 100.0 + count)])
    assert "ranking" in few.section_names and "form" not in Page.of(few).texts
    assert "ranking" not in report_of(repeats(workers(0), 100.0)).section_names


def test_the_matrix_opens_on_its_fullest_row_and_unrepeated_cells_have_a_value_in_each_rank() -> None:
    axes = [("fp32", 4), ("tf32", 4), *(("bf16", count) for count in (0, 1, 2, 4))]
    report = report_of([row(workers(count, precision=name), 100.0 + count) for name, count in axes], settings(rows=("precision",)))
    page = Page.of(report)
    rows = [text for text in page.texts["th"] if text in ("fp32", "tf32", "bf16")]
    assert rows[-3:] == ["bf16", "fp32", "tf32"], "not on the two that have but one of four cells"
    for one in report.section("ranking").block(Ranking).cells:
        assert (
            one.value
            and one.bar[0] is None
            and 0 <= one.bar[1] <= 100
            and one.hover.endswith("; undecided: one trial") | (one.change in ("baseline", ""))
        )


def test_what_the_colours_say_stands_in_words() -> None:
    rows = [*repeats(workers(0), 100.0), *repeats(workers(1), 150.0), *repeats(workers(2), 50.0)]
    page = Page.of(report_of([*rows, row(workers(3), None, outcome=Outcome.DOES_NOT_FIT, reason="80 GiB")]))
    assert page.texts["span"].count("best") == 2, "in the list and in the matrix"
    assert page.words.count("faster") >= 2 and page.words.count("slower") >= 2


def test_a_struck_cell_is_ranked_after_all_that_may_win() -> None:

    cells = in_threes((100.0, 150.0, 120.0))
    cells[1].parity, cells[1].parity_note = Parity(ParityStatus.STRUCK), "struck: made up"
    ranking = ranking_of(cells)
    assert [one.cell.short for one in ranking.cells] == ["MP-2", "MP-0", "MP-1"]
    assert [one.words for one in ranking.cells] == ["faster", "", "struck"] and not ranking.cells[2].claimed
    assert ranking.cells[2].hover.endswith("; struck: made up")


def test_a_cell_of_a_group_is_named_without_the_groups_own_labels() -> None:
    rows = [one for model in "ab" for place in (0, 1) for one in repeats(workers(place, model=model), 100.0 + place)]
    report = report_of(rows, {**settings(rows=("model",)), "same_work": ["model"]})
    assert [(one.work, [cell.name for cell in one.cells]) for one in report.section("ranking").blocks] == [
        ("a", ["MP-1", "MP-0"]),
        ("b", ["MP-1", "MP-0"]),
    ]


def test_bars_span_the_values_and_their_intervals() -> None:

    ranking = ranking_of(in_threes((100.0, 150.0, 120.0)))
    low, dot, high = ranking.cells[0].bar
    assert low is not None and high == pytest.approx(100 - 4 / 1.08, abs=0.01) and low < dot < high, "the largest ends at the right"
    least = ranking.cells[-1].bar
    assert least[0] == pytest.approx(4 / 1.08, abs=0.01) and ranking.cells[0].base == least[1], (
        "the smallest at the left; it is the baseline"
    )
    assert ranking.top is None, "all are shown at once"
    assert [end.split()[1] for end in ranking.ends] == ["samples/s", "samples/s"]


def test_a_bar_that_the_axis_cuts_ends_in_an_arrow_and_the_legend_says_so() -> None:
    """MP-0's interval is many times wider than the values lie apart, MP-1's ends within the axis."""
    wide = report_of([*repeats(workers(0), 100.0, (-2.0, 2.0)), *repeats(workers(1), 110.0)])
    cut, whole = wide.section("ranking").block(Ranking).cells[::-1]
    assert (cut.cell.short, cut.beyond, cut.bar[0], cut.bar[2]) == ("MP-0", (True, True), 0.0, 100.0)
    assert whole.beyond == (False, False)
    html = render_html(wide)
    assert html.count('<path class="cut whole" d="M2.0 1L0 5L2.0 9M98.0 1L100 5L98.0 9"/>') == 1 and 'class="cut near"' not in html
    assert f"{BARS} {CUT} {TEXT}" in html
    narrow = render_html(report_of([*repeats(workers(0), 100.0), *repeats(workers(1), 110.0)]))
    assert 'class="cut' not in narrow and f"{BARS} {TEXT}" in narrow


def test_where_no_interval_is_known_the_legend_tells_of_no_bar() -> None:
    once = render_html(report_of([row(workers(0), 100.0), row(workers(1), 110.0)]))
    assert 'class="range"' not in once and f"{NO_BARS} {TEXT}" in once and BARS not in once


def test_where_the_first_cells_are_seen_closer_their_bars_have_arrows_at_those_ends() -> None:
    first = [one for count in range(TOP) for one in repeats(workers(count), 100.0 + count / 10, (-0.2, 0.2) if count == 0 else OTHER)]
    report = report_of([*first, *repeats(workers(TOP), 1.0, OTHER)])
    ranking = report.section("ranking").block(Ranking)
    near = next(one for one in ranking.cells if one.cell.short == "MP-0")
    assert ranking.top is not None and near.beyond_top == (True, True)
    assert ranking.cells[-1].beyond_top == (False, False), "it is not among the first"
    assert f"L{ranking.top[0]} 5L" in render_html(report)


def test_markdown_says_nothing_of_bars_since_it_has_none() -> None:
    text = render_markdown(report_of([*repeats(workers(0), 100.0), *repeats(workers(1), 110.0)]))
    assert BARS not in text and TEXT in text


BY_LENGTH = {12: "nb", 13: "short", 24: "short", 25: "long"}  # a name's letters -> its class


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("MP-0, bf16", '<span class="nb">MP-0</span>, bf16'),
        ("over MP-16.", 'over <span class="nb">MP-16.</span>'),
        ("2026-11-28: a warm-up of A/A pairs", '<span class="nb">2026-11-28</span>: a warm-up of A/A pairs'),
        ("<qwen3-0.6b>", '&lt;<span class="nb">qwen3-0.6b</span>&gt;'),
        ("`sweep show a-1` of MP-1", '<code>sweep show a-1</code> of <span class="nb">MP-1</span>'),
        ("a" * 22 + "-1", f'<span class="nb">{"a" * 22}-1</span>'),
        ("a" * 23 + "-1", "a" * 23 + "-1"),  # a phone's line may have no room for it
    ],
)
def test_a_name_with_a_dash_before_a_number_breaks_nowhere_and_is_copied_as_it_is(text: str, shown: str) -> None:
    assert prose(text) == shown and re.sub("<[^>]+>", "", shown).replace("&lt;", "<").replace("&gt;", ">") == text.replace("`", "")


def test_names_break_nowhere_in_sentences_and_tables_too() -> None:
    report = report_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0, OTHER), row(workers(2), None, outcome=Outcome.CRASHED)])
    section = Section("made_up", "Made up", [TextTable(["cell", "beside"], [["a", "MP-7"]]), Facts([("which", "MP-8")])])
    shown = re.sub(r"<title>.*?</title>|<svg.*?</svg>|<style>.*?</style>", "", render_html(replace(report, sections=[section])), flags=re.S)
    assert all(f'<span class="nb">MP-{number}' in shown for number in (0, 1, 2, 7, 8))
    assert re.findall(r"(?<!\">)MP-\d", shown) == [], "each in such a span"


def test_a_name_in_a_tables_first_column_has_room_and_breaks_at_no_hyphen() -> None:
    rows = [["bf16 · compile layer · MP-0", "1"], *(["a" * letters, "2"] for letters in BY_LENGTH)]
    section = Section("made_up", "Made up", [TextTable(["cell", "share"], rows, numeric=True)])
    html = render_html(replace(report_of(repeats(workers(0), 100.0)), sections=[section]))
    assert '<th scope="row" class="long">bf16 · compile layer · <span class="nb">MP-0</span></th>' in html
    assert [f'<th scope="row" class="{kind}">{"a" * letters}</th>' in html for letters, kind in BY_LENGTH.items()] == [True] * 4
    assert ".long { min-width: 220px; }" in html and ".nb { white-space: nowrap; }" in html
