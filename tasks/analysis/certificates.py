"""A/A certificates: what the A/A sweeps here have shown of a device's intervals, kept apart by pool and metric.

runs/certificates/ holds a file for each A/A sweep. All of it is derived from the sweep's trials, so `sweep report` writes it again. The
folder of any other sweep keeps a copy of what was known of its devices when it had ended, and its report shows that copy: later A/A sweeps
do not change what an earlier report says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from cluster.trial_layout import AA_CERTIFICATES, CERTIFICATES
from experiments.atomic_file import atomic_write
from experiments.config.errors import DamagedFile
from experiments.config.strict import Strict
from experiments.json_file import read_file, read_model
from experiments.spec.schema import Suite
from experiments.stats.coverage import Share
from experiments.trial import Trial
from tasks.analysis.aa import GROUPS, STATISTICS_VERSION, AaResult, analyse
from tasks.analysis.results import Sweep
from tasks.sweep.aa_arms import arm_metric


class Subject(NamedTuple):
    """What a certificate is of. `device`: its name as trials know it, else its kind."""

    pool: str
    device: str
    metric: str


class CertifiedGroups(Strict):
    """Of groups of `size` pairs: how many intervals hold 1, how many verdicts are false."""

    size: int
    covered: Share
    false_verdicts: Share


class Certificate(Strict):
    """What one A/A sweep showed, or several of the same subject together."""

    schema_version: Literal[1] = 1
    statistics: int = Field(0, description="STATISTICS_VERSION of the code that judged the pairs; 0: from before there was one")
    sweeps: list[str] = Field(min_length=1, description="ids, oldest first")
    pool: str
    device: str = Field(description="name of the device")
    metric: str
    cells: list[str] = Field(description="what ran: suite and cell")
    first: float = Field(description="when its first trial began, Unix time, s")
    last: float = Field(description="when its last trial ended, Unix time, s")
    commits: list[str]
    trees: list[str] = Field(default_factory=list, description="hashes of the code that ran, where trials know them")
    hosts: list[str] = Field(default_factory=list, description="opaque ids, where trials know them; never a name")
    pairs: int
    left_out: dict[str, int] = Field(description="why, and how many pairs")
    single: Share = Field(description="of intervals of single pairs, with the spread that the others show")
    groups: list[CertifiedGroups]
    steps: Share = Field(description="of intervals that know the noise of steps alone")

    @property
    def subject(self) -> Subject:
        return Subject(self.pool, self.device, self.metric)

    @property
    def suites(self) -> list[str]:
        """Whose cells ran, each once."""
        return list(dict.fromkeys(cell.partition(":")[0] for cell in self.cells))

    @property
    def current(self) -> bool:
        """Whether the pairs were judged as a report of today judges its cells."""
        return self.statistics == STATISTICS_VERSION

    def group(self, size: int) -> CertifiedGroups:
        """Raises KeyError for a size that it does not have."""
        for group in self.groups:
            if group.size == size:
                return group
        raise KeyError(f"no groups of {size} pairs")


class KnownOfDevice(Strict):
    """One subject of a sweep, with what was known of it; null: no A/A pairs."""

    pool: str
    device: str
    metric: str
    certificate: Certificate | None = None


_log = logging.getLogger(__name__)
_COPY = TypeAdapter(list[KnownOfDevice])


def certificate_of(sweep: Sweep) -> Certificate | None:
    """The certificate of an A/A sweep; None for another sweep, and while no pair counts."""
    plan = sweep.plan
    result = analyse(sweep.rows, plan.suite) if plan.aa else None
    if result is None or not result.pairs:
        return None
    results = [row.result for row in result.rows if row.result]
    first = result.rows[0]
    pool, device, metric = subject_of(first.trial, first.environment, plan.suite)
    return Certificate(
        statistics=STATISTICS_VERSION,
        sweeps=[sweep.sweep_id],
        pool=pool,
        device=device,
        metric=metric,
        cells=[f"{plan.suite.suite}: {first.trial.name.rsplit(' · #', 1)[0].removesuffix(' · A')}"],
        first=min(one.started_at for one in results),
        last=max(one.finished_at for one in results),
        commits=[str(plan.git["commit"])] if plan.git.get("commit") else [],
        trees=_values(result, "tree"),
        hosts=_values(result, "host_id"),
        pairs=result.pairs,
        left_out=dict(result.left_out),
        single=result.single,
        groups=[_certified(result, size) for size in GROUPS],
        steps=result.steps,
    )


def _values(result: AaResult, name: str) -> list[str]:
    """What the trials' environments have under `name`, sorted; nothing of trials that do not know it."""
    return sorted({str(value) for row in result.rows if (value := row.environment.get(name)) is not None})


def _certified(result: AaResult, size: int) -> CertifiedGroups:
    group = result.group(size)
    return CertifiedGroups(size=size, covered=group.covered, false_verdicts=group.false_verdicts)


def subject_of(trial: Trial, environment: Mapping[str, Any], suite: Suite) -> Subject:
    """What a certificate for a trial of this suite is of."""
    return Subject(trial.pool, str(environment.get("device_name") or trial.device), arm_metric(suite.report.metric))


def merge(certificates: Iterable[Certificate]) -> dict[Subject, Certificate]:
    """One for each subject: counts add up, since each sweep's pairs are its own. They must be of one version of the statistics."""
    merged: dict[Subject, Certificate] = {}
    for one in sorted(certificates, key=lambda certificate: certificate.first):
        merged[one.subject] = _add(merged[one.subject], one) if one.subject in merged else one
    return merged


def _add(a: Certificate, b: Certificate) -> Certificate:
    def both(name: str) -> list[str]:
        return list(dict.fromkeys([*getattr(a, name), *getattr(b, name)]))

    groups = [
        CertifiedGroups(
            size=group.size,
            covered=group.covered + b.group(group.size).covered,
            false_verdicts=group.false_verdicts + b.group(group.size).false_verdicts,
        )
        for group in a.groups
    ]
    return a.model_copy(
        update={
            **{name: both(name) for name in ("sweeps", "cells", "commits", "trees")},
            "hosts": sorted(both("hosts")),
            "first": min(a.first, b.first),
            "last": max(a.last, b.last),
            "pairs": a.pairs + b.pairs,
            "left_out": {why: a.left_out.get(why, 0) + b.left_out.get(why, 0) for why in {**a.left_out, **b.left_out}},
            "single": a.single + b.single,
            "steps": a.steps + b.steps,
            "groups": groups,
        }
    )


# --- on disk


def certificate_file(sweep_dir: Path) -> Path:
    """Where the certificate of an A/A sweep is: in a folder beside the sweeps."""
    return sweep_dir.parent / AA_CERTIFICATES / f"{sweep_dir.name}.json"


def write_certificate(sweep: Sweep) -> Certificate | None:
    """Write an A/A sweep's certificate, whole or not at all; None for any other sweep, and while no pair counts. Raises OSError."""
    certificate = certificate_of(sweep)
    if certificate is not None:
        path = certificate_file(sweep.dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, certificate.model_dump_json(indent=1))
    return certificate


def read_certificates(root: Path) -> tuple[dict[Subject, Certificate], list[str]]:
    """Every certificate of today's statistics beside the sweeps in `root`, merged by subject, and why files are left out."""
    found, problems = [], []
    for path in sorted((root / AA_CERTIFICATES).glob("*.json")):
        if (certificate := read_certificate(path)) is None:
            problems.append(f"{path} is damaged and left out; `sweep report {path.stem}` writes it again")
        elif not certificate.current:
            problems.append(f"{path} is from earlier statistics and left out; `sweep report {path.stem}` derives it again")
        else:
            found.append(certificate)
    return merge(found), problems


def read_certificate(path: Path) -> Certificate | None:
    """None where there is none that can be read."""
    try:
        return read_model(path, Certificate, "")
    except DamagedFile:
        return None


def known_of(sweep: Sweep) -> list[KnownOfDevice]:
    """Each subject of the trials that measured, with what is known of it: of an A/A sweep what its own pairs show; of any other what its
    folder keeps, else what the sweeps beside it show now, also in place of a copy from earlier statistics. Logs files that are left out.
    """
    subjects = _subjects(sweep)
    if sweep.plan.aa:
        own = certificate_of(sweep)
        return [KnownOfDevice(**own.subject._asdict(), certificate=own)] if own else []
    known = {Subject(one.pool, one.device, one.metric): one.certificate for one in kept_certificates(sweep.dir) or ()}
    if missing := _missing(subjects, known):
        now, problems = read_certificates(sweep.dir.parent)
        for problem in problems:
            _log.warning("%s", problem)
        known |= {subject: now.get(subject, known.get(subject)) for subject in missing}
    return [KnownOfDevice(**subject._asdict(), certificate=known[subject]) for subject in subjects]


def certificates_are_kept(sweep: Sweep) -> bool:
    """Whether the sweep's folder has all that `known_of` gives, so that no other sweep's certificate is read for it."""
    if sweep.plan.aa:
        return True  # its own pairs
    kept = kept_certificates(sweep.dir)
    known = {Subject(one.pool, one.device, one.metric): one.certificate for one in kept or ()}
    return kept is not None and not _missing(_subjects(sweep), known)


def _subjects(sweep: Sweep) -> list[Subject]:
    """What certificates for the trials that measured are of, each once."""
    measured = [row for row in sweep.rows if row.outcome == "ok" and not row.emulated]
    return list(dict.fromkeys(subject_of(row.trial, row.environment, sweep.plan.suite) for row in measured))


def _missing(subjects: Sequence[Subject], known: Mapping[Subject, Certificate | None]) -> list[Subject]:
    """The subjects that the sweep's folder says nothing of, or with earlier statistics."""
    return [one for one in subjects if one not in known or ((certificate := known[one]) is not None and not certificate.current)]


def keep_certificates(sweep: Sweep) -> None:
    """Write certificates.json once every trial of the sweep has ended; what it has of today's statistics is never changed.

    An A/A sweep needs none. Raises OSError.
    """
    if sweep.plan.aa or not sweep.ended:
        return
    known = known_of(sweep)
    if known != kept_certificates(sweep.dir):
        atomic_write(sweep.dir / CERTIFICATES, _COPY.dump_json(known, indent=1).decode())


def kept_certificates(sweep_dir: Path) -> list[KnownOfDevice] | None:
    """What certificates.json of a sweep's folder has; None without one that can be read. A damaged one is logged."""
    try:
        return read_file(sweep_dir / CERTIFICATES, _COPY.validate_json, "the report says what is known now")
    except DamagedFile as error:
        _log.warning("%s", error)
        return None
