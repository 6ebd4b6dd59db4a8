"""Turn a request into a plan: validate and expand the suite, compute each trial's key, and find out which trials are done."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from cluster import launchers
from cluster.git_state import git_state
from cluster.pools.placement import price_of
from cluster.pools.pool import Pool, find_pool, load_pools
from cluster.pools.probe import probe
from cluster.source_tree import source_tree
from experiments import workloads
from experiments.canonical_json import canonical_json
from experiments.config.errors import ConfigError, Problem
from experiments.config.strict import Strict
from experiments.spec import matrix
from experiments.spec.load import load_suite, profile_names
from experiments.spec.schema import Suite
from experiments.spec.traced import with_traces
from experiments.trial import DEFAULT_ENVIRONMENT, DataSource, Scalar, Trial, digest, key_parts, trial_key
from tasks.sweep import own_data
from tasks.sweep.decide_settings import decide_settings
from tasks.sweep.priced import check_priced
from tasks.sweep.request_text import command_of
from tasks.sweep.store import Plan, Request, Superseded, SweepStore, new_sweep_id, readable_plans, readable_result
from tasks.sweep.trial_key import code_version, libraries_version
from tasks.sweep.trial_record import checked, keep_whole
from tasks.sweep.variants import Say, Variants, check_commits, tree_of
from tasks.sweep.what_is_left import end_is_unknown, is_measured_again


class TrialState(Strict):
    """Whether a trial is done, to do, or to be done again, and why."""

    trial: Trial
    state: Literal["done", "to do", "again"]
    why: str | None = None


def make_plan(
    request: Request,
    sweep_id: str | None = None,
    *,
    plain: bool = True,
    build_environments: bool = True,
    say: Say = lambda text: None,
) -> tuple[Plan, Suite]:
    """The plan and the suite of a request, fully validated. Starts no trial. Raises ConfigError, CommitError or DatasetError.

    `plain`: false for what becomes a race, an A/A or an A/B sweep, which trace what their suite asks for alone. Environments that its cells
    name are built, unless `build_environments` is false; `say` is told of that.
    """
    pools = load_pools()
    profile, pool_names = resolve_profile(request, pools)
    suite = load_suite(
        request.suite,
        profile=profile,
        pools=pools,
        pool_names=pool_names or None,
        sets=request.set,
        only=request.only,
        repeats=request.repeats,
    )
    sweep_id = sweep_id or new_sweep_id(suite.suite)
    decide = decide_settings(request, suite)
    cells, variants = matrix.expand(suite), Variants(pools, build_them=build_environments, say=say)
    cells = with_traces(cells, suite) if plain else cells
    variants.check(cells, suite.file or request.suite, suite.sets)
    maker = TrialMaker(sweep_id, pools, variants)
    ordered = [(cell, 1) for cell in cells] if decide else matrix.order(cells, suite.repeats)
    trials = [
        maker.make(suite, cell, repeat, index, seed=matrix.seed_of(suite, cell, repeat)) for index, (cell, repeat) in enumerate(ordered)
    ]
    plan = Plan(
        sweep_id=sweep_id,
        suite=suite,
        request=request,
        profile=profile,
        command=command_of(request, profile),
        created_at=time.time(),
        git=git_state(),
        tree=source_tree(),
        trees=check_commits(trials),
        trials=trials,
        decide=decide,
    )
    return plan, suite


class CurrentInputs:
    """The current code, data and libraries, which a trial's key holds besides its configuration. Looks at each data set once."""

    def __init__(self, pools: Mapping[str, Pool], variants: Variants | None = None) -> None:
        self._pools, self.variants = pools, variants or Variants(pools)
        self._folders = own_data.Folders(self.variants.say)

    def data(self, workload: str, parameters: Mapping[str, Any]) -> own_data.Settled:
        """The data set of a trial with these parameters, and what was guessed of them. Raises DatasetError."""
        return self._folders.settle(workload, parameters)

    def key_parts(
        self, workload: str, pool: str, device: str, source: DataSource | None, *, environment: str | None = None, commit: str | None = None
    ) -> dict[str, str]:
        """The key parts code, data and libraries; of an environment (its name) and a commit (its hash) where a trial has them.

        Raises ConfigError for an unknown pool or environment or code that is not valid Python, CommitError for a commit without files.
        """
        return {
            "code": code_version(workload, device, tree_of(commit)) if commit else code_version(workload, device),
            "data": source.fingerprint if source else "none",
            "libraries": self._libraries(pool, environment),
        }

    def _libraries(self, pool: str, environment: str | None) -> str:
        if environment is None:
            return libraries_version(find_pool(self._pools, pool))
        built = self.variants.environment(environment, pool)
        if built is None:
            return digest({"not built": self.variants.recipe(environment, pool).digest})
        return libraries_version(find_pool(self._pools, pool), built)


class TrialMaker:
    """Makes the trials of one sweep."""

    def __init__(self, sweep_id: str, pools: Mapping[str, Pool], variants: Variants | None = None) -> None:
        self.sweep_id, self._pools = sweep_id, pools
        self._inputs = CurrentInputs(pools, variants)

    def make(
        self,
        suite: Suite,
        cell: matrix.PlannedCell,
        repeat: int,
        index: int,
        *,
        seed: int | None = None,
        axes: Mapping[str, Scalar] | None = None,
        apart: Mapping[str, Any] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Trial:
        """One trial of a cell. Raises DatasetError, ConfigError, CommitError.

        `seed`: in place of the cell's, for this repeat of it. `axes`: shown instead of the cell's own. `apart`: added to the
        configuration, to make another cell of one that computes the same.
        `labels`: tags of its MLflow run.
        """
        pool = self._pools[cell.pool]
        data = self._inputs.data(suite.workload, cell.parameters)
        parameters = {**cell.parameters, **data.parameters, **({} if seed is None else {"seed": seed})}
        configuration: dict[str, Any] = {"workload": suite.workload, "pool": cell.pool, "device": pool.device}
        configuration |= {"parameters": cell.parameters, **(apart or {})}
        if pool.lock_clocks_mhz is not None:  # another clock is another cell; a pool that locks none keeps its cells
            configuration["lock_clocks_mhz"] = pool.lock_clocks_mhz
        variants = self._inputs.variants
        environment = None if cell.environment == DEFAULT_ENVIRONMENT else cell.environment
        run: dict[str, Any] = {"environment": environment, "commit": variants.commit(cell.commit)}
        configuration |= {name: value for name, value in run.items() if value}  # likewise: without them a cell is what it was
        parts = key_parts(
            configuration=configuration,
            **self._inputs.key_parts(suite.workload, cell.pool, pool.device, data.source, **run),
            seed=int(parameters["seed"]),
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
            lock_clocks_mhz=pool.lock_clocks_mhz,
            **run,
            environment_digest=variants.recipe(environment, cell.pool).digest if environment else None,
            cell=parts["configuration"],
            repeat=repeat,
            reference=cell.reference,
            index=index,
            axes=dict(axes if axes is not None else cell.axes),
            parameters=parameters,
            data=data.source,
            labels=dict(labels or {}),
            price=price_of(pool, parameters),
        )


def once_more(trial: Trial, repeat: int, index: int, *, seed: int | None = None) -> Trial:
    """Another repeat of a trial's cell; `seed`: in place of the trial's own."""
    parts = {**trial.key_parts, "repeat": str(repeat)}
    changed: dict[str, Any] = {"repeat": repeat, "index": index}
    if seed is not None:
        parts["seed"] = str(seed)
        changed["parameters"] = {**trial.parameters, "seed": seed}
    return trial.model_copy(update={**changed, "key": trial_key(parts), "key_parts": parts})


def check_ready(plan: Plan) -> None:
    """Raise ConfigError if a parameter or a price lacks that it needs (`check_values`), or a pool cannot run trials."""
    check_values(plan)
    check_configured(plan, plan.trials)


def check_values(plan: Plan) -> None:
    """Raise ConfigError if a parameter that needs a value has none, such as a data set of the user's own, or no price where costs are
    compared. Looks for no device."""
    lacking: dict[str, str] = {}
    schemas = {name: workloads.load(name).Parameters for name in dict.fromkeys(trial.workload for trial in plan.trials)}
    for trial in plan.trials:
        lacking |= schemas[trial.workload].model_validate(trial.parameters).lacking()
    if lacking:
        file = plan.suite.file or plan.request.suite
        raise ConfigError([Problem(file, None, name, "is not set", f"give {what}: --set {name}=...") for name, what in lacking.items()])
    check_priced(plan)


def check_configured(plan: Plan, trials: Sequence[Trial]) -> None:
    """Raise ConfigError if the pool of one of these trials cannot run any: it has no address, or is this machine and has no such device.

    A cluster that is down is waited for.
    """
    lacking = lacking_pools(trials)
    rest = " ".join(f"--pool {name}" for name in dict.fromkeys(trial.pool for trial in trials) if name not in lacking)
    other = f"or run the rest: {rest}" if rest else "or name another: --pool NAME (`sweep pools` shows them)"
    if lacking:
        file = plan.suite.file or plan.request.suite
        raise ConfigError([Problem(file, None, f"pool {name}", problem, f"{hint}, {other}") for name, (problem, hint) in lacking.items()])


def lacking_pools(trials: Sequence[Trial]) -> dict[str, tuple[str, str]]:
    """The pools of these trials that cannot run any from this machine: what each lacks, and what would mend that."""
    pools = load_pools()
    used = dict.fromkeys(trial.pool for trial in trials)
    return {name: problem for name in used if name in pools and (problem := _lacks(pools[name]))}


def _lacks(pool: Pool) -> tuple[str, str] | None:
    """(what the pool lacks to run any trial, what would mend that); None where nothing is known to lack."""
    if pool.address is None:
        return "is not configured", f"set {pool.address_env} to the URL of its Ray head, http://host:8265"
    if pool.embedded and pool.device != "cpu" and (problem := probe(pool).problem):
        what, _, hint = problem.partition("; ")
        return f"cannot run trials: {what}", hint or "make one visible"
    return None


def renew(plan: Plan, *, build_environments: bool = True, say: Say = lambda text: None) -> Plan:
    """The plan with the current code, data and libraries. A trial whose key changes is superseded; `why` names the changed parts. Where
    the same data lie elsewhere now, as where the folder of sweeps was moved, trials read them there.

    Environments are built as in `make_plan`. Raises ConfigError, CommitError, DatasetError, and LaterJournal where a later version of this
    program wrote a trial's journal: under another key the trial would run again beside it.
    """
    store = SweepStore(plan.sweep_id)
    for trial in plan.trials:
        checked(trial, store.trial_dir(trial.key))
    pools = load_pools()
    inputs = CurrentInputs(pools, Variants(pools, build_them=build_environments, say=say))
    trials, superseded = [], list(plan.superseded)
    for trial in plan.trials:
        source = inputs.data(trial.workload, trial.parameters).source
        run = {"environment": trial.environment, "commit": trial.commit}
        parts = {**trial.key_parts, **inputs.key_parts(trial.workload, trial.pool, trial.device, source, **run)}
        there = inputs.variants.recipe(trial.environment, trial.pool).digest if trial.environment else None
        key = trial_key(parts)
        if key != trial.key:
            superseded.append(Superseded(key=trial.key, by=key, why=key_changes(trial.key_parts, parts)))
            trial = trial.model_copy(update={"key": key, "key_parts": parts, "environment_digest": there})  # noqa: PLW2901
        trials.append(trial.model_copy(update={"data": source}))
    now = {"git": git_state(), "tree": source_tree(), "trees": check_commits(trials)}
    return plan.model_copy(update={"trials": trials, "superseded": superseded, **now})


def key_changes(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Which parts of a key differ, as text: `code changed (3f2a... -> 91bc...)`; empty if none do."""
    names = [name for name in new if old.get(name) != new[name]]
    return "; ".join(f"{name} changed ({old.get(name, 'none')[:8]} -> {new[name][:8]})" for name in names)


def states(plan: Plan) -> list[TrialState]:
    """For an existing sweep: the state of each trial of its plan. One whose record is damaged is to be done again. Raises LaterJournal."""
    store = SweepStore(plan.sweep_id)
    why = {entry.by: entry.why for entry in plan.superseded}
    entries = []
    for trial in plan.trials:
        folder = store.trial_dir(trial.key)
        found = checked(trial, folder)
        result = found.result
        if found.damage is not None:
            entries.append(TrialState(trial=trial, state="again", why=f"its record is damaged: {found.damage}"))
        elif result is not None and result.outcome.final and not is_measured_again(folder, result):
            entries.append(TrialState(trial=trial, state="done", why=str(result.outcome)))
        elif result is not None and not end_is_unknown(launchers.load(folder), result):
            entries.append(TrialState(trial=trial, state="again", why=f"ended as {result.outcome}: {result.reason}"))
        elif trial.key in why:
            entries.append(TrialState(trial=trial, state="again", why=why[trial.key]))
        else:
            entries.append(TrialState(trial=trial, state="to do"))
    keep_whole(store.dir)
    return entries


def compare_with_last(plan: Plan) -> tuple[str | None, list[TrialState]]:
    """For a new plan: the id of the newest sweep that shares cells with it, and each trial's state in that sweep.

    Considers sweeps of the same suite only; without one the id is None. Damaged ones are logged and left out.
    """
    for store, old in readable_plans():
        if not old.trials or old.aa or old.ab or old.trials[0].suite != plan.trials[0].suite or store.sweep_id == plan.sweep_id:
            continue
        earlier = dict(zip(_places(old.trials), old.trials, strict=True))
        entries = []
        for trial, place in zip(plan.trials, _places(plan.trials), strict=True):
            before = earlier.get(place)
            result = readable_result(store, before.key) if before else None
            if before is None or result is None:
                entries.append(TrialState(trial=trial, state="to do"))
                continue
            difference = key_changes({**before.key_parts, "sweep": ""}, {**trial.key_parts, "sweep": ""})
            if result.outcome.final and not difference:
                entries.append(TrialState(trial=trial, state="done", why=str(result.outcome)))
            else:
                entries.append(TrialState(trial=trial, state="again", why=difference or f"ended as {result.outcome}: {result.reason}"))
        if any(entry.state != "to do" for entry in entries):  # otherwise the sweep shares no cell with this plan
            return store.sweep_id, entries
    return None, [TrialState(trial=trial, state="to do") for trial in plan.trials]


def _places(trials: Iterable[Trial]) -> Iterator[tuple[int, str]]:
    """Of each trial of a plan: the same for trials of two sweeps that are the same repeat of the same cell."""
    settings: dict[tuple[str, object], str] = {}  # in one plan trials of a cell differ in nothing but their seed
    for trial in trials:
        name = trial.cell, trial.parameters.get("seed")
        if name not in settings:
            run = {"pool": trial.pool, "environment": trial.environment, "commit": trial.commit}
            settings[name] = canonical_json({**run, **trial.parameters})
        yield trial.repeat, settings[name]


def expected_seconds(plan: Plan) -> dict[str, float]:
    """Cell -> seconds that it took when it last ended with an expected outcome in any sweep here. Cells without history are absent.

    Damaged sweeps and results are logged and left out.
    """
    cells = {trial.cell for trial in plan.trials}
    seconds: dict[str, float] = {}
    for store, old in readable_plans():
        for trial in old.trials:
            if trial.cell in cells and trial.cell not in seconds:
                result = readable_result(store, trial.key)
                if result is not None and result.outcome.expected:
                    seconds[trial.cell] = result.finished_at - result.started_at
        if len(seconds) == len(cells):
            break
    return seconds


def resolve_profile(request: Request, pools: Mapping[str, Pool]) -> tuple[str, list[str]]:
    """(profile, pool names; none: the suite's own). Resolves the profile `auto`, and returns any other one unchanged.

    If the request names pools: full if one of them has a real accelerator, else the small profile. Otherwise full on the accelerator pools
    of the suite, and embedded ones, that answer, else the small profile on the suite's pools. The small profile is smoke, or full in a
    suite without smoke.
    """
    if request.profile != "auto":
        return request.profile, request.pools
    small = "smoke" if "smoke" in profile_names(request.suite) else "full"
    if request.pools:
        accelerated = any(pools[name].device != "cpu" and not pools[name].emulated for name in request.pools if name in pools)
        return ("full" if accelerated else small), request.pools
    full = load_suite(request.suite, profile="full", pools=pools)
    candidates = dict.fromkeys([*(cell.pool for cell in matrix.expand(full)), *(name for name, pool in pools.items() if pool.embedded)])
    reachable = [name for name in candidates if pools[name].device != "cpu" and not pools[name].emulated and probe(pools[name]).reachable]
    return ("full", reachable) if reachable else (small, [])
