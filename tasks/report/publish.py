"""Write a results page from whole sweeps: plans, steps, reports, a README and a manifest. Nothing in it is written by hand."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cluster.trial_layout import CERTIFICATES, HELD_TIME, JOURNAL, KNOWN_SPREAD, PLAN, STEPS
from experiments.atomic_file import atomic_write
from experiments.json_file import sealed_text
from experiments.spec.suite_files import title_of
from experiments.step_record import FIELDS
from experiments.trial import DataSource, Trial, TrialResult
from tasks.analysis.cell import DEVICES
from tasks.analysis.certificates import KnownOfDevice, known_of
from tasks.analysis.held_files import held_of
from tasks.analysis.published_steps import CAPPED_BY, write_published_steps
from tasks.analysis.results import Sweep, load_sweep, meta_of, steps_table
from tasks.analysis.trial_row import TrialRow
from tasks.report.cell_counts import disturbed_among, per_cell
from tasks.report.certificate_text import certificate_lines, certificates_in_brief, pooled_certificates
from tasks.report.comparison_table import ComparisonTable
from tasks.report.given_command import given_command
from tasks.report.headline import headline_of
from tasks.report.held_text import held_sentence
from tasks.report.hidden_names import hidden
from tasks.report.lacks import README, Lack, write_lacks
from tasks.report.list_line import list_line
from tasks.report.manifest import MANIFEST, check_published, files_below, listed_files, write_manifest
from tasks.report.markdown import render_text
from tasks.report.model import Report, kind_of, make_report
from tasks.report.other_hosts import same_on_others
from tasks.report.page_folder import PublishError, clear_leftovers, new_page
from tasks.report.pairs_beside import pairs_on_others
from tasks.report.provenance import commits_text, ran_at, tree_text
from tasks.report.published_pages import Page, pages_beside, sweep_on_page
from tasks.report.section import Bullets, Section
from tasks.report.sections.device_state import clocks_in_brief
from tasks.report.sections.parameters import settings_text
from tasks.report.text_format import devices_told, listed
from tasks.report.told_apart import told_apart
from tasks.report.whole_sweep import why_not_whole
from tasks.report.write import keep_knowledge, render_report
from tasks.sweep.dataset import is_drawn
from tasks.sweep.own_data import is_made
from tasks.sweep.request_text import set_and_chosen
from tasks.sweep.store import Plan, SweepStore, read_plan

PRIVATE = frozenset({"host"})  # of the environment; `host_id` stays
VERSIONS = ("driver", "cuda", "torch", "torchao", "transformers", "ray", "python")  # of the environment, for the README
_SHOWN = ("scaling", "loss_spikes")  # sections with a table: what several devices attain beside fewer, and what a suite on spikes asks
# Sections that a page links to, where its report has them
_LINKED = ("outcomes", "loss_parity", "device_state", "waterfall", "held_time", "nearest_literature")
_PICTURES = ("spikes", "throughput")  # figures by what is worth most: the first that a sweep has is shown


@dataclass(frozen=True)
class PublishedSweep:
    """What the README says of one sweep.

    `suite`: what people call it. `kind`: A/A, A/B or race; empty of a plain sweep. `devices`: of each trial name and number. `heading`:
    what its table holds; sweeps of one profile, as a campaign has them, may share it. `set_`: what was set or chosen beside the profile, by
    name; what differs of it tells sweeps of one heading apart. `found`: what was found, in one sentence. `head`: Markdown, what report.md
    says of it before its first section. `command`: Markdown. `loading`: how many DataLoader processes are enough, where they vary.
    `sections`: those of the report that the README has too (_SHOWN); `linked`: title and anchor of those that it links to (_LINKED).
    `picture`: title and path, from the README, of the figure that shows what the sweep found; None where there is none.
    `covered`, `certificates`: of an A/A sweep how often the intervals of its own pairs were right, in sentences and in figures.
    """

    sweep_id: str
    suite: str
    kind: str
    devices: Sequence[tuple[str, int]]
    report: Report
    heading: str
    set_: Mapping[str, str]
    found: str
    head: str
    facts: Sequence[tuple[str, str]]
    command: str
    table: ComparisonTable | None  # None of a sweep without cells that measured
    loading: Bullets | None
    sections: Sequence[Section]
    linked: Sequence[tuple[str, str]] = ()
    picture: tuple[str, str] | None = None
    covered: Sequence[str] = ()
    certificates: Sequence[KnownOfDevice] = ()


def publish(
    stores: Sequence[SweepStore],
    folder: Path,
    missing: Sequence[Lack] = (),
    beside: Sequence[str] = (),
    parts: Mapping[str, Plan] = MappingProxyType({}),
) -> Path:
    """Write the page of these sweeps to `folder`; an earlier page there is replaced. Returns its README.

    `missing`: what was to be measured and was not. `beside`: ids of sweeps of the earlier page that stay, before
    the others; their texts are written anew. `parts`: sweep id -> its plan with the trials that the page has, where those are not all:
    the sweep itself stays as it is.
    Raises PublishError, and writes nothing, if a sweep is not whole or the folder holds what `sweep publish` did not write; StoreError,
    ResultsError for a sweep that is not there; OSError.
    """
    given, folder = folder, folder.resolve()  # `.` and `page/../page` lead nowhere once the page is moved away
    clear_leftovers(folder)
    problems = [problem for store in stores for problem in why_not_whole(store, parts.get(store.sweep_id))]
    counts = Counter(store.sweep_id for store in stores)
    problems += [f"sweep {sweep_id} is named twice; name each once" for sweep_id, count in counts.items() if count > 1]
    problems += _why_not_there(folder)
    problems += check_published(folder) if beside else []
    if problems:
        raise PublishError("nothing was published:\n" + "\n".join(f"- {problem}" for problem in problems))
    with new_page(folder) as temporary:
        published = [publish_again(folder / sweep_id, temporary / sweep_id) for sweep_id in beside]
        published += [_publish_sweep(store, temporary / store.sweep_id, parts.get(store.sweep_id)) for store in stores]
        write_page(published, missing, temporary, folder)
    return given / README


def _why_not_there(folder: Path) -> list[str]:
    """Why the page may not be written to `folder`: something there would be lost."""
    if folder.exists() and not folder.is_dir():
        return [f"{folder} is a file; choose a folder"]
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return []
    if not (folder / MANIFEST).is_file():
        return [f"{folder} holds what `sweep publish` did not write; choose another folder"]
    unknown = sorted(set(files_below(folder)) - set(listed_files(folder)))
    return [f"{folder / name} is not of the page that is there; move it away" for name in unknown]


def write_page(sweeps: Sequence[PublishedSweep], missing: Sequence[Lack], folder: Path, page: Path) -> None:
    """README, manifest and what is missing, of a folder that holds the files of these sweeps, and is to become `page`."""
    together = pooled_certificates([sweep.certificates for sweep in sweeps])
    alike = {one.heading: [other.set_ for other in sweeps if other.heading == one.heading] for one in sweeps}
    sweeps = [replace(one, heading=told_apart(one.heading, one.set_, alike[one.heading])) for one in sweeps]
    own, others = Page(page, "", [sweep_on_page(folder / one.sweep_id) for one in sweeps]), pages_beside(page)
    beside = {"elsewhere": same_on_others(own, others), "pairs": pairs_on_others(own, others)}
    text = render_text("published.md.jinja", title=_title(sweeps), sweeps=sweeps, missing=missing, together=together, **beside)
    (folder / README).write_text(text, encoding="utf-8")
    write_lacks(folder, missing)
    write_manifest(folder)


def _title(sweeps: Sequence[PublishedSweep]) -> str:
    """What was measured, and on what: `BERT inference, NVIDIA H200`, `A/A of Canary network and BERT inference, NVIDIA H200`."""
    what = listed(list(dict.fromkeys(sweep.suite for sweep in sweeps)))
    kinds = {sweep.kind for sweep in sweeps}
    kind = kinds.pop() if len(kinds) == 1 else ""
    devices = devices_told(device for sweep in sweeps for device in sweep.devices)
    return ", ".join(filter(None, [f"{kind} of {what}" if kind else what, devices]))


def _publish_sweep(store: SweepStore, target: Path, part: Plan | None = None) -> PublishedSweep:
    """Write one sweep's files, with `part` as its plan; its report is made of what was written.

    What the report knows from other sweeps goes along, since they are not published with it.
    """
    sweep = load_sweep(store.dir, part)
    keep_knowledge(sweep)
    target.mkdir(parents=True)
    publish_plan(sweep.plan, None if part else store.dir / PLAN, target / PLAN)
    for name in (KNOWN_SPREAD, CERTIFICATES, HELD_TIME):
        if (store.dir / name).exists():  # an A/A sweep has no copy of certificates
            shutil.copyfile(store.dir / name, target / name)
    names = _host_names(sweep.rows)
    write_published_steps(target / STEPS, {row.trial.key: _trial(row, store.trial_dir(row.trial.key), names) for row in sweep.rows})
    return published_sweep(target)


def publish_again(source: Path, target: Path) -> PublishedSweep:
    """Write the report of a published sweep, in `source`, anew into `target`; what was measured stays byte by byte, and of its plan all
    but the places that `publish_plan` hides."""
    target.mkdir(parents=True)
    for kept in (STEPS, KNOWN_SPREAD, CERTIFICATES, HELD_TIME):  # with the plan what was measured and known; all else is derived
        if (source / kept).exists():
            shutil.copyfile(source / kept, target / kept)
    if (plan := read_plan(source / PLAN)) is not None:
        publish_plan(plan, source / PLAN, target / PLAN)  # earlier ones may name where data lay
    return published_sweep(target)


def published_sweep(folder: Path) -> PublishedSweep:
    """Write the report of a published sweep from its own plan and steps; returns what the README says of it."""
    published = load_sweep(folder)
    paths = render_report(published)
    report = make_report(published)
    headline = headline_of(report)
    table = report.section("comparison").block(ComparisonTable) if "comparison" in report.section_names else None
    loading = report.section("data_loading").block(Bullets) if "data_loading" in report.section_names else None
    sections = [report.section(name) for name in _SHOWN if name in report.section_names]
    linked = [report.section(name) for name in _LINKED if name in report.section_names]
    drawn = {path.stem: (title, path.relative_to(folder.parent).as_posix()) for title, path in paths.drawn}
    picture = next((drawn[name] for name in _PICTURES if name in drawn), None)
    heading = published.plan.suite.report.title or report.title
    known = known_of(published) if published.plan.aa else []
    covered = certificate_lines(known, "")
    return PublishedSweep(
        published.sweep_id,
        title_of(published.plan.suite),
        " · ".join(kind_of(published.plan)),
        _ran_on(published.rows),
        report,
        heading,
        set_and_chosen(published.plan.request.set, published.plan.request.only),
        certificates_in_brief(known) or list_line(report),
        render_text("report_head.md.jinja", report=report, headline=headline).strip(),
        _facts(published, report),
        given_command(published.plan, held_of(published)),
        table,
        loading,
        sections,
        [(one.title, _anchor(one.title)) for one in linked if not one.only_how],
        picture,
        covered,
        known,
    )


def _anchor(title: str) -> str:
    """Of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def publish_plan(plan: Plan, source: Path | None, target: Path) -> None:
    """Write the plan to `target`; byte by byte from `source`, the file that holds it, if there is one and nothing in it is hidden.

    Data sets that we made are named below runs/, wherever that lay, and the home folder of whoever publishes is `~`: these places say
    nothing of what was measured, and may name a user.

    Of trials that were cut too: they stay in the plan.
    """
    named = {"trials": [_named_below_runs(trial) for trial in plan.trials], "cut": [_named_below_runs(trial) for trial in plan.cut]}
    told = _without_home(plan.model_copy(update=named))
    if source is not None and told == plan:
        shutil.copyfile(source, target)
    else:
        atomic_write(target, sealed_text(told))


def _home() -> Mapping[str, str]:
    """The home folder -> what stands in its place; empty for a user without one."""
    home = str(Path.home())
    return {home: "~"} if len(home) > 1 else {}


def _without_home(plan: Plan) -> Plan:
    text = plan.model_dump_json()
    shown = hidden(text, _home())
    return plan if shown == text else Plan.model_validate_json(shown)


def _named_below_runs(trial: Trial) -> Trial:
    ours = is_drawn(trial.parameters) or is_made(trial.data)
    return trial.model_copy(update={"data": _below_runs(trial.data)}) if ours else trial


def _below_runs(data: DataSource | None) -> DataSource | None:
    if data is None:
        return None
    uri = f"runs/data/{Path(data.uri).name}"
    return data.model_copy(update={"uri": uri, "tokenizer": f"{uri}/tokenizer" if data.tokenizer else None})


def _host_names(rows: Sequence[TrialRow]) -> Mapping[str, str]:
    """Name of a host, or the home folder -> what stands in its place."""
    hosts = {str(row.environment["host"]): str(row.environment.get("host_id") or "a host") for row in rows if row.environment.get("host")}
    return {**{name: f"host {host_id}" for name, host_id in hosts.items()}, **_home()}


def _trial(row: TrialRow, folder: Path, names: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """A trial's steps, and what else its row is made of: without names of hosts and users, and without log tails, which hold paths."""
    assert row.result is not None  # why_not_whole
    table = steps_table(folder) if (folder / JOURNAL).exists() else _no_steps()
    meta = meta_of(table)

    environment = {name: value for name, value in row.result.environment.items() if name not in PRIVATE}
    disturbed = row.disturbed and re.sub(r", user [^)]*|(?<= %\)): [^;]*", "", row.disturbed)  # what it was, not whose, nor what they ran
    reason = row.result.reason and hidden(row.result.reason, names)
    update = {"environment": environment, "reason": reason, "detail": None, "disturbed": disturbed}
    told: TrialResult = row.result.model_copy(update=update)
    beside = {
        **meta,
        "result": told.model_dump(mode="json"),
        CAPPED_BY: list(row.capped_by),
        "environment": {name: value for name, value in meta.get("environment", {}).items() if name not in PRIVATE},
        "notes": [{**note, "text": hidden(str(note["text"]), names)} for note in meta.get("notes", ())],
    }
    return table.replace_schema_metadata(None), beside


def _no_steps() -> Any:
    """The table of a trial that never began."""
    import pyarrow as pa

    return pa.table({field.name: pa.array([], pa.type_for_alias(field.kind)) for field in FIELDS})


def _facts(sweep: Sweep, report: Report) -> list[tuple[str, str]]:
    """(name, value) of what a page says beside its table; what is not known is left out."""
    rows = [row for row in sweep.rows if row.environment]
    own = [row for row in sweep.rows if not row.trial.reference]
    many, of = per_cell((row.trial.cell, row.outcome) for row in own)
    disturbed = disturbed_among([row.disturbed for row in own])
    started = [row.result.started_at for row in sweep.rows if row.result]
    known = report.section("aa").block(Bullets).lines if "aa" in report.section_names and not sweep.plan.aa else []
    software = [f"{name} {text}" for name in VERSIONS if (text := _values(rows, name))]
    code = f"{f'commit {commit}' if (commit := ran_at(sweep)) else 'no commit known'}, tree {tree_text(sweep)}"
    facts = [
        ("Suite", f"{sweep.plan.suite.suite}, profile {sweep.plan.profile}"),
        ("Device", devices_told(_ran_on(rows))),
        ("Settings", settings_text(report.cells)),
        ("Clocks", clocks_in_brief(report.cells)),
        ("A/A", " ".join(known)),
        ("Hosts", _values(rows, "host_id")),
        ("Software", ", ".join(software)),
        ("Code", commits_text(sweep.plan) if all(row.trial.commit for row in sweep.rows) else code),
        ("Other commits", "" if all(row.trial.commit for row in sweep.rows) else commits_text(sweep.plan)),
        ("Date", _dates(started)),
        ("Trials", "".join([f"{many} for each of {of}", _references(sweep.rows), _rounds_short_of(sweep.plan), disturbed])),
        ("Held time", held_sentence(held) if (held := held_of(sweep)) else "not recorded"),
    ]
    return [(name, value) for name, value in facts if value]


def _references(rows: Sequence[TrialRow]) -> str:
    """`, and 3 of references for their loss alone`, which are no cells, but held the pool too; empty for none."""
    count = sum(row.trial.reference for row in rows)
    return f", and {count} of references for their loss alone" if count else ""


def _rounds_short_of(plan: Plan) -> str:
    """`; 2 of at least 3 rounds`; empty where it has as many as it was to have, and where none were planned."""
    if plan.decide is None or plan.race is not None or plan.last_round >= plan.decide.least:
        return ""
    return f"; {plan.last_round} of at least {plan.decide.least} rounds that it was to have"


def _values(rows: Sequence[TrialRow], name: str) -> str:
    return listed(list(dict.fromkeys(str(row.environment[name]) for row in rows if row.environment.get(name) is not None)))


def _ran_on(rows: Sequence[TrialRow]) -> list[tuple[str, int]]:
    """(name, number) of each trial's devices; without trials that did not tell."""
    known = [row for row in rows if row.environment.get("device_name")]
    return [(str(row.environment["device_name"]), int(row.trial.parameters.get(DEVICES) or 1)) for row in known]


def _dates(started: Sequence[float]) -> str:
    days = [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in (min(started), max(started))] if started else []
    return f"{' to '.join(dict.fromkeys(days))} (UTC)" if days else ""
