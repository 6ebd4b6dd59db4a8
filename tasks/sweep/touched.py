"""What a change between two commits can touch: the suites, and of them the kinds of device, whose trials run other code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.commits.resolve import differing
from cluster.pools.pool import load_pools
from experiments.config.errors import ConfigError
from experiments.config.paths import REPOSITORY
from experiments.metric import Direction
from experiments.metrics import metric_of
from experiments.spec import matrix
from experiments.spec.load import list_suites, load_suite
from experiments.spec.schema import Suite
from tasks.sweep.ab_sides import Side, parse_sides
from tasks.sweep.dataset import DatasetError
from tasks.sweep.plan import check_ready, make_plan, resolve_profile
from tasks.sweep.store import Request
from tasks.sweep.trial_key import code_changes
from tasks.sweep.variants import Variants, tree_of

_INSTALLED = ("requirements", "pyproject.toml", "environments/")  # files that say which libraries are installed


@dataclass(frozen=True)
class Touched:
    """What a change can touch of one suite. `devices`: the kinds on which its trials run other code; `files`: which, relative to the
    repository. `left_out`: why it is not measured all the same."""

    suite: str
    devices: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    left_out: str | None = None


@dataclass(frozen=True)
class Change:
    """What differs between two commits. `a`, `b`: as the user wrote them; `commits`: their hashes, None for the code here.

    `suites`: all that were looked at. `paths`: every file that differs.
    """

    a: str
    b: str
    commits: tuple[str | None, str | None]
    suites: Sequence[Touched]
    paths: Sequence[str]

    @property
    def measured(self) -> list[Touched]:
        """The suites whose cells are to be measured."""
        return [one for one in self.suites if one.devices and one.left_out is None]

    @property
    def left_out(self) -> list[Touched]:
        return [one for one in self.suites if one.left_out is not None]

    @property
    def installed(self) -> list[str]:
        """Files that differ and say which libraries are installed: both sides run with those that are."""
        return [path for path in self.paths if path.startswith(_INSTALLED)]

    @property
    def asked(self) -> list[str]:
        """Suites' files that differ: both sides run them as they lie here."""
        return [path for path in self.paths if path.startswith("experiments/suites/")]

    def without(self, suite: str, why: str) -> Change:
        """The same, with a suite left out."""
        return replace(self, suites=[replace(one, left_out=why) if one.suite == suite else one for one in self.suites])


def change_between(request: Request, a: str, b: str, suites: Sequence[str]) -> Change:
    """What the commits A and B (`worktree`: the code here) differ in, for cells of these suites, or of all suites where none is named.

    A suite that is not named and cannot be run here is left out with the reason. Starts no trial. Raises ConfigError for sides that are no
    commits, for suites that are named and cannot be read, and where none can be read: then an option is wrong for all; CommitError.
    """
    sides = parse_sides(a, b)
    if sides[0].kind != "commits":
        raise ConfigError.one("--changed", None, "", f"A and B are {sides[0].kind}", "name two commits: only code tells what it can touch")
    commits = _commit(sides[0]), _commit(sides[1])
    trees = _tree(commits[0]), _tree(commits[1])
    found, unread = [], list[ConfigError]()
    for name in suites or [info.name for info in list_suites()]:
        asked = request.model_copy(update={"suite": name})
        try:
            suite = _loaded(asked)
        except ConfigError as error:
            if suites:
                raise
            unread.append(error)
            found.append(Touched(name, left_out=str(error).splitlines()[0]))
            continue
        found.append(_touched(asked, suite, trees, named=bool(suites)))
    if unread and len(unread) == len(found):
        raise unread[0]
    return Change(a, b, commits, found, differing(*commits))


def _commit(side: Side) -> str | None:
    return Variants({}).commit(side.sets["commit"])


def _tree(commit: str | None) -> Path:
    return tree_of(commit) if commit else REPOSITORY


def _loaded(request: Request) -> Suite:
    pools = load_pools()
    profile, pool_names = resolve_profile(request, pools)
    return load_suite(request.suite, profile=profile, pools=pools, pool_names=pool_names or None, sets=request.set, only=request.only)


def _touched(request: Request, suite: Suite, trees: tuple[Path, Path], *, named: bool) -> Touched:
    changes = {device: code_changes(suite.workload, device, *trees) for device in {cell.device for cell in matrix.expand(suite)}}
    devices = frozenset(device for device, files in changes.items() if files)
    if None in changes.values() and not devices:
        return Touched(request.suite, left_out=f"A has no workload {suite.workload} to compare with")
    files = tuple(sorted({path for paths in changes.values() for path in paths or ()}))
    return Touched(request.suite, devices, files, None if named or not devices else _why_not(request, suite.report.metric))


def _why_not(request: Request, metric: str) -> str | None:
    """Why a suite that nobody named is not measured; None where it can be."""
    if metric_of(metric).direction is Direction.NEITHER:
        return f"its metric {metric} is better neither high nor low"
    try:
        check_ready(make_plan(request, build_environments=False)[0])
    except (ConfigError, DatasetError) as error:
        return str(error).splitlines()[0]
    return None
