"""Check one profile of a suite as a whole: its sections, then the cells they give."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.config.errors import KeyPath, Problem
from experiments.config.validate import say
from experiments.config.yaml_document import Document
from experiments.parameters import TrainingParameters
from experiments.spec import matrix
from experiments.spec.profile import ProfileContext
from experiments.spec.report_section import check_report
from experiments.spec.same_work import check_same_work, check_same_work_of_baseline
from experiments.spec.schema import MAX_PRODUCT, Axes, PoolFacts, Rounds, Suite, SuiteFile
from experiments.spec.sections import check_axes, check_baseline, check_conditions, check_exclude, check_fixed, check_include, check_linked
from experiments.spec.vocabulary import Vocabulary, too_large, with_pools


def check(
    document: Document, file: SuiteFile, name: str, schema: type[TrainingParameters], pools: Mapping[str, PoolFacts]
) -> tuple[Suite | None, list[Problem]]:
    """The profile `name` of a suite file as a Suite, or None and what is wrong with it."""
    profile = ProfileContext(document, file, name, Vocabulary(file.workload, schema, pools))
    axes = check_axes(profile)
    linked = check_linked(profile, axes)
    names = [*axes, *(name for group in linked for name in group)]
    _check_size(profile, names, axes, linked)
    if profile.problems:  # everything below refers to the axes
        return None, profile.problems
    suite = _suite(profile, names, axes, linked)
    if not profile.problems:
        suite = with_pools(suite, pools)
        try:
            expansion = matrix.expansion(suite, schema)
        except matrix.CellError as error:
            profile.complain(*_refused_cell(profile, suite, error))
        else:
            _check_rules(profile, expansion)
            _check_cells(profile, suite, expansion.cells)
            check_same_work_of_baseline(profile, suite, expansion.cells)
    return (None if profile.problems else suite), profile.problems


def _check_size(profile: ProfileContext, names: list[str], axes: Axes, linked: list[Axes]) -> None:
    """Complain about a matrix without a pool, and about one so large that its cells should not even be counted."""
    if "pool" not in names:
        profile.complain(profile.key("axes"), "has no pool", "add `pool: [cpu]`: where the trials run")
    if not profile.problems and (size := matrix.product_size(axes, linked)) > MAX_PRODUCT:
        hint = f"at most {MAX_PRODUCT} before excludes: leave out values, or make several suites"
        profile.complain(profile.key("axes"), f"span {size} cells", hint)


def _suite(profile: ProfileContext, names: list[str], axes: Axes, linked: list[Axes]) -> Suite:
    """The profile's sections as a Suite. `names` are its axes, linked ones included."""
    conditions = check_conditions(profile, names)
    include = check_include(profile, linked)
    every_axis = list(dict.fromkeys([*names, *(name for entry in include for name in entry)]))  # an include may make an axis
    suite = Suite.model_construct(
        suite=profile.file.suite,
        title=profile.file.title,
        description=profile.section("description") or profile.file.description,
        workload=profile.file.workload,
        profile=profile.name,
        file=str(profile.document.path),
        pools={},
        fixed=check_fixed(profile, names),
        axes=axes,
        linked=linked,
        conditions=conditions,
        exclude=check_exclude(profile),
        include=include,
        sets={},
        only={},
        parity_reference=profile.section("parity_reference"),
        parity_precision=profile.section("parity_precision"),
        same_work=check_same_work(profile, every_axis, conditions),
        repeats=profile.section("repeats"),
        rounds=_check_rounds(profile),
        limit=profile.section("limit"),
        baseline=check_baseline(profile, every_axis),
        report=check_report(profile, every_axis),
        retries=profile.section("retries"),
        retries_disturbed=profile.section("retries_disturbed"),
        hang_timeout_s=profile.section("hang_timeout_s"),
    )
    return suite


def _check_rounds(profile: ProfileContext) -> Rounds | None:
    """The profile's rounds. Complains about `repeats` beside them, and where the most are fewer than the least.

    A profile that gives `repeats` itself has no rounds of the suite's.
    """
    rounds: Rounds | None = profile.section("rounds")
    if rounds is None:
        return None
    repeats_given = "repeats" in profile.sections.model_fields_set
    if repeats_given and "rounds" in profile.sections.model_fields_set:
        profile.complain(profile.key("repeats"), "stands beside `rounds`, which says how often cells run", "remove one of them")
    if rounds.most < rounds.least:
        profile.complain(profile.key("rounds", "most"), f"is {rounds.most}, fewer than `least`", f"at least {rounds.least}")
    return None if repeats_given else rounds


def _check_rules(profile: ProfileContext, expansion: matrix.Expansion) -> None:
    """Complain about each condition, exclude and include that changes no cell."""
    rules = (
        ("conditions", expansion.conditions, ("when",), "matches no cell", "write values that the axes have, or remove the condition"),
        ("exclude", expansion.excludes, (), "matches no cell", "write values that the axes have, or remove the entry"),
        ("include", expansion.includes, (), "adds no cell that is not there already", "remove it"),
    )
    for section, counts, rest, problem, hint in rules:
        for number, count in enumerate(counts):
            if not count and profile.gives(section):  # what a profile inherits was made for another matrix
                profile.complain(profile.key(section, number, *rest), problem, hint)


def _check_cells(profile: ProfileContext, suite: Suite, cells: list[matrix.PlannedCell]) -> None:
    """Complain about no cells, no baseline among them, too many trials, and cells of more devices than their pool has."""
    trials = matrix.trial_count(cells, suite.repeats)
    if not cells:
        profile.complain(profile.key("exclude"), "leaves no cell", "exclude less")
    elif not any(all(matrix.same(cell.axes[name], value) for name, value in suite.baseline.items()) for cell in cells):
        own = "" if profile.gives("baseline") else "; this profile needs a baseline of its own"
        hint = f"name axis values of a cell that is there{own}"
        profile.complain(profile.key("baseline"), f"matches no cell of the profile {suite.profile}", hint)
    if trials > suite.limit:
        problem = f"{len(cells)} cells x {suite.repeats} repeats are {trials} trials, over the limit of {suite.limit}"
        profile.complain(profile.key("limit"), problem, f"raise `limit`, or leave out values (profile {suite.profile})")
    pools = profile.words.pools
    for pool, devices in sorted(too_large(cells, pools)):
        key = profile.key("axes", "devices") if "devices" in suite.axes else profile.key("fixed", "devices")
        hint = f"at most {pools[pool].capacity}; leave the combination out with `exclude`"
        profile.complain(key, f"{devices} devices are more than the pool {pool} has", hint)


def _refused_cell(profile: ProfileContext, suite: Suite, error: matrix.CellError) -> tuple[KeyPath, str, str]:
    """Where a cell that the workload refuses comes from in the file, what is wrong with it, and a hint."""
    first = error.error.errors(include_url=False)[0]
    problem, hint = say([first])
    if first["loc"]:
        name = str(first["loc"][0])
        return profile.key("axes" if name in suite.axes else "fixed", name), problem, hint
    problem = f"the cell {matrix.show(error.axes)} is refused: {problem}"
    return profile.key("axes"), problem, "exclude the combination, or change one of its values"
