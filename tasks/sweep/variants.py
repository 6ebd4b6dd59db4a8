"""The environments and commits of a plan's cells: what their names mean now, checked before anything is built or checked out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from cluster.commits.resolve import CommitError, resolve_clean
from cluster.commits.told import check, schema_of
from cluster.commits.trees import worktrees
from cluster.environments import build
from cluster.environments.build import Environment
from cluster.environments.recipe import Recipe, recipe
from cluster.pools.pool import Pool, find_pool
from experiments.config.errors import ConfigError, Problem
from experiments.spec.matrix import PlannedCell
from experiments.trial import DEFAULT_ENVIRONMENT, WORKTREE, Trial

Say = Callable[[str], None]


class Variants:
    """Looks each environment and each commit up once. `build_them`: make environments that are not there; `say`: told of it."""

    def __init__(self, pools: Mapping[str, Pool], *, build_them: bool = True, say: Say = lambda text: None) -> None:
        self._pools, self._build_them, self.say = pools, build_them, say
        self._recipes: dict[tuple[str, str], Recipe] = {}
        self._commits: dict[str, str] = {}

    def check(self, cells: Sequence[PlannedCell], file: str, sets: Collection[str] = ()) -> None:
        """Raise ConfigError with every problem of the cells' environments and commits. Builds nothing, checks nothing out.

        `sets`: what --set gives, which is then to blame, and not `file`.
        """
        problems: list[Problem] = []
        blame = {axis: "--set" if axis in sets else file for axis in ("environment", "commit")}
        digests: dict[tuple[str, str], str] = {}
        for name, pool in dict.fromkeys((cell.environment, cell.pool) for cell in cells if cell.environment != DEFAULT_ENVIRONMENT):
            try:
                digest = self.recipe(name, pool).digest
                if (other := digests.setdefault((pool, digest), name)) != name:
                    problem = f"{other} and {name} have the same content"
                    problems.append(Problem(blame["environment"], None, "environment", problem, "name another one"))
            except ConfigError as error:
                problems += [problem for problem in error.problems if problem not in problems]
        commits: dict[str, str] = {}
        for name in dict.fromkeys(cell.commit for cell in cells if cell.commit != WORKTREE):
            try:
                commit = self.commit(name) or ""
                if (other := commits.setdefault(commit, name)) != name:
                    problem = f"{other} and {name} are the same commit {commit[:12]}"
                    problems.append(Problem(blame["commit"], None, "commit", problem, "name another one"))
            except CommitError as error:
                problems.append(Problem(blame["commit"], None, "commit", str(error), ""))
        if problems:
            raise ConfigError(problems)

    def recipe(self, name: str, pool: str) -> Recipe:
        """What the environment is made from on this pool. Raises ConfigError."""
        if (name, pool) not in self._recipes:
            place = find_pool(self._pools, pool)
            if not place.embedded:
                problem = f"pool {pool} is a Ray cluster: its nodes have one environment, their image"
                raise ConfigError.one("environment", None, name, problem, "use an embedded pool, or a pool of its own for each image")
            self._recipes[name, pool] = recipe(name, place.python)
        return self._recipes[name, pool]

    def environment(self, name: str, pool: str) -> Environment | None:
        """The environment, built if it is not there and is to be; None where it is not. Raises ConfigError."""
        wanted = self.recipe(name, pool)
        return build.build(wanted, self.say) if self._build_them else build.find(wanted.digest)

    def commit(self, name: str) -> str | None:
        """The commit's 40 hex digits; None for the code as it lies here. Raises CommitError."""
        if name == WORKTREE:
            return None
        if name not in self._commits:
            self._commits[name] = resolve_clean(name)
        return self._commits[name]


def tree_of(commit: str) -> Path:
    """The commit's files. Raises CommitError."""
    return worktrees().tree(commit)


def check_commits(trials: Sequence[Trial]) -> dict[str, str]:
    """Commit -> hash of its code (its own source_tree), of those that tell it. Raises ConfigError if a commit cannot run its trials."""
    trees: dict[str, str] = {}
    problems: list[Problem] = []
    for commit in dict.fromkeys(trial.commit for trial in trials if trial.commit):
        mine = [trial for trial in trials if trial.commit == commit]
        try:
            check(list({trial.cell: trial for trial in mine}.values()), tree_of(commit))
            if tree := schema_of(tree_of(commit), mine[0].workload).tree:
                trees[commit] = tree
        except CommitError as error:
            problems.append(Problem(mine[0].suite, None, "commit", str(error), "name a later commit, or leave out what is new"))
    if problems:
        raise ConfigError(problems)
    return trees
