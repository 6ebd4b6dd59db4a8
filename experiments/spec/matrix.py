"""The cells and trials of a suite. The same suite always gives the same cells in the same order.

1. Product of all axes and linked groups, the first axis slowest.
2. Conditions set parameters (later ones win), then --set.
3. Excludes drop cells; they see the finished cell: axes, `device`, every parameter.
4. Each include adds cells: the axes it does not name take all their values. What it names wins over conditions, and a parameter it names
   that is no axis becomes one. Cells that exist already are kept once.
5. With `parity_reference`, the fp32 cells are added that the loss-parity gate needs and that are not there, and those that are there get
   as many repeats as it needs seeds: see `_with_references`.
6. --only drops cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from experiments import workloads
from experiments.non_default_parameters import default_values
from experiments.parameters import NOT_COMPILED, SAME_MATHEMATICS, TrainingParameters, as_reference, numerics_of
from experiments.spec.schema import Match, Suite
from experiments.trial import DEFAULT_ENVIRONMENT, DEFAULTS, RUN_AXES, WORKTREE, Scalar

Values = dict[str, Any]
Test = Callable[[Values], bool]


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One combination of values: the pool it runs on and the workload's complete parameters."""

    pool: str
    device: str
    axes: dict[str, Scalar]
    parameters: dict[str, Any]
    repeats: int | None = None  # None: the suite's
    reference: bool = False  # added for loss parity alone
    environment: str = DEFAULT_ENVIRONMENT
    commit: str = WORKTREE  # as git names it: main, HEAD~2, a hash


class CellError(Exception):
    """The workload refuses a combination of values that are each allowed."""

    def __init__(self, axes: Mapping[str, Scalar], error: ValidationError) -> None:
        super().__init__(f"{show(axes)}: {error.errors()[0]['msg']}")
        self.axes, self.error = dict(axes), error


@dataclass
class Expansion:
    """The cells, and how many cells each rule matched, in the rules' order: 0 means that a rule does nothing."""

    cells: list[PlannedCell] = field(default_factory=list)
    conditions: list[int] = field(default_factory=list)
    excludes: list[int] = field(default_factory=list)
    includes: list[int] = field(default_factory=list)


def expand(suite: Suite) -> list[PlannedCell]:
    """The suite's cells. Raises CellError for a cell that the workload refuses, ConfigError if there is no such workload."""
    return expansion(suite, workloads.load(suite.workload).Parameters).cells


def order(cells: Sequence[PlannedCell], repeats: int) -> list[tuple[PlannedCell, int]]:
    """(cell, repeat), repeats from 1, in the order in which trials start: A B C C B A A B C.

    Every second round runs backwards, so a steady drift of the machine affects all cells alike: exactly over an even number of rounds; what
    an odd number leaves is fitted (experiments/stats/layout.py). A cell with a number of repeats of its own takes part in so many rounds.
    """
    rounds = range(1, 1 + max((cell.repeats or repeats for cell in cells), default=0))
    places = ((cell, repeat) for repeat in rounds for cell in (cells if repeat % 2 else cells[::-1]))
    return [(cell, repeat) for cell, repeat in places if repeat <= (cell.repeats or repeats)]


def seed_of(suite: Suite, cell: PlannedCell, repeat: int) -> int:
    """The seed of a cell's repeat: the cell's own, or where repeats are seeds the one so many further."""
    return int(cell.parameters["seed"]) + (repeat - 1 if suite.repeats_are_seeds else 0)


def trial_count(cells: Sequence[PlannedCell], repeats: int) -> int:
    return sum(cell.repeats or repeats for cell in cells)


def product_size(axes: Mapping[str, Sequence[Any]], linked: Sequence[Mapping[str, Sequence[Any]]]) -> int:
    """The number of cells in the product of axes and linked groups, before any rule."""
    size = 1
    for values in axes.values():
        size *= len(values)
    for group in linked:
        size *= max(map(len, group.values()), default=0)
    return size


def expansion(suite: Suite, schema: type[TrainingParameters]) -> Expansion:
    """The cells, and how many of them each rule matched or added. Raises CellError for a cell that `schema` refuses."""
    names = suite.axis_names
    parameter_axes = [name for name in names if name not in RUN_AXES]
    base = default_values(schema) | suite.fixed
    conditions = [(_test(item.when), item.set) for item in suite.conditions]
    excludes = [_test(item) for item in suite.exclude]
    only = _test({name: list(values) for name, values in suite.only.items()})
    result = Expansion([], [0] * len(conditions), [0] * len(excludes), [0] * len(suite.include))
    seen: set[tuple[Any, ...]] = set()

    def finished(chosen: Values, strong: Values) -> Values:
        values = DEFAULTS | base | chosen
        values["device"] = suite.pools[chosen["pool"]]
        for number, (matches, setting) in enumerate(conditions):
            if matches(values):
                result.conditions[number] += 1
                values.update(setting)
        if strong:
            values.update(strong)
        return values

    def add(values: Values, *, reference: bool = False) -> bool:
        if suite.include and not reference:  # without one, the product has no cell twice
            identity = tuple([(type(value), value) for value in map(values.get, names)])
            if identity in seen:
                return False
            seen.add(identity)
        if suite.only and not only(values):
            return True
        run, device = {name: values.pop(name) for name in RUN_AXES}, values.pop("device")
        try:
            valid = schema.model_validate(values)
        except ValidationError as error:
            raise CellError({"pool": run["pool"]} | {name: values.get(name) for name in parameter_axes}, error) from None
        # single values were checked when the suite was loaded: only a schema that changes or completes them needs writing out
        parameters = values if valid.__dict__ == values else valid.model_dump(mode="json")
        axes = {name: run[name] if name in run else parameters[name] for name in names}
        result.cells.append(PlannedCell(device=device, axes=axes, parameters=parameters, **run))
        return True

    for chosen in _product(suite, {}):
        values = finished(chosen, suite.sets)
        dropped = False
        for number, matches in enumerate(excludes):
            if matches(values):
                result.excludes[number] += 1
                dropped = True
        if not dropped:
            add(values)
    for number, entry in enumerate(suite.include):
        for chosen in _product(suite, entry):
            result.includes[number] += add(finished(chosen, entry | suite.sets))
    if suite.parity_reference and "precision" not in suite.sets:
        # what --set says holds for references too, but for what makes them references
        _with_references(suite, result, lambda values: add(as_reference(values | suite.sets, suite.parity_precision), reference=True))
    return result


def _with_references(suite: Suite, result: Expansion, add: Callable[[Values], object]) -> None:
    """Give the references that are there a repeat for each seed, and `add` those that are missing. Nothing where all compute alike."""
    if len({numerics_of(cell.parameters, cell.device) for cell in result.cells}) < 2:
        return
    seeds = suite.parity_reference if suite.repeats_are_seeds else 1
    references: set[str] = set()
    for place, cell in enumerate(result.cells):
        if _is_reference(cell, suite) and _learnt(cell) not in references:
            references.add(_learnt(cell))
            if seeds > suite.repeats:
                result.cells[place] = replace(cell, repeats=seeds)
    there = len(result.cells)
    for values in _references(result.cells, suite):
        add(values)
    result.cells[there:] = [replace(cell, repeats=seeds, reference=True) for cell in result.cells[there:]]


def _learnt(cell: PlannedCell) -> str:
    """The same for cells of a pool, environment and commit that learn the same."""
    return repr(
        (
            cell.pool,
            cell.environment,
            cell.commit,
            sorted((name, value) for name, value in cell.parameters.items() if name not in SAME_MATHEMATICS),
        )
    )


def _is_reference(cell: PlannedCell, suite: Suite) -> bool:
    return as_reference(cell.parameters, suite.parity_precision) == cell.parameters


def _references(cells: Sequence[PlannedCell], suite: Suite) -> list[Values]:
    """One cell in the reference's precision, not compiled, for all cells of a pool that learn the same and have none; as the first else.

    None for the largest batch that fits: what it will be is not known, and fp32 fits less of it.
    """
    there = {_learnt(cell) for cell in cells if _is_reference(cell, suite)}
    references: dict[str, Values] = {}
    for cell in cells:
        if cell.parameters["batch_size"] != "max" and (kind := _learnt(cell)) not in there:
            run = {name: getattr(cell, name) for name in (*RUN_AXES, "device")}
            references.setdefault(kind, {**as_reference(cell.parameters, suite.parity_precision), **NOT_COMPILED, **run})
    return list(references.values())


def show(values: Mapping[str, Any]) -> str:
    """`pool=cpu precision=bf16`, as --only takes it."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def _product(suite: Suite, entry: Values) -> Iterator[Values]:
    """All combinations of axes and linked groups, those in `entry` held at their value. A linked group of which one axis is given
    keeps the rows that have that value; if there is none, `entry` has to name the whole group (checked when the suite is loaded)."""
    factors: list[list[Values]] = []
    for name, options in suite.axes.items():
        factors.append([{name: entry[name]}] if name in entry else [{name: value} for value in options])
    for group in suite.linked:
        named = {name: entry[name] for name in group if name in entry}
        rows = [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
        factors.append([row for row in rows if all(same(row[name], value) for name, value in named.items())] or [named])
    for combination in itertools.product(*factors):
        chosen: Values = {}
        for part in combination:
            chosen |= part
        yield chosen | entry


def same(left: Any, right: Any) -> bool:
    """Equal and of one type: true is not 1."""
    return type(left) is type(right) and bool(left == right)


def _test(match: Match) -> Test:
    """A function that says whether a cell's values match every key."""
    criteria = [(name, frozenset((type(v), v) for v in (value if isinstance(value, list) else [value]))) for name, value in match.items()]

    def matches(values: Values) -> bool:
        for name, options in criteria:
            value = values.get(name)  # a required parameter that nothing gives is reported when the cell is validated
            if (type(value), value) not in options:
                return False
        return True

    return matches
