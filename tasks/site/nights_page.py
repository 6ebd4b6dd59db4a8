"""The list of nights: what each found, with its commit, and what changed in its environment."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from tasks.report.html import render_page
from tasks.site.addresses import NIGHTS, night_report
from tasks.site.board import controls, nodes, without_verdicts
from tasks.site.history import NightFacts, Track
from tasks.site.list_pages import list_pages
from tasks.site.words import Commits


def nights_pages(
    tracks: Sequence[Track], left_out: Sequence[str], commits: Commits, reports: frozenset[str], now: datetime
) -> dict[str, str]:
    """Address -> page: the first, and further ones where the nights do not fit on one. `reports`: addresses that the site has."""
    found = [
        (facts.date, _row(track, index, facts, commits, reports))
        for track in tracks
        for index, facts in zip(track.nights, track.facts, strict=True)
    ]
    rows = [row for _, row in sorted(found, key=lambda entry: entry[0], reverse=True)]
    header = ["night", "verdicts", "controls", "nodes", "commit", "environment changed"]
    nothing = "No night yet: `sweep nightly` runs one."
    made = now.strftime("%Y-%m-%d %H:%M")
    return list_pages(NIGHTS, "nights.html", rows, title="Nights", made=made, left_out=list(left_out), header=header, nothing=nothing)


def _row(track: Track, index: int, night: NightFacts, commits: Commits, reports: frozenset[str]) -> Markup:
    address = night_report(track.history.name, night.date)
    changes = {pool: texts[index] for pool, texts in track.environment_changes.items() if index in texts}
    named = [f"{pool}: {text}" if len(night.environments) > 1 else text for pool, text in changes.items()]
    html = render_page(
        "site/night_row.html",
        address=address if address in reports else "",
        date=night.date,
        track=track.title,
        tone="slower" if night.worse else "",
        said=night.headline if night.judged else without_verdicts(night),
        controls=_controls(night),
        nodes="; ".join(nodes(night)),
        commit=commits.of(night.code),
        changed="; ".join(named),
    )
    return Markup(html)  # noqa: S704 - of a template, which escapes


def _controls(night: NightFacts) -> str:
    return controls(night).replace("A/A control ", "A/A ").replace("slowed control ", "slowed ")
