"""Bisection between two commits: the search over pairs of trials, and the commits in git."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.commits.resolve import git, resolve
from experiments.config.errors import UserError
from experiments.config.paths import REPOSITORY
from experiments.regression.bisection_test import Side, difference, interim_pairs, side_of
from experiments.stats.estimate import Estimate
from experiments.trial import Outcome, TrialResult
from tasks.nightly.comparison import counts, log_metric
from tasks.report.text_format import plural, signed

_TRIES = 2  # so many times the most pairs of a decision are tried at most, where other work disturbs them


class BisectError(UserError):
    """The two commits cannot be compared: says why and what would be right."""


@dataclass(frozen=True)
class Step:
    """One decision: a commit against GOOD. `ratio` is the commit's metric over GOOD's, above 1 is better."""

    commit: str
    subject: str
    ratio: Estimate
    side: Side

    @property
    def verdict(self) -> str:
        return {Side.ABOVE: "good", Side.BELOW: "bad", Side.OPEN: "undecided"}[self.side]


@dataclass
class Bisection:
    """The result of a bisection. `commit` is the first bad one, None where it could not be told."""

    sentence: str
    commit: str | None = None
    subject: str = ""
    between: tuple[str, str] | None = None
    effect: Estimate | None = None
    steps: list[Step] = field(default_factory=list)
    trials: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "commit": self.commit,
            "subject": self.subject,
            "sentence": self.sentence,
            "between": list(self.between) if self.between else None,
            "effect": vars(self.effect) if self.effect else None,
            "trials": self.trials,
            "steps": [{"commit": s.commit, "subject": s.subject, "verdict": s.verdict, "ratio": vars(s.ratio)} for s in self.steps],
        }


@dataclass(frozen=True)
class PairValues:
    """The metric of a pair's two trials, in the order in which they ran, as logarithms turned so that more is better.

    `disturbed`: what else ran beside one of them; then the pair does not count.
    """

    first: float
    second: float
    disturbed: str | None = None


def value_of(result: TrialResult, metric: str, trial: str) -> tuple[float, str | None]:
    """The metric's logarithm, turned so that more is better; and what disturbed it, where it does not count then.

    Raises BisectError, which names the `trial`, where it did not end ok or has no such metric.
    """
    value = log_metric(result.summary.get(metric), metric)
    if result.outcome is not Outcome.OK or math.isnan(value):
        raise BisectError(f"{trial} ended {result.outcome} ({result.reason}) without {metric}")
    return value, None if counts(result.disturbed, metric) else result.disturbed


MeasurePair = Callable[[str, str], PairValues]  # of two commits, one after the other
Say = Callable[[str], None]


@dataclass
class _Pairs:
    """Compares commits with GOOD in pairs, each until it is decided. `go_on`: whether there is time for another pair.

    `count`: pairs of the last comparison that count; `disturbed`: those that other work disturbed. They are left out for that and never for
    their values, so the analyses of the others keep their levels.
    """

    good: str
    measure: MeasurePair
    most: int
    go_on: Callable[[], bool]
    say: Say
    trials: int = 0
    in_time: bool = True
    count: int = 0
    disturbed: int = 0

    def compare(self, commit: str, threshold: float) -> tuple[list[float], Side]:
        """Log ratios of the commit to GOOD, and on which side of `threshold` they lie."""
        analyses = interim_pairs(self.most)
        pairs: list[float] = []
        self.count = self.disturbed = 0
        for count in analyses:
            while len(pairs) < count:
                if len(pairs) + self.disturbed >= _TRIES * self.most:
                    return pairs, Side.OPEN
                if not self.go_on():
                    self.in_time = False
                    return pairs, Side.OPEN
                good_first = len(pairs) % 2 == 0  # neither is always the first
                values = self.measure(self.good, commit) if good_first else self.measure(commit, self.good)
                self.trials += 2
                if values.disturbed:
                    self.disturbed += 1
                    self.say(f"{commit[:12]} against GOOD: a pair does not count, since it was disturbed: {values.disturbed}")
                    continue
                pairs.append((values.second - values.first) * (1 if good_first else -1))
                self.count += 1
                self.say(f"{commit[:12]} against GOOD: {plural(len(pairs), 'pair')} of up to {analyses[-1]}")
            side = side_of(pairs, threshold, len(analyses))
            if side is not Side.OPEN:
                return pairs, side
        return pairs, Side.OPEN

    @property
    def cut_short(self) -> bool:
        """Whether the last comparison ended since other work disturbed so many of its pairs: what it could not tell may be there."""
        return self.count < self.most and self.count + self.disturbed >= _TRIES * self.most

    @property
    def left_out(self) -> str:
        """What follows a number of pairs: `, without 2 that other work disturbed`; empty where it disturbed none."""
        return f", without {self.disturbed} that other work disturbed" if self.disturbed else ""


def search(
    commits: Sequence[str],
    good: str,
    measure: MeasurePair,
    most: int,
    minimum: float,
    say: Say = lambda text: None,
    *,
    whole: Estimate | None = None,
    go_on: Callable[[], bool] = lambda: True,
) -> Bisection:
    """The first bad of `commits` (oldest first; the last one is BAD), by halving, trials of GOOD and of a commit by turns.

    First GOOD against BAD, unless `whole` is their ratio already: their difference must be clear and at least `minimum`. A commit is then
    bad if it lies beyond half of it. No pair begins once `go_on` is false.
    """
    pairs_with = _Pairs(good, measure, most, go_on, say)
    if whole is None:
        pairs, side = pairs_with.compare(commits[-1], 0.0)
        if len(pairs) < 2:
            why = f"other work disturbed {plural(pairs_with.disturbed, 'pair')}" if pairs_with.in_time else "no time was left"
            return Bisection(f"BAD could not be compared with GOOD: {why}.", trials=pairs_with.trials)
        whole = difference(pairs, 0.95)
        change = _change(whole) + pairs_with.left_out
        say(f"BAD {commits[-1][:12]} against GOOD {good[:12]}: {change}")
        if side is Side.OPEN and pairs_with.cut_short:
            text = f"BAD could not be told from GOOD: {change}. A quieter machine decides it."
            return Bisection(text, effect=whole, trials=pairs_with.trials)
        if side is not Side.BELOW or abs(whole.value - 1) < minimum:
            text = f"BAD is not clearly worse than GOOD: {change}. {_nothing(whole, side, minimum)}"
            return Bisection(text, effect=whole, trials=pairs_with.trials)
    return _halve(commits, pairs_with, whole, say)


def _halve(commits: Sequence[str], pairs_with: _Pairs, whole: Estimate, say: Say) -> Bisection:
    """The first of `commits` that lies beyond half of `whole`, the ratio of the last one to GOOD."""
    steps: list[Step] = []
    low, high = -1, len(commits) - 1  # commits[low] is good (GOOD itself at -1), commits[high] is bad
    while high - low > 1:
        middle = (low + high) // 2
        pairs, side = pairs_with.compare(commits[middle], math.log(whole.value) / 2)
        if len(pairs) > 1:
            step = Step(commits[middle], "", difference(pairs, 0.95), side)
            steps.append(step)
            say(f"{step.commit[:12]}: {(step.ratio.value - 1) * 100:+.1f} % against GOOD after {len(pairs)} pairs: {step.verdict}")
        if side is Side.OPEN:
            between = (commits[low] if low >= 0 else pairs_with.good, commits[high])
            rest = f"the commit is one of {high - low} in {between[0][:12]}..{between[1][:12]}."
            if pairs_with.in_time:
                why = f"{commits[middle][:12]} stays undecided after {len(pairs)} pairs{pairs_with.left_out}; {rest}"
                text = f"{why} More pairs (`sweep bisect --most`) or a quieter machine decide it."
            else:
                text = f"There was no time to go on: {rest}"
            return Bisection(text, None, "", between, whole, steps, pairs_with.trials)
        low, high = (middle, high) if side is Side.ABOVE else (low, middle)
    sentence = f"{commits[high]} is the first bad commit: {_change(whole)}."
    return Bisection(sentence, commits[high], "", None, whole, steps, pairs_with.trials)


def _nothing(whole: Estimate, side: Side, minimum: float) -> str:
    """What follows where BAD is not clearly worse by `minimum`, a share: it may still be, where its interval goes down so far."""
    worst = 1 - whole.low
    if side is Side.BELOW or worst < minimum:
        return "There is nothing to bisect."
    return f"That it is worse by up to {100 * worst:.1f} % is not ruled out: more pairs (`sweep bisect --most`) or a quieter machine tell."


def _change(ratio: Estimate) -> str:
    return f"{signed(*(100 * (value - 1) for value in (ratio.value, ratio.low, ratio.high)))} after {ratio.n} pairs"


# --- git and processes


def commits_between(good: str, bad: str, root: Path = REPOSITORY) -> tuple[str, list[str]]:
    """GOOD's full name, and the commits after it up to BAD, oldest first. Raises BisectError, CommitError."""
    names = [resolve(text, root) for text in (good, bad)]
    between = git(root, "rev-list", "--ancestry-path", "--first-parent", "--reverse", f"{names[0]}..{names[1]}").split()
    if not between:
        raise BisectError(f"{good} is no ancestor of {bad}: name the older commit, which was good, first")
    return names[0], between


def subject(commit: str, root: Path = REPOSITORY) -> str:
    return git(root, "log", "-1", "--format=%s", commit)
