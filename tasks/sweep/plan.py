"""Turn a request into a plan: the suite, validated and expanded, with each trial's key, and what of it is done already."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any, Literal

from cluster.git_state import git_state
from cluster.pools.pool import Pool, find_pool, load_pools
from cluster.pools.probe import probe
from experiments import workloads
from experiments.config.errors import ConfigError, Problem
from experiments.config.scalar_text import yaml_text
from experiments.config.strict import Strict
from experiments.spec import matrix
from experiments.spec.load import load_suite, profile_names
from experiments.spec.schema import Suite
from experiments.trial import DataSource, Scalar, Trial, digest, key_parts, trial_key
from tasks.sweep import dataset
from tasks.sweep.store import Plan, Request, Superseded, SweepStore, list_sweeps, new_sweep_id
from tasks.sweep.trial_key import code_version, libraries_version


class TrialState(Strict):
    """What a plan says of one trial: to do, done, or to be done again and why."""

    trial: Trial
    state: Literal["done", "to do", "again"]
    why: str | None = None


def make_plan(request: Request, sweep_id: str | None = None) -> tuple[Plan, Suite]:
    """Validate everything and expand. Starts nothing. Raises ConfigError or DatasetError."""
    known = load_pools()
    profile, pool_names = _resolve_profile(request, known)
    suite = load_suite(
        request.suite,
        profile=profile,
        pools=known,
        pool_names=pool_names or None,
        sets=request.set,
        only=request.only,
        repeats=request.repeats,
    )
    sweep_id = sweep_id or new_sweep_id(suite.suite)
    maker = TrialMaker(sweep_id, known)
    ordered = matrix.order(matrix.expand(suite), suite.repeats)
    trials = [maker.make(suite, cell, repeat, index) for index, (cell, repeat) in enumerate(ordered)]
    plan = Plan(
        sweep_id=sweep_id,
        suite=suite,
        request=request,
        profile=profile,
        command=command_of(request, profile),
        created_at=time.time(),
        git=git_state(),
        trials=trials,
    )
    return plan, suite


class CurrentInputs:
    """What a trial is made of besides its configuration, as it is now: code, data and libraries. Each data set is looked at once."""

    def __init__(self, known: Mapping[str, Pool]) -> None:
        self._known = known
        self._sources: dict[str, DataSource | None] = {}

    def source(self, parameters: Mapping[str, Any]) -> DataSource | None:
        """The data set of a trial with these parameters. Raises DatasetError."""
        asked = digest({name: parameters.get(name) for name in ("dataset", "drawn_rows")})
        if asked not in self._sources:
            self._sources[asked] = dataset.resolve(parameters)
        return self._sources[asked]

    def key_parts(self, workload: str, pool: str, device: str, source: DataSource | None) -> dict[str, str]:
        """code, data and libraries. Raises ConfigError for a pool that is not there, or code that is not Python."""
        return {
            "code": code_version(workload, device),
            "data": source.fingerprint if source else "none",
            "libraries": libraries_version(find_pool(self._known, pool)),
        }


class TrialMaker:
    """Makes the trials of one sweep."""

    def __init__(self, sweep_id: str, known: Mapping[str, Pool]) -> None:
        self.sweep_id, self._known = sweep_id, known
        self._inputs = CurrentInputs(known)

    def make(
        self,
        suite: Suite,
        cell: matrix.PlannedCell,
        repeat: int,
        index: int,
        *,
        axes: Mapping[str, Scalar] | None = None,
        apart: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Trial:
        """One trial of a cell. `axes`: to be shown instead of the cell's own; `apart`: what makes it another cell though it computes the
        same; `labels`: tags for MLflow. Raises DatasetError."""
        pool = self._known[cell.pool]
        source = self._inputs.source(cell.parameters)
        configuration = {"workload": suite.workload, "pool": cell.pool, "device": pool.device, "parameters": cell.parameters}
        configuration |= dict(apart or {})
        parts = key_parts(
            configuration=configuration,
            **self._inputs.key_parts(suite.workload, cell.pool, pool.device, source),
            seed=int(cell.parameters["seed"]),
            repeat=repeat,
            sweep=self.sweep_id,
        )
        return Trial(
            key=trial_key(parts),
            key_parts=parts,
            sweep_id=self.sweep_id,
            suite=suite.suite,
            workload=suite.workload,
            pool=cell.pool,
            device=pool.device,
            emulated=pool.emulated,
            cell=digest(configuration),
            repeat=repeat,
            index=index,
            axes=dict(axes if axes is not None else cell.axes),
            parameters=cell.parameters,
            data=source,
            labels=dict(labels or {}),
        )


def once_more(trial: Trial, repeat: int, index: int) -> Trial:
    """Another repeat of a trial's cell."""
    parts = {**trial.key_parts, "repeat": str(repeat)}
    return trial.model_copy(update={"key": trial_key(parts), "key_parts": parts, "repeat": repeat, "index": index})


def check_ready(plan: Plan) -> None:
    """Raise ConfigError if a trial needs a value that nobody gave, such as a data set that cannot be brought along."""
    lacking: dict[str, str] = {}
    for trial in plan.trials:
        lacking |= workloads.load(trial.workload).Parameters.model_validate(trial.parameters).lacking()
    if lacking:
        file = plan.suite.file or plan.request.suite
        raise ConfigError([Problem(file, None, name, "is not set", f"give {what}: --set {name}=...") for name, what in lacking.items()])


def renew(plan: Plan) -> Plan:
    """The same plan under today's code, data and libraries: a trial whose key changes is superseded, with what changed."""
    inputs = CurrentInputs(load_pools())
    trials, superseded = [], list(plan.superseded)
    for trial in plan.trials:
        source = inputs.source(trial.parameters)
        parts = {**trial.key_parts, **inputs.key_parts(trial.workload, trial.pool, trial.device, source)}
        key = trial_key(parts)
        if key != trial.key:
            superseded.append(Superseded(key=trial.key, by=key, why=changed(trial.key_parts, parts)))
            trial = trial.model_copy(update={"key": key, "key_parts": parts, "data": source})  # noqa: PLW2901
        trials.append(trial)
    return plan.model_copy(update={"trials": trials, "superseded": superseded})


def changed(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Which parts of a key differ: `code changed (3f2a... -> 91bc...)`."""
    names = [name for name in new if old.get(name) != new[name]]
    return "; ".join(f"{name} changed ({old.get(name, 'none')[:8]} -> {new[name][:8]})" for name in names)


def states(plan: Plan) -> list[TrialState]:
    """For a plan of an existing sweep: what is done in it, and why the rest runs (again)."""
    store = SweepStore(plan.sweep_id)
    why = {entry.by: entry.why for entry in plan.superseded}
    found = []
    for trial in plan.trials:
        result = store.result(trial.key)
        if result is not None and result.outcome.final:
            found.append(TrialState(trial=trial, state="done", why=str(result.outcome)))
        elif result is not None:
            found.append(TrialState(trial=trial, state="again", why=f"ended as {result.outcome}: {result.reason}"))
        elif trial.key in why:
            found.append(TrialState(trial=trial, state="again", why=why[trial.key]))
        else:
            found.append(TrialState(trial=trial, state="to do"))
    return found


def compare_with_last(plan: Plan) -> tuple[str | None, list[TrialState]]:
    """For a new plan: how each trial stands against the newest sweep of the same suite, and that sweep's id."""
    for sweep_id in list_sweeps():
        store = SweepStore(sweep_id)
        old = store.load_plan()
        if not old.trials or old.trials[0].suite != plan.trials[0].suite or sweep_id == plan.sweep_id:
            continue
        earlier = {(trial.repeat, digest({"pool": trial.pool, **trial.parameters})): trial for trial in old.trials}
        found = []
        for trial in plan.trials:
            before = earlier.get((trial.repeat, digest({"pool": trial.pool, **trial.parameters})))
            result = store.result(before.key) if before else None
            if before is None or result is None:
                found.append(TrialState(trial=trial, state="to do"))
                continue
            difference = changed({**before.key_parts, "sweep": ""}, {**trial.key_parts, "sweep": ""})
            if result.outcome.final and not difference:
                found.append(TrialState(trial=trial, state="done", why=str(result.outcome)))
            else:
                found.append(TrialState(trial=trial, state="again", why=difference or f"ended as {result.outcome}: {result.reason}"))
        if any(entry.state != "to do" for entry in found):  # else it has no cell of this plan
            return sweep_id, found
    return None, [TrialState(trial=trial, state="to do") for trial in plan.trials]


def expected_seconds(plan: Plan) -> dict[str, float]:
    """Seconds each cell took when it last ended `ok` in any sweep here, by cell; cells without history are absent."""
    wanted = {trial.cell for trial in plan.trials}
    found: dict[str, float] = {}
    for sweep_id in list_sweeps():
        store = SweepStore(sweep_id)
        for trial in store.load_plan().trials:
            if trial.cell in wanted and trial.cell not in found:
                result = store.result(trial.key)
                if result is not None and result.outcome.expected:
                    found[trial.cell] = result.finished_at - result.started_at
        if len(found) == len(wanted):
            break
    return found


def command_of(request: Request, profile: str) -> str:
    """The command line that asks for the same sweep."""
    words = ["sweep", "run", request.suite, "--profile", profile]
    for pool in request.pools:
        words += ["--pool", pool]
    for name, value in request.set.items():
        words += ["--set", f"{name}={yaml_text(value)}"]
    for axis, values in request.only.items():
        words += [word for value in values for word in ("--only", f"{axis}={yaml_text(value)}")]
    if request.repeats is not None:
        words += ["--repeats", str(request.repeats)]
    if request.pool_wait_s is not None:
        words += ["--pool-wait", f"{request.pool_wait_s:g}"]
    return shlex.join(words)


def _resolve_profile(request: Request, known: Mapping[str, Pool]) -> tuple[str, list[str]]:
    """`auto`: full size on the accelerator pools that answer (those asked for, else the suite's own), else smoke if there is one."""
    if request.profile != "auto":
        return request.profile, request.pools
    small = "smoke" if "smoke" in profile_names(request.suite) else "full"
    if request.pools:
        accelerated = any(known[name].device != "cpu" and not known[name].emulated for name in request.pools if name in known)
        return ("full" if accelerated else small), request.pools
    full = load_suite(request.suite, profile="full", pools=known)
    candidates = dict.fromkeys([*(cell.pool for cell in matrix.expand(full)), *(name for name, pool in known.items() if pool.embedded)])
    reachable = [name for name in candidates if known[name].device != "cpu" and not known[name].emulated and probe(known[name]).reachable]
    return ("full", reachable) if reachable else (small, [])
