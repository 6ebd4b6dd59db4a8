"""Why a cell changed, as far as the nights know: the commit that a night found, else those between which it lies, and what verdicts say."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tasks.nightly.commit_records import FoundCommit
from tasks.nightly.pair_text import commit_of, pair_sentence
from tasks.nightly.store import CHANGED, CellVerdict
from tasks.site.history import CellHistory, Track
from tasks.site.words import Commits


@dataclass(frozen=True)
class Culprit:
    """`between`: the change came after the first and with the second at the latest; None where one of them is unknown.

    `found`: what a night's own bisection says; None where no night looked for the commit.
    """

    between: tuple[str, str] | None
    found: FoundCommit | None = None

    @property
    def commit(self) -> str | None:
        """The first bad commit, where it was found."""
        return self.found.commit if self.found else None

    def shown(self, commits: Commits) -> Markup:
        """The first bad commit with its subject where it was found, else between which commits the change lies."""
        if self.found is None or self.commit is None:
            return commits.between(self.between)
        subject = f": {self.found.subject}" if self.found.subject else ""
        return Markup("{}, the first bad one{}").format(commits.link(self.commit), subject)


def culprit_of(track: Track, cell: CellHistory, item: CellVerdict) -> Culprit:
    """What is known of an alarm's commits. By a bisection, else by the pairs of the alarm's first night, else by the nights around it."""
    since, alarms = item.alarm_since, cell.series[item.metric].alarms
    nights = [index for index in track.nights if index in alarms and alarms[index].alarm_since == since]
    records = [one for index in nights if (one := commit_of(track.history.nights[index].night, item)) is not None]
    found = next((one for one in records if one.commit), records[-1] if records else None)
    if found is not None:
        return Culprit(found.between or (found.good, found.bad), found)
    pairs = alarms[nights[0]].pairs if nights else None
    if pairs is not None and pairs.verdict is item.verdict:
        return Culprit((pairs.good, pairs.tonight))
    return Culprit(_around(track, since) if since else None)


def reasons(item: CellVerdict, culprit: Culprit | None) -> list[str]:
    """Why a verdict is as it is: what pairs of commits say; of a change also code or node, what to know besides, what a bisection that
    found no commit says, and what else of the environment changed.

    The commits are left out of the causes where they are known, since they stand beside. `culprit`: of a change.
    """
    pairs = [text] if (text := pair_sentence(item)) else []
    if item.verdict not in CHANGED:
        return pairs
    causes = [cause for cause in item.causes if not (culprit and culprit.between and cause.startswith("git commit "))]
    searched = culprit.found.sentence if culprit and culprit.found and not culprit.commit else None
    return [*pairs, *(text for text in (f"in the {item.where}" if item.where else "", item.why, searched, *causes) if text)]


def _around(track: Track, date: str) -> tuple[str, str] | None:
    """The commits of the branch's night before a date, and of that date's. None where one is unknown."""
    facts = track.facts
    place = next((place for place, night in enumerate(facts) if night.date == date), 0)
    if place == 0:
        return None
    good, bad = facts[place - 1].code.commit, facts[place].code.commit
    return (good, bad) if good and bad else None
