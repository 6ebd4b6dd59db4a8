"""The commits between two, and the search over pairs."""

from __future__ import annotations

import subprocess
from itertools import cycle
from pathlib import Path

import pytest

from cluster.commits.resolve import CommitError
from experiments.regression.bisection_test import difference
from tasks.nightly.bisect import BisectError, PairValues, commits_between, search, subject
from tests.tasks.nightly.bisect_support import pairs_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits, one file."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in (1, 2, 3):
        (root / "file").write_text(str(number))
        git(root, "add", "file")
        git(root, "-c", "user.name=n", "-c", "user.email=n@localhost", "commit", "-q", "-m", f"number {number}")
    return root


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_commits_are_listed_oldest_first_without_the_good_one(repository: Path) -> None:
    good, commits = commits_between("HEAD~2", "main", repository)
    assert good == git(repository, "rev-parse", "HEAD~2")
    assert [subject(commit, repository) for commit in commits] == ["number 2", "number 3"]


def test_commits_that_cannot_be_compared_are_named(repository: Path) -> None:
    with pytest.raises(CommitError, match="'nowhere' is no commit"):
        commits_between("nowhere", "main", repository)
    with pytest.raises(BisectError, match="main is no ancestor of HEAD~1: name the older commit"):
        commits_between("main", "HEAD~1", repository)
    with pytest.raises(CommitError, match="is no commit"):
        commits_between("--all", "main", repository)


# --- a search that begins with what is known, and has a time

SIX = [f"{number}" * 40 for number in range(1, 7)]
BASE = "0" * 40


def rates(commit: str) -> float:
    """Of a slow-down by 8 % with the fourth commit."""
    return -0.08 if commit >= SIX[3] else 0.0


def test_a_known_difference_is_not_measured_again() -> None:
    order: list[str] = []

    def measure(commit: str) -> float:
        order.append(commit[0])
        return rates(commit)

    found = search(SIX, BASE, pairs_of(measure), 12, 0.03, whole=difference([-0.08, -0.081, -0.079], 0.95))
    assert found.commit == SIX[3] and "6" not in order
    assert found.trials == len(order) == 12 and "-7.7 %" in found.sentence and "after 3 pairs" in found.sentence


@pytest.mark.parametrize(("before", "first_bad"), [(0.042, 1), (0.038, 3)])
def test_the_first_bad_commit_is_beyond_half_of_the_whole_difference(before: float, first_bad: int) -> None:
    """Of a slow-down by 8 % with the fourth commit, a part of which came with the second."""

    def measure(commit: str) -> float:
        return -0.08 if commit >= SIX[3] else -before if commit >= SIX[1] else 0.0

    found = search(SIX, BASE, pairs_of(measure), 12, 0.03, whole=difference([-0.08, -0.0801, -0.0799], 0.95))
    assert found.commit == SIX[first_bad]


@pytest.mark.parametrize(("pairs", "between"), [(3, (BASE, SIX[5])), (5, (BASE, SIX[5])), (6, (SIX[2], SIX[5])), (8, (SIX[2], SIX[5]))])
def test_time_that_ends_leaves_the_range_that_is_known(pairs: int, between: tuple[str, str]) -> None:
    left = iter([True] * pairs)
    found = search(SIX, BASE, pairs_of(rates), 12, 0.03, go_on=lambda: next(left, False))
    assert (found.commit, found.between) == (None, between)
    assert "no time to go on" in found.sentence and found.trials == 2 * pairs


def test_without_time_for_a_pair_nothing_is_said_of_the_commits() -> None:
    found = search(SIX, BASE, pairs_of(rates), 12, 0.03, go_on=lambda: False)
    assert (found.commit, found.between, found.trials) == (None, None, 0) and "no time was left" in found.sentence


def test_disturbed_pairs_do_not_count_and_others_are_measured_in_their_place() -> None:
    """Every second pair is disturbed: twice the trials, the same commit."""
    said: list[str] = []
    turns = iter([True, False] * 100)
    found = search(SIX, BASE, pairs_of(rates, lambda: next(turns)), 12, 0.03, said.append)
    quiet = search(SIX, BASE, pairs_of(rates), 12, 0.03)
    assert (found.commit, found.trials) == (SIX[3], 2 * quiet.trials)
    assert [(step.commit, step.ratio, step.verdict) for step in found.steps] == [(s.commit, s.ratio, s.verdict) for s in quiet.steps]
    assert said[0] == f"{SIX[5][:12]} against GOOD: a pair does not count, since it was disturbed: made up"
    assert said[1] == f"{SIX[5][:12]} against GOOD: 1 pair of up to 12", "half an hour had no line"
    assert "after 3 pairs, without 3 that other work disturbed" in next(text for text in said if text.startswith("BAD"))


@pytest.mark.parametrize(("quiet", "text"), [(4, "told"), (5, "worse")])
def test_what_a_busy_machine_hid_is_not_called_the_same(quiet: int, text: str) -> None:
    """BAD is 8 % slower on the mean, and too rough to tell by so few pairs."""
    rough, calm = iter([0.0, 0.2] * 50), iter([False] * quiet)
    found = search(SIX[5:], BASE, pairs_of(lambda c: (c != BASE) * (next(rough) - 0.18), lambda: next(calm, True)), 5, 0.03)
    assert (found.commit, found.effect and found.effect.n) == (None, quiet)
    hid = f"BAD could not be told from GOOD: {{}} after {quiet} pairs, without {10 - quiet} that other work disturbed. A quieter machine"
    all_counted = f"BAD is not clearly worse than GOOD: {{}} after {quiet} pairs. That it is worse by up to 17.8 % is not ruled out: more"
    before, after = (hid if text == "told" else all_counted).split("{}")
    assert found.sentence.startswith(before) and after in found.sentence


def test_the_pairs_that_count_begin_with_either_commit_by_turns() -> None:
    begun: list[str] = []

    def measure(first: str, second: str) -> PairValues:
        begun.append(first[0])
        return PairValues(rates(first), rates(second), "made up" if len(begun) % 3 == 2 else None)

    search(SIX[5:], BASE, measure, 5, 0.03)
    assert "".join(begun) == "0660"[: len(begun)] and len(begun) == 4, "the second is disturbed, and its like comes again"


def test_what_was_disturbed_in_one_comparison_is_not_told_of_the_next() -> None:
    apart, turns = cycle([0.02, -0.02]), iter([True] * 3)

    def measure(commit: str) -> float:
        return {SIX[2]: -0.04, SIX[5]: -0.08}.get(commit, 0.0) + (next(apart) if commit == SIX[2] else 0.0)

    found = search(SIX, BASE, pairs_of(measure, lambda: next(turns, False)), 5, 0.03)
    assert f"{SIX[2][:12]} stays undecided after 5 pairs; the commit is one of 6" in found.sentence


def test_a_machine_that_stays_busy_ends_the_search_after_twice_the_most_pairs() -> None:
    found = search(SIX, BASE, pairs_of(rates, lambda: True), 5, 0.03)
    assert (found.commit, found.between, found.trials) == (None, None, 20)
    assert found.sentence == "BAD could not be compared with GOOD: other work disturbed 10 pairs."
    quiet = iter([False] * 3)
    found = search(SIX, BASE, pairs_of(rates, lambda: next(quiet, True)), 5, 0.03)
    assert (found.commit, found.between, found.trials) == (None, (BASE, SIX[5]), 6 + 20)
    assert "stays undecided after 0 pairs, without 10 that other work disturbed" in found.sentence
