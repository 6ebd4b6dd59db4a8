"""The last good commit of a cell: which of its past nights tonight's commit is measured against, and why there may be none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.commits.resolve import CommitError, resolve
from cluster.pools.pool import Pool
from experiments.config.errors import ConfigError
from experiments.stats.verdict import Verdict
from experiments.trial import Trial
from tasks.nightly.history import Measured
from tasks.nightly.pair_trials import GOOD, TONIGHT, PairMaker

_LOOK_BACK = 3  # nights: what is too small for the screen of one night stands out in one of as many


@dataclass(frozen=True)
class GoodNight:
    """A night, and the commit (40 hex digits) that all its trials of a cell ran."""

    date: str
    commit: str


@dataclass(frozen=True)
class Partners:
    """The first trials of both sides of a cell's pairs."""

    good: Trial
    tonight: Trial
    good_date: str


def last_good(baseline: Sequence[str], past: Mapping[str, Sequence[Measured]], verdicts: Mapping[str, Verdict]) -> GoodNight | None:
    """The newest night of a baseline that was called the same and ran one clean commit; None where no night ran one.

    `baseline`: dates of the segment without open alarms, oldest first; `past`, `verdicts`: by date. Where no night was called the same (the
    first nights are recorded only, those of a noisy cell undecided) it is the third newest: what one night's screen lets pass must not be
    what the next night is compared with.
    """
    known = [GoodNight(date, commit) for date in baseline if (commit := clean_commit(past.get(date, [])))]
    same = [night for night in known if verdicts.get(night.date) is Verdict.SAME]
    return same[-1] if same else known[-_LOOK_BACK:][0] if known else None


def clean_commit(trials: Sequence[Measured]) -> str | None:
    """The one commit that these trials ran, without uncommitted changes; None where they ran several, none, or it is not known."""
    commits = {trial.facts.get("git_commit") for trial in trials}
    if len(commits) != 1 or any(trial.facts.get("git_dirty") != "false" for trial in trials):
        return None
    return commits.pop()


def partners(maker: PairMaker, template: Trial, pool: Pool, git: Mapping[str, Any], good: GoodNight | None) -> Partners | str:
    """The two trials that decide whether the code made a cell worse, or a sentence that says why nothing can be paired.

    `template`: the cell's trial of tonight; `git`: the state of tonight's code (cluster/git_state.py). Looks at the commit's files.
    """
    if (reason := _not_possible(template, pool, git, good)) is not None or good is None:
        return reason or ""
    since = f"{good.commit[:12]} of {good.date}"
    try:
        trials = [maker.make(template, resolve(commit), side) for commit, side in ((good.commit, GOOD), (git["commit"], TONIGHT))]
        if trials[0].key_parts["code"] == trials[1].key_parts["code"]:
            return f"the code that the cell runs is that of {since}: its environment is the suspect"
        maker.check(trials)
    except (CommitError, ConfigError) as error:
        return f"the last good commit {since} cannot be measured: {error}"
    return Partners(*trials, good_date=good.date)


def _not_possible(template: Trial, pool: Pool, git: Mapping[str, Any], good: GoodNight | None) -> str | None:
    """What can be told without a look at the commits' files."""
    if not pool.embedded:
        return f"pool {pool.name} is a cluster, whose trials run the code here and no other commit"
    if template.commit is not None:
        return f"the cell runs commit {template.commit[:12]} on every night: its environment is the suspect"
    if not git:
        return "tonight's code is of no commit"
    if git["dirty"]:
        return f"tonight's code differs from its commit {git['commit'][:12]}: commit the changes"
    if good is None:
        return "no night of its baseline is known to have run one clean commit"
    if good.commit == git["commit"]:
        return f"tonight's commit {good.commit[:12]} is that of {good.date}, the last good night: its environment is the suspect"
    return None
