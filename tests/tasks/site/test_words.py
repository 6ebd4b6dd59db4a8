"""Commits, environments and addresses as the pages write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from tasks.nightly.store import NightCode
from tasks.site.addresses import cell_page, night_report, numbered, sweep_report
from tasks.site.history import DefinitionHistory, Track
from tasks.site.words import Commits, environment_change, environment_line, percent_change
from tests.tasks.site.site_support import commit

PLAIN, LINKED = Commits(), Commits("https://example.org/p/commit/{commit}?a=1&b")


def test_a_commit_is_a_link_where_there_is_an_address() -> None:
    assert PLAIN.link(commit(10)) == "<code>0000000000</code>"
    assert LINKED.link("ab" * 20) == f'<a href="https://example.org/p/commit/{"ab" * 20}?a=1&amp;b"><code>ababababab</code></a>'
    assert PLAIN.link(None) == "unknown"


def test_commits_around_a_change_say_where_there_is_only_one() -> None:
    assert PLAIN.between(("a" * 40, "b" * 40)) == "<code>aaaaaaaaaa</code>..<code>bbbbbbbbbb</code>"
    assert PLAIN.between(("a" * 40, "a" * 40)) == "<code>aaaaaaaaaa</code>, as the night before"
    assert PLAIN.between(None) == "unknown"
    assert PLAIN.of(NightCode(commit="a" * 40, dirty=True)) == "<code>aaaaaaaaaa</code> with uncommitted changes"


@pytest.mark.parametrize("wrong", ["example.org/{commit}", "https://example.org/commit", "javascript:alert('{commit}')", ""])
def test_what_is_no_address_of_a_commit_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"--commit-url: .*is no address of a commit; write it as https://example.org"):
        Commits(wrong)


def test_an_environment_is_its_main_facts_and_a_change_names_what_differs() -> None:
    before = {"device_name": "GPU", "cpu": "Xeon", "torch": "2.12.0", "packages": "ab", "host": "n"}
    assert environment_line(before) == "GPU · torch 2.12.0 · n"
    assert environment_line({"cpu": "Xeon"}) == "Xeon" and environment_line({}) == ""
    assert environment_change(before, {**before, "torch": "2.13.0"}) == "torch 2.12.0 → 2.13.0"
    assert environment_change(before, {name: value for name, value in before.items() if name != "packages"}) == "packages ab → none"
    assert environment_change(before, before) == "" == environment_change({}, before)
    many = environment_change({f"f{at}": "x" for at in range(6)}, {f"f{at}": "y" * 90 for at in range(6)})
    assert many.startswith("f0 x → " + "y" * 39 + "…; f1") and many.endswith("; 2 more")


def test_a_change_has_a_sign_and_an_interval() -> None:
    assert percent_change(-0.051, -0.06, -0.0004) == "-5.1 % (-6.0 to +0.0)"


def track(branch: str, name: str = "regression") -> Track:
    return Track(DefinitionHistory(name, known=True), branch, ())


def test_addresses_are_plain_and_different_texts_stay_different() -> None:
    assert cell_page(track("main"), "0123abcd") == "cells/regression.main.0123abcd.html"
    names = {cell_page(track(branch), "c") for branch in ("a/b", "a-b", "A-b", "a.b", "../../etc", "ä", "x" * 300)}
    assert len(names) == 7 and all(Path(name).parent == Path("cells") and len(name) < 120 and name.isascii() for name in names)
    assert night_report("n", "2026-10-01") == "reports/n.2026-10-01.html" and sweep_report("s-1") == "reports/s-1.html"
    assert (numbered("index.html", 1), numbered("index.html", 3)) == ("index.html", "index-3.html")
