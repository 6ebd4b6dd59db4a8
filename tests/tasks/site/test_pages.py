"""The site as a whole: small files that fetch nothing, whose links lead somewhere; what changed, since when, by which commit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from benchmarks.made_up_nights import write_nights
from experiments.config.errors import ConfigError
from experiments.regression.history_segments import Change
from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import FoundCommit, Pairs
from tasks.nightly.store import NightCode, NightStore, NodeState
from tasks.site.list_pages import LIMIT, list_pages
from tasks.site.write import Site, write_site
from tests.tasks.report.page_support import Page
from tests.tasks.site.site_support import NAME, NOW, ONE, TWO, alarm, commit, day, save, verdict


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def site(runs: Path, **options: Any) -> tuple[Site, dict[str, str]]:
    """The site, and its pages by address."""
    folder = runs.parent / "site"
    made = write_site(folder, **{"now": NOW, **options})
    return made, {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.html"))}


def of_cell(pages: dict[str, str], text: str = "id-one") -> str:
    [address] = [address for address in pages if address.startswith("cells/") and text in address]
    return pages[address]


def data_of(page: str) -> list[Any]:
    """What the page's script reads: of each figure, then of the nights."""
    return [json.loads(text) for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A site of 10 cells over 40 nights of two branches."""
    root = tmp_path_factory.mktemp("many")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPBENCH_RUNS", str(root / "runs"))
        write_nights("made-up", 10, 40, branches=["main", "next"])
        return site(root / "runs")[1]


def test_every_page_is_small_fetches_nothing_and_lets_only_its_own_script_run(many: dict[str, str]) -> None:
    assert {"index.html", "nights.html", "sweeps.html"} < set(many) and len(many) == 23
    for html in many.values():
        page = Page(html)
        assert page.open == [] and len(html.encode()) < LIMIT
        fetched = [*page.all("src"), *page.all("srcset"), *page.all("data"), *page.all("action"), *page.all("xlink:href")]
        assert fetched == [] and "link" not in dict(page.elements)
        [policy] = [str(attrs["content"]) for tag, attrs in page.elements if attrs.get("http-equiv") == "Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; base-uri 'none'")
        scripts = re.findall(r"<script>(.*?)</script>", html, re.S)
        digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        assert re.findall(r"'(sha256-[^']+)'", policy) == [f"sha256-{digest}" for digest in digests] and len(scripts) <= 1
        assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")], "no handler in an attribute"
        ids = page.all("id")
        assert len(ids) == len(set(ids))


def test_every_link_leads_to_a_page_of_the_site(many: dict[str, str]) -> None:
    for address, html in many.items():
        for link in Page(html).all("href", "a"):
            assert link is not None
            if not link.startswith("#"):
                parts = [*Path(address).parent.parts, *Path(link).parts]
                while ".." in parts:
                    at = parts.index("..")
                    del parts[at - 1 : at + 1]
                assert "/".join(parts) in many, f"{address} links to {link}"


def test_charts_can_be_reached_by_keyboard_and_have_numbers_for_each_night(many: dict[str, str]) -> None:
    html = next(page for address, page in many.items() if address.startswith("cells/") and ".main." in address)
    page = Page(html)
    plots = [attrs for _, attrs in page.elements if attrs.get("class") == "plot"]
    assert plots and all(attrs["tabindex"] == "0" and "arrow keys" in str(attrs["aria-label"]) for attrs in plots)
    *figures, nights = data_of(html)
    assert len(figures) == len(plots) == 4
    for figure in figures:
        columns = [figure[name] for name in ("x", "y", "night", "value", "verdict")] + figure["change"]
        assert len({len(column) for column in columns}) == 1 and max(figure["night"]) < len(nights["date"])
    assert len(nights["date"]) == len(nights["commit"]) == len(nights["environment"]) == 30 and len(nights["environments"]) >= 2


def test_without_a_night_the_site_says_how_to_get_one(runs: Path) -> None:
    made, pages = site(runs)
    assert (made.files, made.left_out) == (3, [])
    assert "No night yet: `sweep nightly` runs one." in pages["index.html"] and "No night yet" in pages["nights.html"]
    assert "No A/A pair counts yet" in pages["sweeps.html"] and "No sweep yet" in pages["sweeps.html"]


def test_a_first_night_is_recorded(runs: Path) -> None:
    save(runs, 1, [verdict(said=Verdict.UNDECIDED, ratio=None)])
    _, pages = site(runs)
    assert f"1 cell recorded on {day(1)}: verdicts begin once there are nights to compare with" in pages["index.html"]
    page = of_cell(pages)
    [figure, nights] = data_of(page)
    assert figure["value"] == [100.0] and figure["change"] == [[None]] * 3 and nights["commit"] == ["0000000000"]
    assert "Recorded: 2 of the 5 nights" in page and "made-up on main" in page


def test_the_index_says_what_regressed_since_when_and_between_which_commits(runs: Path) -> None:
    for number in (1, 2):
        save(runs, number, cells=[ONE, TWO])
    save(runs, 3, [alarm(3, causes=["torch 2.12 → 2.13"]), verdict(TWO)], cells=[ONE, TWO])
    save(runs, 4, [alarm(4, 0.94, since=3), alarm(4, 1.08, of=TWO)], cells=[ONE, TWO])
    _, pages = site(runs, commit_url="https://example.org/commit/{commit}")
    words = Page(pages["index.html"]).words
    assert f"1 of 2 cells is worse on {day(4)}" in words and f"Commit {commit(4)[:10]}" in words
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", pages["index.html"])
    assert [re.findall(r"<a href=\"cells/[^>]*>(\w+)<", row)[0] for row in rows] == ["one", "two"], "what got worse first"
    assert "-6.0 % (-7.0 to -5.0)" in rows[0] and f">{day(3)}<" in rows[0] and "in the code" in rows[0]
    assert f'href="https://example.org/commit/{commit(2)}"' in rows[0] and f'href="https://example.org/commit/{commit(3)}"' in rows[0]
    page = of_cell(pages)
    assert f"sweep bisect id-one {commit(2)[:12]} {commit(3)[:12]} --metric throughput --name made-up" in page
    assert "sweep accept id-one --metric throughput --name made-up --note WHY" in page
    assert f"{day(3)} to {day(4)} (2 nights)" in page and "torch 2.12 → 2.13" in page
    assert "sweep bisect" not in of_cell(pages, "id-two"), "what got faster needs nothing"


def test_what_pairs_and_a_bisection_found_is_on_the_index_and_on_the_cells_page(runs: Path) -> None:
    common: dict[str, Any] = {"good": commit(1), "good_date": day(1), "tonight": commit(4), "count": 8}
    slower = Pairs(**common, verdict=Verdict.SLOWER, ratio=0.949, low=0.94, high=0.958)
    same = Pairs(**common, verdict=Verdict.SAME, ratio=1.0, low=0.99, high=1.01)
    found = {"cell": "id-one", "name": "one", "metric": "throughput", "good": commit(1), "bad": commit(4), "commit": commit(3)}
    searched = FoundCommit.model_validate({**found, "subject": "Halve <it>", "sentence": "it is this one", "on": day(4)})
    for number in (1, 2, 3):
        save(runs, number, cells=[ONE, TWO])
    looked = verdict(TWO, ratio=0.97, looked=Verdict.SLOWER, raw=0.97, pairs=same)
    save(runs, 4, [alarm(4, 0.9, pairs=slower), looked], cells=[ONE, TWO], bisections=[searched])
    _, pages = site(runs)
    row = re.findall(r"<tr><th scope=\"row\">.*?</tr>", pages["index.html"])[0]
    sentence = "slower by 5.1 % (4.2 to 6.0 %), 8 pairs of 000000000000 against 000000000000"
    assert "the first bad one: Halve &lt;it&gt;" in row and sentence in row and "-5.1 % (-6.0 to -4.2)" in row
    one, two = of_cell(pages), of_cell(pages, "id-two")
    assert "</b> in pairs against an earlier commit, 95 % interval" in one and "sweep bisect" not in one and "sweep accept" in one
    assert data_of(one)[0]["said"] == {"3": sentence} and f'<span class="note">{sentence}</span>' in one
    told = "looked 3.0 % slower; 8 pairs of 000000000000 against 000000000000: same"
    assert f"Why: {told}" in two and data_of(two)[0]["said"] == {"3": told}
    assert [data_of(page)[0]["paired"] for page in (one, two)] == [[3], [3]]
    assert [row[3] for row in data_of(one)[0]["change"]] == [-5.1, -6.0, -4.2]
    assert [row[3] for row in data_of(two)[0]["change"]] == [0.0, -1.0, 1.0]


def test_accepted_changes_environments_and_missed_nights_are_events(runs: Path) -> None:
    save(runs, 1, facts={"torch": "2.12.0"})
    save(runs, 2, [alarm(2)], facts={"torch": "2.12.0"})
    save(runs, 3, facts={"torch": "2.13.0"})
    save(runs, 4, [verdict(said=Verdict.UNDECIDED, value=None, ratio=None)], missed={"id-one": "crashed"})
    change = Change(
        cell="id-one", metric="throughput", since=day(2), verdict=Verdict.SLOWER, accepted_on=day(3), by="ann", note="<worth> it"
    )
    NightStore(NAME, runs).accept(change)
    page = of_cell(site(runs)[1])
    events = re.findall(r"<tr><th scope=\"row\">([^<]*)</th><td class=\"\w*\">([^<]*)</td>", page)
    assert events[:4] == [
        (day(4), "missed: crashed"),
        (day(3), f"throughput: the level since {day(2)} accepted"),
        (day(3), "environment changed"),
        (day(2), "throughput slower"),
    ]
    assert "torch 2.12.0 → 2.13.0" in page and "by ann: &lt;worth&gt; it" in page and page.count('class="accepted"') == 1
    assert data_of(page)[-1]["changed"] == {"2": "torch 2.12.0 → 2.13.0"}
    assert "Missed: missed: crashed" not in page


def test_damage_and_a_renamed_definition_are_said_on_the_pages(runs: Path) -> None:
    save(runs, 1)
    save(runs, 2)
    path = NightStore(NAME, runs).folder(day(1)) / "night.json"
    path.write_text("{")
    made, pages = site(runs)
    assert len(made.left_out) == 1 and str(path) in made.left_out[0]
    for name in ("index.html", "nights.html"):
        assert "night.json, line 1: is not JSON" in pages[name]
    assert "There is no definition made-up any more: it was renamed or removed." in pages["index.html"]


def test_a_cell_of_a_renamed_definition_and_of_another_branch_links_to_its_other_histories(runs: Path) -> None:
    save(runs, 1, name="before")
    save(runs, 2)
    save(runs, 3, branch="next")
    _, pages = site(runs)
    page = of_cell(pages, "made-up.next")
    assert re.findall(r'<a href="([^"]*)">([^<]* on [^<]*)</a>', page) == [
        ("before.main.id-one.html", "before on main"),
        ("made-up.main.id-one.html", "made-up on main"),
    ]
    assert sorted(Page(pages["index.html"]).texts["option"]).count("made-up on next") == 1


def test_only_the_named_definitions_are_shown(runs: Path) -> None:
    save(runs, 1, name="other")
    save(runs, 1)
    _, pages = site(runs, names=[NAME])
    assert [address for address in pages if address.startswith("cells/")] == ["cells/made-up.main.id-one.html"]
    with pytest.raises(ConfigError, match="--name: mad-up: has no nights here; did you mean 'made-up'"):
        site(runs, names=["mad-up"])


def test_names_cannot_break_a_page(runs: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    bad = ONE.model_copy(update={"name": evil, "suite": evil})
    code = NightCode(commit=evil, branch=evil)
    save(runs, 1, [alarm(1, of=bad, causes=[evil], why=evil)], cells=[bad], code=code, facts={"torch": evil})
    _, pages = site(runs, commit_url="https://example.org/{commit}")
    for html in pages.values():
        assert "<script>alert" not in html and len(re.findall("<script", html)) == len(re.findall("</script", html))
        assert Page(html).open == []


def test_reports_are_copied_newest_first_and_linked_where_they_are(runs: Path) -> None:
    for number in (1, 2, 3):
        save(runs, number)
        (NightStore(NAME, runs).folder(day(number)) / "report.html").write_text(f"night {number}")
    made, pages = site(runs, reports=2)
    assert [address for address in pages if address.startswith("reports/")] == [f"reports/made-up.{day(number)}.html" for number in (2, 3)]
    assert f'href="reports/made-up.{day(3)}.html"' in pages["nights.html"] and f"made-up.{day(1)}.html" not in pages["nights.html"]
    assert data_of(of_cell(pages))[-1]["report"] == {"1": f"../reports/made-up.{day(2)}.html", "2": f"../reports/made-up.{day(3)}.html"}
    assert not [address for address in site(runs, reports=0)[1] if address.startswith("reports/")]
    assert made.files == 6


def test_the_list_of_nights_has_verdicts_controls_nodes_commits_and_what_changed(runs: Path) -> None:
    save(runs, 1, facts={"torch": "2.12.0"})
    slow = NodeState(pool="cpu", host="node-1", verdict=Verdict.SLOWER, ratio=0.95, low=0.94, high=0.96)
    save(runs, 2, [alarm(2)], facts={"torch": "2.13.0"}, nodes=[slow], probes={"twin": Verdict.SAME, "injected": Verdict.UNDECIDED})
    save(runs, 3, [], closed=False)
    rows = [re.sub(r"<[^>]+>", "|", row) for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", site(runs)[1]["nights.html"])]
    assert [row.strip("|").partition("|")[0] for row in rows] == [day(3), day(2), day(1)]
    assert "not judged yet" in rows[0] and "torch 2.12.0 → 2.13.0" in rows[1]
    assert (
        "1 cell worse in throughput" in rows[1]
        and "A/A same, slowed undecided" in rows[1]
        and "Node node-1 (cpu) is 5.0 % slower" in rows[1]
    )


def test_more_rows_than_a_page_holds_are_on_several_pages_each_with_links_to_all() -> None:
    rows = [Markup("<tr><td>{}</td></tr>").format(f"{number} {'é' * 200}") for number in range(2000)]
    pages = list_pages("nights.html", "nights.html", rows, title="Nights", made="now", left_out=["x"], header=["night"], nothing="")
    assert list(pages) == ["nights.html", "nights-2.html", "nights-3.html", "nights-4.html"]
    sizes = [len(page.encode()) for page in pages.values()]
    assert max(sizes) < LIMIT and min(sizes[:-1]) > LIMIT - 10_000, "as few pages as it takes"
    assert [int(text) for page in pages.values() for text in re.findall(r"<td>(\d+) é", page)] == list(range(2000))
    assert all(f'href="{other}"' in page for page in pages.values() for other in pages)


def test_a_row_larger_than_a_page_has_one_of_its_own() -> None:
    rows = [Markup("<tr><td>{}</td></tr>").format("x" * size) for size in (10, LIMIT, 10)]
    assert len(list_pages("nights.html", "nights.html", rows, title="", made="", left_out=[], header=[], nothing="")) == 3


def test_a_cell_of_too_many_nights_shows_the_last_ones_and_says_so(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 61):
        save(runs, number)
    limit = len(of_cell(site(runs)[1]).encode())
    monkeypatch.setattr("tasks.site.cell_page.LIMIT", limit)
    page = of_cell(site(runs)[1])
    found = re.search(r"The last (\d+) of 60 nights", page)
    assert found is not None and len(page.encode()) < limit
    assert len(data_of(page)[-1]["date"]) == int(found[1]) >= 20
