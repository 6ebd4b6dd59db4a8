"""What a night found between two commits, as night.json has it: pairs of trials, and the commit that a bisection found."""

from __future__ import annotations

from pydantic import Field

from experiments.config.strict import Strict
from experiments.stats.verdict import Verdict


class Pairs(Strict):
    """One metric of a cell, tonight's commit against the last good one: trials of both by turns, A B B A, on one node.

    `ratio` is tonight's commit over the good one, `low` to `high` its 95 % interval; above 1 is better. All are null without a pair.
    """

    good: str = Field(description="the last good commit, 40 hex digits")
    good_date: str = Field(description="the night that ran it")
    tonight: str = Field(description="tonight's commit, 40 hex digits")
    count: int = Field(ge=0, description="pairs of which both trials ended ok, undisturbed, on one host")
    disturbed: int = Field(0, ge=0, description="more pairs that do not count, since other work disturbed a trial; 0 in early records")
    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    why: str | None = Field(None, description="why undecided")


class FoundCommit(Strict):
    """A night's own bisection of what got worse. `commit` is the first bad one, null where it could not be told."""

    cell: str
    name: str
    metric: str
    good: str
    bad: str
    commit: str | None = None
    subject: str = ""
    between: tuple[str, str] | None = Field(None, description="the first bad commit lies after the first and is the second at the latest")
    sentence: str
    trials: int = 0
    on: str = Field(description="the night that found it")
