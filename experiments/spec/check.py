"""Check one profile of a suite as a whole: its sections, then the cells they give."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.config.errors import KeyPath, Problem
from experiments.config.validate import say
from experiments.config.yaml_document import Document
from experiments.parameters import TrainingParameters
from experiments.spec import matrix
from experiments.spec.schema import MAX_PRODUCT, PoolFacts, Suite, SuiteFile
from experiments.spec.sections import Checker
from experiments.spec.vocabulary import Vocabulary, too_large, with_pools


def check(
    document: Document, file: SuiteFile, profile: str, schema: type[TrainingParameters], pools: Mapping[str, PoolFacts]
) -> tuple[Suite | None, list[Problem]]:
    """One profile as a Suite, or what is wrong with it."""
    checker = Checker(document, file, profile, Vocabulary(file.workload, schema, pools))
    axes = checker.axes(checker.section("axes"), "axes")
    for name, values in axes.items():
        checker.distinct(checker.at("axes", name), values)
    linked = checker.linked(axes)
    names = [*axes, *(name for group in linked for name in group)]
    if "pool" not in names:
        checker.complain(checker.at("axes"), "has no pool", "add `pool: [cpu]`: where the trials run")
    if checker.problems:  # everything below refers to the axes
        return None, checker.problems
    if (size := matrix.product_size(axes, linked)) > MAX_PRODUCT:
        checker.complain(
            checker.at("axes"), f"span {size} cells", f"at most {MAX_PRODUCT} before excludes: leave out values, or make several suites"
        )
        return None, checker.problems
    conditions, include = checker.conditions(names), checker.include(linked)
    axes_of_includes = list(dict.fromkeys(name for entry in include for name in entry if name not in names))
    suite = Suite.model_construct(
        suite=file.suite,
        description=checker.section("description") or file.description,
        workload=file.workload,
        profile=profile,
        file=str(document.path),
        pools={},
        fixed=checker.fixed(names),
        axes=axes,
        linked=linked,
        conditions=conditions,
        exclude=[checker.match(checker.at("exclude", number), entry) for number, entry in enumerate(checker.section("exclude"))],
        include=include,
        sets={},
        only={},
        parity_reference=checker.section("parity_reference"),
        repeats=checker.section("repeats"),
        limit=checker.section("limit"),
        baseline=checker.baseline([*names, *axes_of_includes]),
        report=checker.report([*names, *axes_of_includes]),
        retries=checker.section("retries"),
        hang_timeout_s=checker.section("hang_timeout_s"),
    )
    if suite.parity_reference and "precision" not in suite.axis_names:
        checker.complain(checker.at("parity_reference"), "needs the axis precision", "write `precision: [bf16]` under axes")
    if not checker.problems:
        suite = with_pools(suite, pools)
        try:
            expansion = matrix.expansion(suite, schema)
        except matrix.CellError as error:
            checker.complain(*_place(checker, suite, error))
        else:
            _check_cells(checker, suite, expansion)
    return (None if checker.problems else suite), checker.problems


def _check_cells(checker: Checker, suite: Suite, expansion: matrix.Expansion) -> None:
    nothing = (
        ("conditions", expansion.conditions, ("when",), "matches no cell", "write values that the axes have, or remove the condition"),
        ("exclude", expansion.excludes, (), "matches no cell", "write values that the axes have, or remove the entry"),
        ("include", expansion.includes, (), "adds no cell that is not there already", "remove it"),
    )
    for section, counts, rest, problem, hint in nothing:
        for number, count in enumerate(counts):
            if not count and checker.own(section):  # what a profile inherits was made for another matrix
                checker.complain(checker.at(section, number, *rest), problem, hint)
    cells, trials = expansion.cells, len(expansion.cells) * suite.repeats
    if not cells:
        checker.complain(checker.at("exclude"), "leaves no cell", "exclude less")
    elif not any(all(matrix.same(cell.axes[name], value) for name, value in suite.baseline.items()) for cell in cells):
        hint = "name axis values of a cell that is there" + (
            "" if checker.own("baseline") else "; this profile needs a baseline of its own"
        )
        checker.complain(checker.at("baseline"), f"matches no cell of the profile {suite.profile}", hint)
    if trials > suite.limit:
        problem = f"{len(cells)} cells x {suite.repeats} repeats are {trials} trials, over the limit of {suite.limit}"
        checker.complain(checker.at("limit"), problem, f"raise `limit`, or leave out values (profile {suite.profile})")
    for pool, devices in sorted(too_large(cells, checker.words.pools)):
        place = checker.at("axes", "devices") if "devices" in suite.axes else checker.at("fixed", "devices")
        problem = f"{devices} devices are more than the pool {pool} has"
        checker.complain(place, problem, f"at most {checker.words.pools[pool].capacity}; leave the combination out with `exclude`")


def _place(checker: Checker, suite: Suite, error: matrix.CellError) -> tuple[KeyPath, str, str]:
    """Where a cell that the workload refuses comes from in the file, and what is wrong."""
    first = error.error.errors(include_url=False)[0]
    problem, hint = say([first])
    if first["loc"]:
        name = str(first["loc"][0])
        section = "axes" if name in suite.axes else "fixed"
        return checker.at(section, name), problem, hint
    return (
        checker.at("axes"),
        f"the cell {matrix.show(error.axes)} is refused: {problem}",
        "exclude the combination, or change one of its values",
    )
