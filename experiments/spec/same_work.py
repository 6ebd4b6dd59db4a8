"""The section `same_work` of a suite file: which axes change the work, so that only cells with equal values of them are compared."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.config.errors import choose
from experiments.metrics import metric_of
from experiments.parameters import work_parameters
from experiments.spec import matrix
from experiments.spec.profile import ProfileContext
from experiments.spec.schema import Condition, Suite
from experiments.trial import RUN_AXES

_SAYS = {"pool": "where", "environment": "with which libraries", "commit": "with which code"}


def check_same_work(profile: ProfileContext, axes: Sequence[str], conditions: Sequence[Condition]) -> list[str]:
    """`same_work`: the workload's names and the suite's, each once. A name is an axis, or a parameter that a condition sets.

    A profile may inherit a name of which it has one value only.
    """
    own: list[str] = profile.section("same_work")
    varied = list(dict.fromkeys([*axes, *(name for condition in conditions for name in condition.set)]))
    for number, name in enumerate(own):
        key = profile.key("same_work", number)
        if name in RUN_AXES:
            problem = f"{name!r} says {_SAYS[name]} a cell runs, not what it does"
            profile.complain(key, problem, f"remove it: cells of several {name}s do the same work")
        elif name in own[:number]:
            profile.complain(key, f"{name!r} is named twice", "name each axis once")
        elif name not in varied and (profile.gives("same_work") or profile.words.unknown(name, ())):
            known = [axis for axis in varied if axis not in RUN_AXES]
            profile.complain(key, f"{name!r} is not an axis, and no condition sets it", choose(name, known))
    return list(dict.fromkeys([*work_parameters(profile.words.schema), *own]))


def check_same_work_of_baseline(profile: ProfileContext, suite: Suite, cells: Sequence[matrix.PlannedCell]) -> None:
    """Complain about a baseline that names what changes the work: cells with another value of it would be compared with nothing."""
    for name in suite.baseline:
        values = {repr(cell.parameters.get(name)) for cell in cells}
        if len(values) < 2:
            continue
        key = profile.key("baseline", name)
        hint = f"leave {name} out: each cell is then compared at its own {name}; where nothing is left write `baseline: {{}}`"
        if name in suite.same_work:
            who = "the suite's same_work" if name in profile.section("same_work") else f"the workload {suite.workload}"
            profile.complain(key, f"changes the work, says {who}: cells with another {name} cannot be compared with it", hint)
        elif name == "batch_size" and metric_of(suite.report.metric).depends_on_batch:
            profile.complain(key, f"changes what {suite.report.metric} measures: other batch sizes cannot be compared with it", hint)
