"""The good commit of a cell: which of its past nights tonight's commit is measured against, and why there may be nothing to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.commits.resolve import CommitError, resolve
from experiments.config.errors import ConfigError
from experiments.regression.settle import can_pair
from experiments.trial import Trial
from tasks.nightly.history import Measured, what_changed
from tasks.nightly.pair_trials import GOOD, TONIGHT, PairMaker

# Facts of a trial that both commits of a pair have as they are tonight
_ENVIRONMENT = ("driver", "image", "libraries", "packages", "python", "torch")


@dataclass(frozen=True)
class GoodNight:
    """A night to compare with. `commit`: the one clean commit (40 hex digits) that its trials of a cell ran; None where it is not known."""

    date: str
    commit: str | None
    code_changed: bool | None  # whether tonight's trials run other code than its trials did; None where a record does not say
    environment_changed: bool


@dataclass(frozen=True)
class Partners:
    """What is measured in pairs: the first trials of both sides. `trees`: commit -> hash of its code."""

    good: Trial
    tonight: Trial
    night: GoodNight
    trees: Mapping[str, str]


@dataclass(frozen=True)
class Refused:
    """Why there are no pairs, as a sentence; and what is known to have changed since the good night."""

    why: str
    code_changed: bool | None
    environment_changed: bool


def good_night(dates: Sequence[str], past: Mapping[str, Sequence[Measured]], now: Sequence[Measured]) -> GoodNight | None:
    """The first of `dates` (`reference_nights`) whose commit is known and clean, else the first of all; None without any.

    `past`: date -> a cell's trials; `now`: tonight's.
    """
    known = [date for date in dates if clean_commit(past.get(date, []))] or list(dates)
    if not known:
        return None
    before = past.get(known[0], [])
    changed = {text.split(" ")[0] for text in what_changed(before, now)}
    codes = [{trial.facts.get("code") for trial in trials} for trials in (before, now)]
    return GoodNight(
        date=known[0],
        commit=clean_commit(before),
        code_changed=None if any(None in each or not each for each in codes) else codes[0] != codes[1],
        environment_changed=bool(changed & set(_ENVIRONMENT)),
    )


def clean_commit(trials: Sequence[Measured]) -> str | None:
    """The one commit that these trials ran, without uncommitted changes; None where they ran several or none, or it is not known."""
    commits = {trial.facts.get("git_commit") for trial in trials}
    if len(commits) != 1 or any(trial.facts.get("git_dirty") != "false" for trial in trials):
        return None
    return commits.pop()


def partners(maker: PairMaker, template: Trial, git: Mapping[str, Any], good: GoodNight | None) -> Partners | Refused:
    """The two trials that tell whether the code changed a cell, or why nothing can be paired.

    `template`: the cell's trial of tonight; `git`: the state of tonight's code (cluster/git_state.py). Checks both commits out.
    """
    if good is None:
        return Refused("no night of its baseline is left to compare with", None, False)
    if (why := _not_possible(template, git, good)) is not None:
        return Refused(why, good.code_changed, good.environment_changed)
    assert good.commit is not None
    since = f"{good.commit[:12]} of {good.date}"
    try:
        both = [maker.make(template, resolve(commit), side) for commit, side in ((good.commit, GOOD), (git["commit"], TONIGHT))]
        if not can_pair(both[0].key_parts["code"] != both[1].key_parts["code"]):
            return Refused(f"the commits change nothing that it runs since {since}", good.code_changed, good.environment_changed)
        trees = maker.check(both)
    except (CommitError, ConfigError) as error:
        return Refused(f"{since} cannot be measured: {error}", good.code_changed, good.environment_changed)
    return Partners(both[0], both[1], good, trees)


def _not_possible(template: Trial, git: Mapping[str, Any], good: GoodNight) -> str | None:
    """What can be told without a look at the commits' files."""
    if template.commit is not None:
        return f"it runs commit {template.commit[:12]} on every night"
    if not git or git["dirty"]:
        differs = f"tonight's code differs from its commit {git['commit'][:12]}: commit the changes" if git else None
        return differs or "tonight's code is of no commit"
    if good.commit is None:
        return "no night of its baseline is known to have run one clean commit"
    return f"tonight's commit {good.commit[:12]} is that of {good.date}, which was good" if good.commit == git["commit"] else None
