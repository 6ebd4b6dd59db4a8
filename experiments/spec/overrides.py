"""The command line's overrides of a checked suite: --pool, --set, --only, --repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.config.errors import ConfigError, Problem, choose
from experiments.config.validate import say
from experiments.config.yaml_document import scalar
from experiments.parameters import TrainingParameters
from experiments.spec import matrix
from experiments.spec.schema import PoolFacts, Suite
from experiments.spec.vocabulary import BAD, Vocabulary, too_large, with_pools
from experiments.trial import RUN_AXES, label

WITH_OVERRIDES = " with overrides"  # after a suite's file, where cells are wrong that it does not have without


def check_overrides(
    suite: Suite,
    schema: type[TrainingParameters],
    pools: Mapping[str, PoolFacts],
    *,
    pool_names: Sequence[str],
    sets: Mapping[str, Any],
    only: Mapping[str, Sequence[Any]],
    repeats: int | None,
) -> Suite:
    """A checked suite with the command line's overrides. Raises ConfigError with every problem found."""
    words = Vocabulary(suite.workload, schema, pools)
    problems: list[Problem] = []

    def complain(option: str, key: str, problem: str, hint: str) -> None:
        problems.append(Problem(option, None, key, problem, hint))

    def value(option: str, name: str, setting: Any) -> Any:
        """Text is read as a YAML scalar where the workload takes that, else as text."""
        options = [scalar(setting), setting] if isinstance(setting, str) and name not in RUN_AXES else [setting]
        tried = [words.value(name, item) for item in options]
        good = [clean for clean, wrong in tried if wrong is None]
        if not good and tried[0][1]:
            problem, hint = tried[0][1]
            key = "" if option == f"--{name}" else name  # --pool is said once
            complain(option, key, problem, _once_for_each(words, name, setting) or hint if option == "--only" else hint)
        return good[0] if good else BAD

    axes, clean_sets = dict(suite.axes), dict[str, Any]()
    pool_values = [*pool_names, *([str(sets["pool"])] if "pool" in sets else [])]
    for name in pool_values:
        value("--pool", "pool", name)
    for name, setting in sets.items():
        if name == "pool":
            continue
        if wrong := words.unknown(name):
            complain("--set", name, *wrong)
        elif any(name in group for group in suite.linked):
            complain("--set", name, "is linked to other axes", f"choose with --only {name}=value")
        else:
            clean_sets[name] = value("--set", name, setting)
            axes |= {name: [clean_sets[name]]} if name in axes or name in RUN_AXES else {}
    for name in only:
        if name not in suite.axis_names:
            complain("--only", name, "is not an axis", choose(name, suite.axis_names))
    named = {name: _by_label(suite, name) for name in only if name in suite.axis_names}
    clean_only = {name: [value("--only", name, known.get(str(item), item)) for item in only[name]] for name, known in named.items()}
    if repeats is not None and not 1 <= repeats <= 1000:
        complain("--repeats", "", f"is {repeats}", "should be 1 to 1000")
    if problems:
        raise ConfigError(problems)
    if pool_values:
        axes |= {"pool": list(dict.fromkeys(pool_values))} if "pool" in axes else {}
        clean_only["pool"] = [name for name in clean_only.get("pool", pool_values) if name in pool_values]  # linked and included cells too
    update = {"axes": axes, "sets": clean_sets, "only": clean_only, "repeats": repeats or suite.repeats}
    if repeats is not None:  # as often, and no more
        update["rounds"] = None
    changed = with_pools(suite.model_copy(update=update), pools)
    _check_cells(changed, schema, pools)
    return changed


def _once_for_each(words: Vocabulary, axis: str, setting: Any) -> str:
    """What to write instead of several values in one; empty where that is none. Said even where some are wrong: as one none is read."""
    each = [one.strip() for one in str(setting).split(",")]
    right = [one for one in each if words.value(axis, scalar(one))[1] is None]
    return f"give --only once for each: {' '.join(f'--only {axis}={one}' for one in each)}" if len(each) > 1 and right else ""


def _by_label(suite: Suite, axis: str) -> dict[str, Any]:
    """The axis' values by what tables call them where that is another text: MP-1 for dataloader_workers 1."""
    values = [*suite.axes.get(axis, ()), *(value for group in suite.linked for value in group.get(axis, ()))]
    return {text: value for value in values if (text := label(axis, value)) != str(value)}


def _check_cells(suite: Suite, schema: type[TrainingParameters], pools: Mapping[str, PoolFacts]) -> None:
    where = f"{suite.file}{WITH_OVERRIDES}"
    try:
        cells = matrix.expansion(suite, schema).cells
    except matrix.CellError as error:
        problem, hint = say(error.error.errors(include_url=False)[:1])
        raise ConfigError.one(where, None, "", f"the cell {matrix.show(error.axes)} is refused: {problem}", hint) from None
    if not cells:
        every = matrix.expansion(suite.model_copy(update={"only": {}}), schema).cells
        for name, values in suite.only.items():
            present = list(dict.fromkeys(cell.axes[name] for cell in every))
            for item in values:
                if not any(matrix.same(item, other) for other in present):
                    fixed = f", as --set fixes it at {present[0]}" if name in suite.sets else ""
                    hint = "leave one of the two out" if fixed else f"known: {', '.join(map(str, present))}"
                    raise ConfigError.one("--only", None, name, f"no cell has the value {item}{fixed}", hint)
        raise ConfigError.one("--only", None, "", "no cell has all these values", "leave one out; `sweep plan` shows the cells")
    trials = matrix.trial_count(cells, suite.repeats)
    if trials > suite.limit:
        problem = f"{len(cells)} cells x {suite.repeats} repeats are {trials} trials, over the limit of {suite.limit}"
        raise ConfigError.one(where, None, "limit", problem, "choose fewer with --only or --repeats, or raise `limit` in the file")
    for pool, devices in sorted(too_large(cells, pools)):
        problem = f"{devices} devices are more than the pool {pool} has"
        raise ConfigError.one(where, None, "devices", problem, f"at most {pools[pool].capacity}")
