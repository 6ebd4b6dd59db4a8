"""Which pages beside a page publish A/A pairs of its devices, where its own sweeps knew none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from experiments.config.errors import UserError
from experiments.metrics import metric_of
from tasks.analysis.certificates import Certificate, Subject, certificate_of, kept_certificates, merge
from tasks.analysis.results import load_sweep
from tasks.report.certificate_text import certificates_beside
from tasks.report.published_pages import Page, SweepOnPage
from tasks.sweep.aa_arms import arm_metric


def pairs_on_others(own: Page, others: Sequence[Page]) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Id of a sweep of `own` that knew no A/A pairs -> name of each page that has some of a device of the same name and of the same kind of
    metric, and what these show, in a sentence without its stop. A page that cannot be read has none."""
    unknown = [(sweep, _unknown(sweep.folder)) for sweep in own.sweeps]
    wanted = {_kind(one.device, one.metric) for _, subjects in unknown for one in subjects}
    known = {page.name: found for page in others if (found := _pairs_of(page, wanted))}
    return {sweep.folder.name: _told(sweep, subjects, known) for sweep, subjects in unknown}


def _told(sweep: SweepOnPage, subjects: Sequence[Subject], known: Mapping[str, Sequence[Certificate]]) -> list[tuple[str, str]]:
    kinds = {_kind(one.device, one.metric) for one in subjects}
    found = {name: [one for one in certificates if _kind(one.device, one.metric) in kinds] for name, certificates in known.items()}
    suite, metrics = sweep.plan.suite.suite, {one.metric for one in subjects}
    return [(name, certificates_beside(certificates, suite, metrics)) for name, certificates in found.items() if certificates]


def _unknown(folder: Path) -> list[Subject]:
    """Of what a published sweep measured, that of which it keeps that no pairs were known; none of an A/A sweep, which keeps nothing."""
    return [Subject(one.pool, one.device, one.metric) for one in kept_certificates(folder) or () if one.certificate is None]


def _pairs_of(page: Page, wanted: Collection[tuple[str, str]]) -> list[Certificate]:
    """The certificates of its A/A sweeps of one of `wanted`, those of one subject together."""
    found = []
    for sweep in page.sweeps:
        metric = arm_metric(sweep.plan.suite.report.metric)
        if sweep.kind == "A/A" and any(_kind(device, metric) in wanted for device, _ in sweep.ran_on.values()):
            with suppress(UserError, OSError, ValueError):
                found.append(certificate_of(load_sweep(sweep.folder)))
    return list(merge(one for one in found if one is not None).values())


def _kind(device: str, metric: str) -> tuple[str, str]:
    return device, metric_of(metric).kind
