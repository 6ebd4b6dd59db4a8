"""The results pages of a campaign: one for each folder that its file names, of whole sweeps, written as `sweep publish` writes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from cluster.trial_layout import PLAN, RESULTS, TRIALS
from experiments.config.errors import DamagedFile, UserError
from experiments.spec.campaign import DEVICE, CampaignFile, CampaignSweep
from experiments.trial import TrialResult
from tasks.campaign.entries import titled
from tasks.campaign.store import CampaignError, CampaignState
from tasks.report.lacks import YET, Lack, lacks_of
from tasks.report.manifest import MANIFEST, check_published
from tasks.report.not_measured import not_measured
from tasks.report.page_folder import PublishError
from tasks.report.publish import publish
from tasks.report.republish import sweeps_of
from tasks.report.text_format import plural
from tasks.sweep.cut import cut, restored
from tasks.sweep.question import Question, asked_for
from tasks.sweep.request_text import set_and_chosen
from tasks.sweep.store import Plan, SweepStore, read_plan, readable_result

_LATE, _LOST = " for want of time", " since it was interrupted or the infrastructure failed"
_VENDORS = frozenset({"nvidia", "amd", "intel", "habana"})


class WrittenPage(NamedTuple):
    """A page's folder, its README (None: nothing was written), what is missing on it, what of the earlier page is not on it any more, as
    sentences, and why it could not be written (empty also where nothing of it was measured)."""

    folder: str
    readme: Path | None
    missing: list[Lack]
    replaced: list[str]
    refused: str = ""


@dataclass(frozen=True)
class _Measured:
    """A sweep as its page has it. `plan`: with the title that the file gives what it asked for, without what there was no time for, and
    without what only the infrastructure ended; `is_part`: it is not the sweep's own."""

    store: SweepStore
    plan: Plan
    is_part: bool
    lacks: Sequence[Lack]


@dataclass
class _Page:
    """The sweeps of one folder, and why it cannot be written."""

    sweeps: list[_Measured] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def publish_pages(file: CampaignFile, state: CampaignState, root: Path, *, changed: bool = False) -> Iterator[WrittenPage]:
    """Write each page below `root`, and yield it; also what refuses one, which keeps no other from being written.

    The folder is as the file names it, with the measured device for `{device}`: sweeps of one folder that ran on other devices have a page
    each. What there was no time for, and what only the infrastructure ended, is not on the page, which names it; the sweep stays as it is.
    Of a page that is there, sweeps stay that asked for something else, or ran on another card of the same short name (40 or 80 GB): they
    may have run on another machine, whose runs are not here. `changed`: what the file asks for by now, and a sweep of it did not, is told
    as not measured, and such a sweep keeps its title; a rehearsal's options are not in the file. Raises OSError; CampaignError where
    nothing was measured at all.
    """
    if not any(_may_be_measured(store) for store in (_store(spec, state) for spec in file.sweeps) if store):
        raise CampaignError(f"nothing of {file.campaign} was measured yet; the same command without --publish measures it")
    for to in dict.fromkeys(spec.to for spec in file.sweeps):
        yield from _pages_of(to, [spec for spec in file.sweeps if spec.to == to], state, root, changed=changed)


def _pages_of(to: str, specs: Sequence[CampaignSweep], state: CampaignState, root: Path, *, changed: bool) -> Iterator[WrittenPage]:
    pages, unmeasured = _by_folder(to, specs, state, changed=changed)
    if changed:
        asked = {one.store.sweep_id: asked_for(one.plan.request) for page in pages.values() for one in page.sweeps}
        unmeasured += [spec for spec in specs if asked.get(state.sweeps.get(spec.called, ""), asked_for(spec)) != asked_for(spec)]
    if not pages:
        yield WrittenPage(to, None, [_not_measured(spec) for spec in unmeasured], [])
    for folder, page in pages.items():
        try:
            if page.refused:
                raise CampaignError("; ".join(page.refused))
            yield _written(root, folder, page.sweeps, specs, unmeasured)
        except UserError as error:
            yield WrittenPage(folder, None, [], [], str(error))


def _by_folder(
    to: str, specs: Sequence[CampaignSweep], state: CampaignState, *, changed: bool
) -> tuple[dict[str, _Page], list[CampaignSweep]]:
    """Each page, and the entries of which nothing was measured. A sweep that cannot be read refuses the page that it would be on; all of
    them where its results do not tell which."""
    pages, unmeasured, unplaced = dict[str, _Page](), list[CampaignSweep](), list[str]()
    for spec in specs:
        store = _store(spec, state)
        try:
            if store is None or not _measured(store):
                unmeasured.append(spec)
                continue
            one = _on_page(spec, store, changed=changed)
            pages.setdefault(to.replace(DEVICE, _devices(_environments(store, one.plan))), _Page()).sweeps.append(one)
        except UserError as error:
            assert store is not None
            told = _told_environments(store)
            if DEVICE in to and not told:
                unplaced.append(str(error))
            else:
                pages.setdefault(to.replace(DEVICE, _devices(told)), _Page()).refused.append(str(error))
    if unplaced and not pages:
        pages[to] = _Page()
    for page in pages.values():
        page.refused += unplaced
    return pages, unmeasured


def _written(
    root: Path, folder: str, sweeps: Sequence[_Measured], specs: Sequence[CampaignSweep], unmeasured: Sequence[CampaignSweep]
) -> WrittenPage:
    earlier = _earlier(root / folder, sweeps, specs)
    lacks = [lack for one in sweeps for lack in one.lacks]
    missing = [*earlier.missing, *lacks, *(_not_measured(spec) for spec in unmeasured if asked_for(spec) not in earlier.questions)]
    parts = {one.store.sweep_id: one.plan for one in sweeps if one.is_part}
    readme = publish([one.store for one in sweeps], root / folder, missing, earlier.stay, parts)
    return WrittenPage(folder, readme, missing, earlier.replaced)


@dataclass(frozen=True)
class _Earlier:
    """What stays of a page that is there: ids of sweeps, what they asked for, and what the page says is missing of them. And what goes."""

    stay: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    missing: list[Lack] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def _earlier(page: Path, sweeps: Sequence[_Measured], specs: Sequence[CampaignSweep]) -> _Earlier:
    """Raises PublishError for a page that somebody changed, which would be lost without a word."""
    if not (page / MANIFEST).exists():
        return _Earlier()
    if changed := check_published(page):
        hint = "undo that (`git checkout`), or move the folder away: the page is then written from what was measured here alone"
        raise PublishError(f"{page} is not as `sweep publish` wrote it: {'; '.join(changed)}; {hint}")
    plans = {name: plan for name in sweeps_of(page) if (plan := read_plan(page / name / PLAN)) is not None}
    asked = {name: asked_for(plan.request) for name, plan in plans.items()}
    cards = {name: _published_cards(page / name / RESULTS) for name in plans}
    instead = _instead(plans, cards, sweeps)
    stay = [name for name, plan in instead.items() if plan is None]
    questions = [asked[name] for name in stay]
    called = [spec for spec in specs if asked_for(spec) not in questions]
    missing = [lack for lack in lacks_of(page) if not _is_told_anew(lack, called) and (lack.sweep_id not in asked or lack.sweep_id in stay)]
    replaced = [line for name, plan in instead.items() if plan is not None and (line := _replaced(plans[name], plan))]
    return _Earlier(stay, questions, missing if stay else [], replaced)


def _instead(plans: Mapping[str, Plan], cards: Mapping[str, frozenset[str]], sweeps: Sequence[_Measured]) -> dict[str, Plan | None]:
    """Sweep of the earlier page -> what it makes way for: itself, also on other cards; else one that asks the same on the same cards, of
    several that of the same entry, which its command names, else the next one; None for one that stays."""
    own = {one.store.sweep_id: one.plan for one in sweeps}
    new: dict[Any, list[Plan]] = {}
    for one in sweeps:
        new.setdefault((asked_for(one.plan.request), _cards(one)), []).append(one.plan)
    found: dict[str, Plan | None] = {}
    for name, plan in plans.items():
        alike = new.get((asked_for(plan.request), cards[name]), [])
        taken = {by.sweep_id for by in found.values() if by is not None} | {*plans}
        free = [by for by in alike if by.sweep_id not in taken] or [by for by in alike if by.sweep_id not in plans] or alike
        of_entry = [by for by in free if by.command == plan.command]
        found[name] = own.get(name) or next(iter([*of_entry, *free]), None)
    return found


def _replaced(old: Plan, new: Plan) -> str:
    """What of a sweep of the earlier page goes; empty where its trials are all there still. A sweep loses some where they were measured
    again, or where copies of a runs folder went on apart."""
    if old.sweep_id != new.sweep_id:
        return f"{old.sweep_id} of {plural(len(old.trials), 'trial')}, by {new.sweep_id} of {len(new.trials)}"
    gone = {trial.key for trial in old.trials} - {trial.key for trial in new.trials}
    if not gone:
        return ""
    counts = f"of {plural(len(old.trials), 'trial')}, by the same sweep of {len(new.trials)}"
    return f"{old.sweep_id} {counts}, without {len(gone)} of the earlier ones"


def _is_told_anew(lack: Lack, called: Sequence[CampaignSweep]) -> bool:
    """Whether it is of one of these entries, and of no sweep: what the entry has now says what it lacks."""
    return lack.sweep_id is None and any(lack.called == spec.called and lack.suite in (None, spec.suite) for spec in called)


def _not_measured(spec: CampaignSweep) -> Lack:
    chosen = set_and_chosen(spec.set, spec.only)
    return Lack(called=spec.called, suite=spec.suite, profile=spec.profile, chosen=chosen, what=f"not measured{YET}")


def _environments(store: SweepStore, plan: Plan) -> list[Mapping[str, Any]]:
    """Those of the plan's trials that tell their device."""
    return _telling(readable_result(store, trial.key) for trial in plan.trials)


def _told_environments(store: SweepStore) -> list[Mapping[str, Any]]:
    """The same of all trials of a sweep whose plan cannot be read."""
    return _telling(readable_result(store, path.name) for path in sorted((store.dir / TRIALS).glob("*")))


def _telling(results: Iterable[TrialResult | None]) -> list[Mapping[str, Any]]:
    return [result.environment for result in results if result and result.environment.get("device_name")]


def _cards(sweep: _Measured) -> frozenset[str]:
    """The full names of the devices that a sweep ran on."""
    return frozenset(str(environment["device_name"]) for environment in _environments(sweep.store, sweep.plan))


def _published_cards(results: Path) -> frozenset[str]:
    """The same of a sweep on a page. Raises OSError."""
    column = "env.device_name"
    names = pq.read_table(results, columns=[column])[column].to_pylist() if column in pq.read_schema(results).names else []
    return frozenset(str(name) for name in names if name)


def _devices(environments: Iterable[Mapping[str, Any]]) -> str:
    """What a sweep ran on, for a folder's name: that of its device, or of each, if trials ran on several kinds; `unknown` if none is."""
    return "-".join(sorted({_short(environment) for environment in environments})) or "unknown"


def _short(environment: Mapping[str, Any]) -> str:
    """A device's name without its vendor, up to the first word with a digit: `h100` for NVIDIA H100 80GB HBM3; `cpu` for any CPU."""
    if environment.get("device_kind") == "cpu":
        return "cpu"
    words = [word for word in re.findall(r"[a-z0-9]+", str(environment["device_name"]).lower()) if word not in _VENDORS]
    last = next((number for number, word in enumerate(words) if any(letter.isdigit() for letter in word)), len(words) - 1)
    return "-".join(words[: last + 1]) or "unknown"


def _store(spec: CampaignSweep, state: CampaignState) -> SweepStore | None:
    sweep_id = state.sweeps.get(spec.called)
    store = SweepStore(sweep_id) if sweep_id else None
    return store if store and store.exists() else None


def _measured(store: SweepStore) -> bool:
    return any(outcome is not None and outcome.final for outcome in store.states(store.load_plan()).values())


def _may_be_measured(store: SweepStore) -> bool:
    """Also where its plan is damaged: its page is then refused, and no other."""
    try:
        return _measured(store)
    except DamagedFile:
        return True


def _on_page(spec: CampaignSweep, store: SweepStore, *, changed: bool) -> _Measured:
    """Raises DamagedFile for its plan."""
    before = store.load_plan()
    plan = cut(store, restored(before), lost=True)
    if not changed or asked_for(plan.request) == asked_for(spec):  # else the file's title may be of what was not measured
        plan = titled(plan, spec)  # as the file calls it now: no run takes up one of which all is measured
    ended = {trial.key for trial in plan.cut if readable_result(store, trial.key) is not None}
    told = sentences(plan, ended, {trial.key for trial in before.cut})
    return _Measured(store, plan, plan != before, [Lack(called=spec.called, sweep_id=store.sweep_id, what=what) for what in told])


def sentences(plan: Plan, lost: Collection[str] = (), late: Collection[str] = ()) -> list[str]:
    """What was planned for a sweep and is not in it: cells without a trial, and cells with fewer than were planned, and why, where that is
    known.

    Keys of trials: `lost`, that were interrupted or that the infrastructure ended; `late`, for which a run had no time.
    """
    why = {trial.key: _LOST if trial.key in lost else _LATE if trial.key in late else YET for trial in plan.cut}
    return [
        line for reason in (_LATE, YET, _LOST) for line in not_measured(plan, [one for one in plan.cut if why[one.key] == reason], reason)
    ]
