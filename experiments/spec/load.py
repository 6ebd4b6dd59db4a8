"""Find a suite by name, choose a profile, apply what the command line overrides, and check all of it before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import workloads
from experiments.config.errors import ConfigError, choose
from experiments.config.named_files import chosen_file
from experiments.config.strict import Strict
from experiments.config.yaml_document import Document
from experiments.parameters import TrainingParameters
from experiments.spec.check import check
from experiments.spec.overrides import check_overrides
from experiments.spec.schema import PoolFacts, Suite, SuiteFile
from experiments.spec.suite_files import read_suite, shown_path, suite_files
from experiments.spec.vocabulary import BASE


class SuiteInfo(Strict):
    """A line of `sweep suites`."""

    name: str
    file: str
    workload: str | None
    description: str
    profiles: list[str]
    problem: str | None = None


def list_suites() -> list[SuiteInfo]:
    """Every suite that can be named, sorted. A file that cannot be read is listed with its problem."""
    suites = []
    for name, path in sorted(suite_files().items()):
        try:
            file = read_suite(path)[1]
        except ConfigError as error:
            suites.append(SuiteInfo(name=name, file=str(shown_path(path)), workload=None, description="", profiles=[], problem=str(error)))
        else:
            info = SuiteInfo(
                name=name, file=str(shown_path(path)), workload=file.workload, description=file.description, profiles=[BASE, *file.profiles]
            )
            suites.append(info)
    return suites


def suite_file(name_or_path: str | Path) -> Path:
    """The file of a suite that is named, or given as a path. Raises ConfigError."""
    return chosen_file(str(name_or_path), suite_files, "suite", "suite")


def profile_names(name_or_path: str | Path) -> list[str]:
    """The suite's profiles, `full` first. Raises ConfigError for a file that cannot be read."""
    return [BASE, *read_suite(suite_file(name_or_path))[1].profiles]


def load_suite(
    name_or_path: str | Path,
    *,
    profile: str | None = None,
    pools: Mapping[str, PoolFacts],
    pool_names: Sequence[str] | None = None,
    sets: Mapping[str, Any] | None = None,
    only: Mapping[str, Sequence[Any]] | None = None,
    repeats: int | None = None,
    chooser: str = "--profile",
) -> Suite:
    """The chosen profile of a suite with the overrides. Every profile of the file is checked.

    `profile`: None or `full` is the suite without a profile. `pool_names` replaces the values of the pool axis; `sets` (--set) gives a
    parameter one value for all cells; `only` keeps cells with these axis values. Text in the two is read as a YAML scalar. `chooser`: the
    option, or the file, that names the profile and takes the blame for one that is not there.
    Raises ConfigError with every problem found.
    """
    document, file = read_suite(suite_file(name_or_path))
    chosen = profile or BASE
    if chosen != BASE and chosen not in file.profiles:
        problem = f"the suite {file.suite} has no such profile"
        raise ConfigError.one(chooser, None, chosen, problem, choose(chosen, [BASE, *file.profiles]))
    schema = _schema(document, file)
    suites = _checked(document, file, schema, pools)
    if not (pool_names or sets or only or repeats is not None):
        return suites[chosen]
    return check_overrides(suites[chosen], schema, pools, pool_names=pool_names or [], sets=sets or {}, only=only or {}, repeats=repeats)


def _schema(document: Document, file: SuiteFile) -> type[TrainingParameters]:
    try:
        schema: type[TrainingParameters] = workloads.load(file.workload).Parameters
        return schema
    except ConfigError as error:
        if error.problem == "unknown workload":
            raise ConfigError([document.problem(("workload",), f"unknown workload {file.workload!r}", error.hint)]) from None
        raise


def _checked(document: Document, file: SuiteFile, schema: type[TrainingParameters], pools: Mapping[str, PoolFacts]) -> dict[str, Suite]:
    suites, problems = {}, []
    for name in [BASE, *file.profiles]:
        suite, profile_problems = check(document, file, name, schema, pools)
        problems += [problem for problem in profile_problems if problem not in problems]
        if suite is not None:
            suites[name] = suite
    if problems:
        raise ConfigError(problems)
    return suites
