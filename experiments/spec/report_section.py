"""The section `report` of a suite file: its table, its figures, and the published column beside them."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.config.errors import KeyPath, choose
from experiments.literature.reader import OURS, literature_for
from experiments.metric import Direction, Scale
from experiments.metrics import metric_of
from experiments.spec.profile import ProfileContext
from experiments.spec.schema import ReportFigure, ReportSettings


def check_report(profile: ProfileContext, axes: Sequence[str]) -> ReportSettings:
    """`report`; where there is none, a table whose columns are the last axis."""
    report: ReportSettings | None = profile.section("report")
    if report is None:
        return ReportSettings(rows=list(axes[:-1]) or list(axes), columns=axes[-1])
    _check_table(profile, report, axes)
    _check_compared(profile, report)
    _check_beside(profile, report)
    for number, figure in enumerate(report.figures):
        _check_figure(profile, number, figure, axes)
    _check_published(profile, report)
    return report


def _check_table(profile: ProfileContext, report: ReportSettings, axes: Sequence[str]) -> None:
    for number, name in enumerate(report.rows):
        key = profile.key("report", "rows", number)
        if name not in axes:
            profile.complain(key, f"{name!r} is not an axis", choose(name, axes))
        elif name in report.rows[:number] or name == report.columns:
            profile.complain(key, f"{name!r} is used twice", "each axis is a row or the column, once")
    if report.columns is not None and report.columns not in axes:
        profile.complain(profile.key("report", "columns"), f"{report.columns!r} is not an axis", choose(report.columns, axes))


def _check_figure(profile: ProfileContext, number: int, figure: ReportFigure, axes: Sequence[str]) -> None:
    def key(*rest: str | int) -> KeyPath:
        return profile.key("report", "figures", number, *rest)

    for name, value in figure.where.items():
        if name not in axes:
            continue
        if isinstance(value, list):
            for at, item in enumerate(value):
                profile.check_free_name(key("where", name, at), name, item)
        else:
            profile.check_free_name(key("where", name), name, value)
    numbered = "*" in figure.metric
    if _check_metric(profile, key("metric"), figure.metric) and figure.relative and metric_of(figure.metric).scale is not Scale.LOG:
        profile.complain(key("metric"), f"{figure.metric} may be 0, so it has no ratio", "remove `relative: true`")
    for field, name in (
        *(() if numbered else (("x", figure.x),)),
        *(("series", name) for name in figure.series),
        *(("where", name) for name in figure.where),
    ):
        if name not in axes:
            profile.complain(key(field), f"{name!r} is not an axis", choose(name, axes))


def _check_published(profile: ProfileContext, report: ReportSettings) -> None:
    if report.published is None:
        return
    column, workload = report.published, profile.file.workload
    of_metric = [entry for entry in literature_for(workload, metric=None) if OURS.get(entry.metric, ("",))[0] == report.metric]
    batches = [entry.batch for entry in of_metric if entry.accelerator == column.accelerator]
    if not batches:
        known = list(dict.fromkeys(entry.accelerator for entry in of_metric))
        hint = choose(column.accelerator, known) if known else "remove it, or add a line to experiments/literature/published.csv"
        problem = f"nobody published {report.metric} of {workload} on {column.accelerator!r}"
        profile.complain(profile.key("report", "published", "accelerator"), problem, hint)
    elif column.batch is not None and column.batch not in batches:
        key, hint = profile.key("report", "published", "batch"), f"one of {', '.join(map(str, batches))}"
        profile.complain(key, f"{column.accelerator} has no line with batch {column.batch}", hint)


# --- metrics by name


def _check_compared(profile: ProfileContext, report: ReportSettings) -> None:
    """Complain about a metric of the table that cells cannot be compared by, and about a `minimum_effect` that does not fit it."""
    key = profile.key("report", "metric")
    if not _check_metric(profile, key, report.metric):
        return
    metric = metric_of(report.metric)
    if metric.direction is Direction.NEITHER:
        hint = "cells are compared by what is better high or low; show it in a figure, or say which in experiments/metrics.py"
        profile.complain(key, f"{report.metric} is better neither high nor low", hint)
    if report.minimum_effect is not None and report.minimum_effect >= 1 and metric.scale is Scale.LOG:
        place = profile.key("report", "minimum_effect")
        profile.complain(place, f"is {report.minimum_effect:g}", "write a share below 1: 0.02 is 2 %")


def _check_beside(profile: ProfileContext, report: ReportSettings) -> None:
    names = report.beside or []
    for number, name in enumerate(names):
        key = profile.key("report", "beside", number)
        if "*" in name:
            profile.complain(key, f"{name!r} is several metrics", "name one; a figure can show them all")
        elif _check_metric(profile, key, name) and name in (report.metric, *names[:number]):
            profile.complain(key, f"{name} is shown already", "name each metric once")


def _check_metric(profile: ProfileContext, key: KeyPath, name: str) -> bool:
    """Whether a trial can have the summary metric `name`. Complains if not."""
    wrong = profile.words.unknown_metric(name)
    if wrong:
        profile.complain(key, *wrong)
    return wrong is None
