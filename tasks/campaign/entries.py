"""The sweeps of a campaign as they stand: each with its plan, new or gone on with, what is left to run, and how long that may take."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.config import duration
from experiments.config.errors import ConfigError, DamagedFile, Problem
from experiments.spec.campaign import CampaignFile, CampaignSweep
from experiments.trial import Trial
from tasks.campaign.store import CampaignState
from tasks.rounds.decide_plan import one_more_round
from tasks.rounds.growth import seconds_run
from tasks.sweep.cut import restored
from tasks.sweep.dataset import DatasetError
from tasks.sweep.deadline import expected_trial_s, times_so_far
from tasks.sweep.plan import check_ready, check_values, expected_seconds, make_plan, renew
from tasks.sweep.question import asked_for
from tasks.sweep.request_text import overrides_of
from tasks.sweep.store import OF_CAMPAIGN, Plan, Request, SweepStore, exit_status, readable_result
from tasks.sweep.what_is_left import what_is_left

_NO_LIMIT_S = float("inf")  # of a sweep that the file gives no time of its own
_AMPLE_S = 1e7  # time enough for any round


@dataclass(frozen=True)
class Overrides:
    """Options of the command that hold for every sweep: for a rehearsal on another pool, with smaller settings."""

    pools: Sequence[str] = ()
    set: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pools or self.set)


@dataclass(frozen=True)
class Entry:
    """A sweep of a campaign. `plan`: with everything that was cut; `is_new`: nothing of it is on disk."""

    spec: CampaignSweep
    plan: Plan
    is_new: bool
    left_s: float  # of its own budget, at most what it may have in a run; infinite where the file gives it neither
    to_do: Sequence[Trial] = ()
    expected: Mapping[str, float] = field(default_factory=dict)  # cell -> s, of past sweeps
    next_round_s: float = 0.0  # what another round of what is done is expected to take, s; 0 where its own time holds none
    unreported: bool = False  # its last flow was killed, or could not publish all: its report and MLflow are to come
    short_of: str = ""  # its own time, such as `its budget of 25s`, if that keeps it from the rounds that the file asks for at least

    @property
    def name(self) -> str:
        return self.spec.called

    @property
    def store(self) -> SweepStore:
        return SweepStore(self.plan.sweep_id)

    @property
    def own_limit(self) -> str:
        """The key of the file that limits `left_s`, where that is finite; of two that do alike, per_run."""
        return "per_run" if self.spec.per_run_s <= self.left_s else "budget"

    def times(self, usual_s: float = 0.0) -> dict[str, float]:
        """Trial key -> what it is expected to take, s, by the best that is known; at least the window that it measures, and `usual_s`."""
        so_far = times_so_far(self.store, self.plan)
        return {trial.key: expected_trial_s(trial, so_far, self.expected, usual_s) for trial in self.to_do}

    @property
    def grows(self) -> bool:
        """Whether its own time holds another round of what is done."""
        return self.next_round_s > 0

    def least_s(self, usual_s: float = 0.0) -> float:
        """What the shortest of what is left of it is expected to take, a trial or another round, s; infinite where nothing is left."""
        return min([*self.times(usual_s).values(), *([self.next_round_s] if self.grows else [])], default=_NO_LIMIT_S)

    def fits(self, left_s: float, usual_s: float = 0.0) -> bool:
        """Whether anything of it is expected to be over in so much time, s. `usual_s`: of a trial of which nothing is known."""
        return self.least_s(usual_s) <= min(left_s, self.left_s, _AMPLE_S)

    def runs(self, left_s: float, usual_s: float = 0.0) -> bool:
        """Whether a flow has something to do in it: trials, as `fits`, or what follows them, which the time for trials does not limit."""
        return self.unreported or self.fits(left_s, usual_s)


def entries_of(
    file: CampaignFile, state: CampaignState, overrides: Overrides, budget_s: float, *, again: bool = False, to_run: bool = True
) -> list[Entry]:
    """All sweeps of a campaign as they stand. `budget_s`: of this run of the command. Starts and writes nothing. `to_run`: trials are to
    start, so their pools must have the devices that they need.

    Raises ConfigError with what is wrong in any of them, also of their data; CommitError as `make_plan`; ConfigError also where trials that
    are measured would have to be measured again, since code, data or libraries have changed (`again`: they may be).
    """
    entries, wrong = list[Entry](), dict[tuple[object, ...], Problem]()
    for spec in file.sweeps:
        try:
            entries.append(_entry(file, spec, state, overrides, budget_s, again=again))
        except ConfigError as error:
            for one in error.problems:  # what the command line asks of all of them is wrong once
                wrong.setdefault((one.file, one.line, one.key.partition("(of sweep ")[0], one.problem), one)
    if wrong:
        raise ConfigError([*wrong.values()])
    for entry in entries:
        if entry.is_new:
            _check(file, entry, check_ready if to_run else check_values)
    return entries


def _check(file: CampaignFile, entry: Entry, check: Callable[[Plan], None]) -> None:
    """Raise `check`'s ConfigError with the sweep's name, and with what measures the others."""
    try:
        check(entry.plan)
    except ConfigError as error:
        hint = f"{others}, `sweep campaign {file.given} --plan` lists them" if (others := _others_alone(file)) else ""
        raise ConfigError(
            [replace(one, key=f"{one.key} (of sweep {entry.name})", hint=one.hint + hint) for one in error.problems]
        ) from None


def _others_alone(file: CampaignFile) -> str:
    """To a hint at what is wrong with one sweep: how the others run all the same; empty where there is no other."""
    return "; others alone: --sweep NAME" if len(file.sweeps) > 1 else ""


def _entry(
    file: CampaignFile,
    spec: CampaignSweep,
    state: CampaignState,
    overrides: Overrides,
    budget_s: float,
    *,
    again: bool,
) -> Entry:
    request = _request(spec, overrides, spec.budget_s or budget_s)
    sweep_id = state.sweeps.get(spec.called)
    old = _asked_before(file, state, spec.called, request)
    if old is None:
        try:
            plan, _ = make_plan(request, None if sweep_id and SweepStore(sweep_id).exists() else sweep_id)
        except ConfigError as error:
            overridden = {*overrides.set, *(["--pool"] if overrides.pools else [])}
            raise ConfigError([file.problem_of(spec, one, overridden) for one in error.problems]) from None
        except DatasetError as error:
            given = "--set" if "dataset" in request.set else ""
            raise ConfigError([file.problem_of(spec, Problem(given, None, "dataset", str(error), ""), {*overrides.set})]) from None
        plan = _told(plan, file, spec, overrides)
        return Entry(
            spec,
            plan,
            is_new=True,
            left_s=min(spec.budget_s or _NO_LIMIT_S, spec.per_run_s),
            to_do=plan.trials,
            expected=expected_seconds(plan),
        )
    return _gone_on_with(file, Entry(spec, _told(old, file, spec, overrides), is_new=False, left_s=0.0), budget_s, again=again)


def _asked_before(file: CampaignFile, state: CampaignState, name: str, request: Request) -> Plan | None:
    """The plan of a sweep of this campaign that asks the same: the entry's own; else the latest of those that no entry of the file has now,
    as where a setting was changed, and changed back, or an entry was renamed. Raises DamagedFile for the entry's own plan alone."""
    own = SweepStore(sweep_id) if (sweep_id := state.sweeps.get(name)) else None
    if own is not None and own.exists() and _same((plan := own.load_plan()).request, request):
        return restored(plan)
    used = {state.sweeps.get(spec.called) for spec in file.sweeps}
    for store in map(SweepStore, [*reversed(state.earlier), *state.sweeps.values()]):
        if store.sweep_id in used or not store.exists():
            continue
        with suppress(DamagedFile):
            if _same((plan := store.load_plan()).request, request):
                return restored(plan)
    return None


def _gone_on_with(file: CampaignFile, entry: Entry, budget_s: float, *, again: bool) -> Entry:
    """A sweep that exists: what of it is still to do, if anything."""
    plan, store = entry.plan, entry.store
    ran_s = seconds_run(store, plan)
    left_s = min(_NO_LIMIT_S if entry.spec.budget_s is None else entry.spec.budget_s - ran_s, entry.spec.per_run_s)
    left = what_is_left(store, plan)
    to_do = [*left.damaged, *left.begun, *left.rest]
    round_s = _next_round_s(store, plan, ran_s, min(left_s, _AMPLE_S))
    plan = with_time(plan, ran_s, min(left_s, budget_s))
    entry = replace(entry, plan=plan, left_s=left_s, to_do=to_do, expected=expected_seconds(plan), next_round_s=round_s)
    entry = replace(entry, short_of="" if to_do or entry.grows else _short_of(entry, ran_s))
    entry = replace(entry, unreported=_is_unreported(entry, done=bool(left.done)))
    if not entry.fits(budget_s):
        return entry
    renewed = renew(plan)
    known = {one.key for one in plan.superseded}
    changed = [one for one in renewed.superseded if one.key not in known and (end := readable_result(store, one.key)) and end.outcome.final]
    if changed and not again:
        problem = f"{len(changed)} of its trials, in {plan.sweep_id}, were measured with something else: {changed[0].why}"
        commit = str(plan.git.get("commit") or "")[:12]
        measured_with = f"what measured them, planned at commit {commit}" if commit else "what measured them"
        hint = f"--again measures them again, as `sweep resume` would; or go on with {measured_with}{_others_alone(file)}"
        raise ConfigError.one("campaign", None, entry.name, problem, hint)
    left = what_is_left(store, renewed)
    return replace(entry, plan=renewed, to_do=[*left.damaged, *left.begun, *left.rest])


def _is_unreported(entry: Entry, *, done: bool) -> bool:
    """See Entry. `done`: some of its trials are. Of one that misses trials its flow said so in the end, and has reported what there is."""
    try:
        status = entry.store.load_status()
    except DamagedFile:
        status = None
    return done if status is None else not entry.to_do and status.status != exit_status(entry.store.states(entry.plan))


def with_time(plan: Plan, ran_s: float, left_s: float) -> Plan:
    """The plan of a sweep with rounds that may go on for so long; any other one as it is."""
    if plan.decide is None or left_s <= 0:
        return plan
    return plan.model_copy(update={"decide": plan.decide.model_copy(update={"budget_s": ran_s + left_s})})


def _next_round_s(store: SweepStore, plan: Plan, ran_s: float, left_s: float) -> float:
    """What the round is expected to take that comes next if the sweep may go on for `left_s`, s: it begins only where all of it fits. 0
    where none is to come. A look that is due first adds none."""
    if plan.decide is None or left_s <= 0 or len(what_is_left(store, plan).done) < len(plan.trials):
        return 0.0
    plan = with_time(plan, ran_s, left_s)
    more = one_more_round(store, plan, ran_s)
    while more is not None and len(more.trials) == len(plan.trials):
        plan, more = more, one_more_round(store, more, ran_s)
    there = {trial.key for trial in plan.trials}
    added = [trial for trial in more.trials if trial.key not in there] if more is not None else []
    return times_so_far(store, plan).times.of_round(added) or 0.0


def _short_of(entry: Entry, ran_s: float) -> str:
    """See Entry. Empty for a sweep that has its least rounds, and for one that no time would give another, as where nothing of it runs."""
    plan, spec = entry.plan, entry.spec
    if plan.decide is None or plan.last_round >= plan.decide.least or not _next_round_s(entry.store, plan, ran_s, _AMPLE_S):
        return ""
    return f"its per_run of {spec.per_run}" if entry.own_limit == "per_run" else f"its budget of {spec.budget}"


def _request(spec: CampaignSweep, overrides: Overrides, budget_s: float) -> Request:
    """What `sweep run` would be asked for. A value that an override sets is no longer a choice of `only`."""
    once = spec.rounds.most == 1
    return Request(
        suite=spec.suite,
        profile=spec.profile,
        pools=list(overrides.pools or spec.pools),
        set={**spec.set, **overrides.set},
        only={axis: list(values) for axis, values in spec.only.items() if axis not in overrides.set},
        repeats=1 if once else None,
        budget_s=None if once else budget_s,
        until_decided=None if once else spec.rounds.until_decided,
    )


def _same(old: Request, new: Request) -> bool:
    """Whether both ask for the same cells, once or in rounds."""
    return asked_for(old) == asked_for(new) and old.repeats == new.repeats


def _told(plan: Plan, file: CampaignFile, spec: CampaignSweep, overrides: Overrides) -> Plan:
    """The plan with what the campaign says of its rounds and its page."""
    given = overrides_of(Request(suite=spec.suite, pools=[*overrides.pools], set=dict(overrides.set)))
    command = shlex.join(["sweep", "campaign", file.given, *given, "--sweep", spec.called])
    update: dict[str, Any] = {"labels": {**plan.labels, OF_CAMPAIGN: file.campaign}, "command": command}
    if plan.decide is not None:
        rounds = {"least": min(spec.rounds.least, spec.rounds.most), "most": spec.rounds.most, "until_decided": spec.rounds.until_decided}
        update["decide"] = plan.decide.model_copy(update=rounds)
    return titled(plan.model_copy(update=update), spec)


def titled(plan: Plan, spec: CampaignSweep) -> Plan:
    """The plan with the title that the campaign gives its table; as it is where that gives none."""
    if spec.title is None:
        return plan
    report = plan.suite.report.model_copy(update={"title": spec.title})
    return plan.model_copy(update={"suite": plan.suite.model_copy(update={"report": report})})


def check_rehearsed(file: CampaignFile, state: CampaignState, overrides: Overrides) -> None:
    """Raise ConfigError where a sweep was measured with something else than the file and these options ask for: its page would have other
    settings than the command that wrote it. One whose plan cannot be read has no page, which `publish_pages` tells."""
    for spec in file.sweeps:
        store = SweepStore(sweep_id) if (sweep_id := state.sweeps.get(spec.called)) else None
        if store is None or not store.exists():
            continue
        try:
            request = store.load_plan().request
        except DamagedFile:
            continue
        asked = _request(spec, overrides, 1.0)
        if asked_for(request) != asked_for(asked):
            given = shlex.join(overrides_of(request.model_copy(update={"repeats": None}))) or "nothing chosen or set"
            asks = shlex.join(overrides_of(asked.model_copy(update={"repeats": None}))) or "nothing chosen or set"
            problem = f"sweep {spec.called} ({store.sweep_id}) was measured with {given}, and file and options now ask for {asks}"
            hint = "give the options that it was measured with, undo a change of the file, or measure it so first, without --publish"
            raise ConfigError.one("--publish", None, "", problem, hint)


def check_fits(file: CampaignFile, entries: Sequence[Entry]) -> None:
    """Raise ConfigError where nothing of a new sweep is expected to fit in the time that the file gives it."""
    for entry in entries:
        own_s, key = min((entry.spec.budget_s or float("inf"), "budget"), (entry.spec.per_run_s, "per_run"))
        if entry.is_new and (shortest := min(entry.times().values(), default=0.0)) > own_s:
            problem = f"is {duration.text(own_s)}, and its shortest trial is expected to take {duration.about(shortest)}"
            raise ConfigError.one(f"{file.campaign}.yaml", None, f"{key} of {entry.name}", problem, "give it more time, or leave it out")
