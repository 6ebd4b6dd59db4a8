"""The results pages of a campaign: one for each folder that its file names, of whole sweeps, written as `sweep publish` writes them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from cluster.trial_layout import PLAN, RESULTS
from experiments.config.errors import DamagedFile, UserError
from experiments.spec.campaign import DEVICE, CampaignFile, CampaignSweep
from tasks.campaign.question import Question, asked_for
from tasks.campaign.store import CampaignError, CampaignState
from tasks.report.lacks import YET, Lack, lacks_of
from tasks.report.manifest import MANIFEST, check_published
from tasks.report.not_measured import not_measured
from tasks.report.page_folder import PublishError
from tasks.report.publish import publish
from tasks.report.republish import sweeps_of
from tasks.report.text_format import plural
from tasks.sweep.cut import cut, restored
from tasks.sweep.request_text import set_and_chosen
from tasks.sweep.store import Plan, SweepBusy, SweepStore, read_plan, readable_result

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


def publish_pages(file: CampaignFile, state: CampaignState, root: Path) -> Iterator[WrittenPage]:
    """Write each page below `root`, and yield it; also what refuses one, which keeps no other from being written.

    The folder is as the file names it, with the measured device for `{device}`: sweeps of one folder that ran on other devices have a page
    each. What there was no time for, and what only the infrastructure ended, is cut from a sweep's plan and named on the page. Of a page
    that is there, sweeps stay that asked for something else, or ran on another card of the same short name (40 or 80 GB): they may have run
    on another machine, whose runs are not here. Raises OSError; CampaignError where nothing was measured at all.
    """
    if not any(_may_be_measured(store) for store in (_store(spec, state) for spec in file.sweeps) if store):
        raise CampaignError(f"nothing of {file.campaign} was measured yet; the same command without --publish does")
    for to in dict.fromkeys(spec.to for spec in file.sweeps):
        with ExitStack() as stack:
            yield from _pages_of(to, [spec for spec in file.sweeps if spec.to == to], state, root, stack)


def _pages_of(to: str, specs: Sequence[CampaignSweep], state: CampaignState, root: Path, stack: ExitStack) -> Iterator[WrittenPage]:
    try:
        pages, unmeasured = _by_folder(to, specs, state, stack)
    except UserError as error:
        yield WrittenPage(to, None, [], [], str(error))
        return
    if not pages:
        yield WrittenPage(to, None, [_not_measured(spec) for spec in unmeasured], [])
    for folder, (stores, lacks) in pages.items():
        try:
            yield _written(root, folder, stores, lacks, specs, unmeasured)
        except UserError as error:
            yield WrittenPage(folder, None, [], [], str(error))


def _by_folder(
    to: str, specs: Sequence[CampaignSweep], state: CampaignState, stack: ExitStack
) -> tuple[dict[str, tuple[list[SweepStore], list[Lack]]], list[CampaignSweep]]:
    """The sweeps of each page, made whole until the stack ends, with what they lack; and the entries of which nothing was measured."""
    pages, unmeasured = dict[str, tuple[list[SweepStore], list[Lack]]](), list[CampaignSweep]()
    for spec in specs:
        store = _store(spec, state)
        if store is None or not _measured(store):
            unmeasured.append(spec)
            continue
        stores, lacks = pages.setdefault(to.replace(DEVICE, _devices(store)), ([], []))
        lacks += [Lack(called=spec.called, sweep_id=store.sweep_id, what=what) for what in stack.enter_context(_made_whole(store))]
        stores.append(store)
    return pages, unmeasured


def _written(
    root: Path,
    folder: str,
    stores: Sequence[SweepStore],
    lacks: Sequence[Lack],
    specs: Sequence[CampaignSweep],
    unmeasured: Sequence[CampaignSweep],
) -> WrittenPage:
    earlier = _earlier(root / folder, stores, specs)
    missing = [*earlier.missing, *lacks, *(_not_measured(spec) for spec in unmeasured if asked_for(spec) not in earlier.questions)]
    return WrittenPage(folder, publish(stores, root / folder, missing, earlier.stay), missing, earlier.replaced)


@dataclass(frozen=True)
class _Earlier:
    """What stays of a page that is there: ids of sweeps, what they asked for, and what the page says is missing of them. And what goes."""

    stay: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    missing: list[Lack] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def _earlier(page: Path, stores: Sequence[SweepStore], specs: Sequence[CampaignSweep]) -> _Earlier:
    """Raises PublishError for a page that somebody changed, which would be lost without a word."""
    if not (page / MANIFEST).exists():
        return _Earlier()
    if changed := check_published(page):
        hint = "undo that (`git checkout`), or move the folder away: the page is then written from what was measured here alone"
        raise PublishError(f"{page} is not as `sweep publish` wrote it: {'; '.join(changed)}; {hint}")
    own = {store.sweep_id: store.load_plan() for store in stores}
    new = {(asked_for(own[store.sweep_id].request), _cards(store)): own[store.sweep_id] for store in stores}
    plans = {name: plan for name in sweeps_of(page) if (plan := read_plan(page / name / PLAN)) is not None}
    asked = {name: asked_for(plan.request) for name, plan in plans.items()}
    cards = {name: _published_cards(page / name / RESULTS) for name in plans}
    instead = {name: own.get(name) or new.get((question, cards[name])) for name, question in asked.items()}  # itself, also on other cards
    stay = [name for name, plan in instead.items() if plan is None]
    questions = [asked[name] for name in stay]
    called = [spec for spec in specs if asked_for(spec) not in questions]
    missing = [lack for lack in lacks_of(page) if not _is_told_anew(lack, called) and (lack.sweep_id not in asked or lack.sweep_id in stay)]
    replaced = [line for name, plan in instead.items() if plan is not None and (line := _replaced(plans[name], plan))]
    return _Earlier(stay, questions, missing if stay else [], replaced)


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


def _environments(store: SweepStore) -> list[Mapping[str, Any]]:
    """Those of the sweep's trials that tell their device."""
    results = [readable_result(store, trial.key) for trial in store.load_plan().trials]
    return [result.environment for result in results if result and result.environment.get("device_name")]


def _cards(store: SweepStore) -> frozenset[str]:
    """The full names of the devices that a sweep ran on."""
    return frozenset(str(environment["device_name"]) for environment in _environments(store))


def _published_cards(results: Path) -> frozenset[str]:
    """The same of a sweep on a page. Raises OSError."""
    column = "env.device_name"
    names = pq.read_table(results, columns=[column])[column].to_pylist() if column in pq.read_schema(results).names else []
    return frozenset(str(name) for name in names if name)


def _devices(store: SweepStore) -> str:
    """What a sweep ran on, for a folder's name: that of its device, or of each, if trials ran on several kinds; `unknown` if none is."""
    return "-".join(sorted({_short(environment) for environment in _environments(store)})) or "unknown"


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


@contextmanager
def _made_whole(store: SweepStore) -> Iterator[list[str]]:
    """Make the sweep whole inside the block; yields what it lacks, as sentences.

    Its plan is as before afterwards, unless another process changed it meanwhile: what a page cut had not lacked time, as the next page
    and `sweep show` would say.
    """
    with store.lease():
        before = store.load_plan()
        plan = cut(store, restored(before), lost=True)
        store.save_plan(plan)
    ended = {trial.key for trial in plan.cut if readable_result(store, trial.key) is not None}
    try:
        yield sentences(plan, ended, {trial.key for trial in before.cut})
    finally:
        with suppress(SweepBusy), store.lease():
            if store.load_plan() == plan:
                store.save_plan(before)


def sentences(plan: Plan, lost: Collection[str] = (), late: Collection[str] = ()) -> list[str]:
    """What was planned for a sweep and is not in it: cells without a trial, and cells with fewer than were planned, and why, where that is
    known.

    Keys of trials: `lost`, that were interrupted or that the infrastructure ended; `late`, for which a run had no time.
    """
    why = {trial.key: _LOST if trial.key in lost else _LATE if trial.key in late else YET for trial in plan.cut}
    return [
        line for reason in (_LATE, YET, _LOST) for line in not_measured(plan, [one for one in plan.cut if why[one.key] == reason], reason)
    ]
