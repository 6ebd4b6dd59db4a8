"""Check the sections of one profile of a suite, and give every value the type that the workload gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.config.errors import KeyPath, Problem, choose
from experiments.config.scalar_text import yaml_text
from experiments.config.yaml_document import Document
from experiments.literature.reader import OURS, literature_for
from experiments.metrics import Direction, Scale, metric_of
from experiments.spec import matrix
from experiments.spec.schema import Axes, Condition, Match, Report, SuiteFile
from experiments.spec.vocabulary import BAD, BASE, Vocabulary


class Checker:
    """One profile: collects problems, each with its place in the file."""

    def __init__(self, document: Document, file: SuiteFile, profile: str, words: Vocabulary) -> None:
        self.document, self.words, self.problems = document, words, list[Problem]()
        self.profile = file if profile == BASE else file.profiles[profile]
        self.prefix: KeyPath = () if profile == BASE else ("profiles", profile)
        self.file = file

    def own(self, section: str) -> bool:
        """True if this profile gives the section itself; the base gives all of its own."""
        return not self.prefix or section in self.profile.model_fields_set

    def at(self, section: str, *rest: str | int) -> KeyPath:
        """Where a key of the section stands in the file."""
        if section == "fixed":
            mine = bool(self.prefix) and bool(rest) and rest[0] in self.profile.fixed
            return (*(self.prefix if mine else ()), section, *rest)
        return (*(self.prefix if self.own(section) else ()), section, *rest)

    def section(self, name: str) -> Any:
        return getattr(self.profile if self.own(name) else self.file, name)

    def complain(self, key: KeyPath, problem: str, hint: str) -> None:
        self.problems.append(self.document.problem(key, problem, hint))

    def value(self, key: KeyPath, name: str, value: Any) -> Any:
        """The value as the workload takes it; complains if it does not."""
        clean, wrong = self.words.value(name, value)
        if wrong:
            self.complain(key, *wrong)
            return BAD
        return clean

    def known(self, key: KeyPath, name: str, others: Iterable[str] = ("pool",)) -> bool:
        wrong = self.words.unknown(name, others)
        if wrong:
            self.complain(key, *wrong)
        return not wrong

    # --- one section each

    def axes(self, section: Axes, *place: str | int) -> Axes:
        clean: Axes = {}
        for name, values in section.items():
            key = self.at(*place, name)  # type: ignore[arg-type]
            if name == "device":
                self.complain(key, "is no axis", "the axis is `pool`; each pool has one kind of device")
                continue
            if not self.known(key, name):
                continue
            if not values:
                self.complain(key, "has no values", f"list at least one, as in `{name}: [{self._example(name)}]`")
            clean[name] = [self.value((*key, number), name, value) for number, value in enumerate(values)]
        return {name: [value for value in values if value is not BAD] for name, values in clean.items()}

    def _example(self, name: str) -> str:
        field = None if name == "pool" else self.words.schema.model_fields[name]
        value = next(iter(self.words.pools), "cpu") if field is None else "..." if field.is_required() else field.get_default()
        return yaml_text(value)

    def distinct(self, key: KeyPath, values: Sequence[Any]) -> None:
        seen: set[Any] = set()
        for number, value in enumerate(values):
            if (type(value), value) in seen:
                self.complain((*key, number), f"{value!r} is listed twice", "list each value once")
            seen.add((type(value), value))

    def linked(self, taken: Iterable[str]) -> list[Axes]:
        groups, seen = [], set(taken)
        for number, group in enumerate(self.section("linked")):
            key = self.at("linked", number)
            lengths = {name: len(values) for name, values in group.items()}
            if len(set(lengths.values())) > 1:
                self.complain(key, f"lists differ in length: {matrix.show(lengths)}", "linked axes are zipped: give each as many values")
                continue
            if len(group) < 2:
                self.complain(key, "links fewer than two axes", "name two or more axes, or use `axes`")
            for name in seen.intersection(group):
                self.complain((*key, name), "is an axis already", "keep it in one place")
            seen.update(group)
            clean = self.axes(group, "linked", number)
            seen_rows: set[Any] = set()
            for row, values in enumerate(zip(*clean.values(), strict=False)):  # lists lose the values that were complained about
                identity = tuple((type(value), value) for value in values)
                if identity in seen_rows:
                    self.complain(key, f"row {row + 1} repeats an earlier one", "list each combination once")
                seen_rows.add(identity)
            groups.append(clean)
        return groups

    def fixed(self, axes: Iterable[str]) -> dict[str, Any]:
        merged = dict(self.file.fixed)
        if self.prefix:
            if self.own("axes") or self.own("linked"):  # a profile's axis takes the place of the suite's fixed value
                merged = {name: value for name, value in merged.items() if name not in set(axes)}
            merged |= self.profile.fixed
        clean = {}
        for name, value in merged.items():
            key = self.at("fixed", name)
            if name == "pool":
                self.complain(key, "is an axis", f"write `axes: {{pool: [{value}]}}`")
            elif self.known(key, name, others=()):
                if name in axes:
                    self.complain(key, "is an axis too", "keep it in one place: axes for several values, fixed for one")
                clean[name] = self.value(key, name, value)
        return clean

    def match(self, key: KeyPath, match: Mapping[str, Any]) -> Match:
        if not match:
            self.complain(key, "is empty", "name at least one axis and its value")
        clean: Match = {}
        for name, value in match.items():
            if not self.known((*key, name), name, ("pool", "device")):
                continue
            if isinstance(value, list):
                clean[name] = [self.value((*key, name, number), name, item) for number, item in enumerate(value)]
                if not value:
                    self.complain((*key, name), "has no values", "give a value or a list of values")
                for number, item in enumerate(value):
                    self.named((*key, name, number), name, item)
            else:
                clean[name] = self.value((*key, name), name, value)
                self.named((*key, name), name, value)
        return clean

    def named(self, key: KeyPath, name: str, value: Any) -> None:
        """Complain where an axis is of free names, such as rungs of a ladder, and no profile has this one. Else nobody would."""
        if name in ("pool", "device") or self.words.schema.model_fields[name].annotation not in (str, str | None):
            return
        given = (self.file, *self.file.profiles.values())
        lists = [sections.axes.get(name, []) for sections in given]
        lists += [group.get(name, []) for sections in given for group in sections.linked]
        lists.append([entry[name] for sections in given for entry in sections.include if name in entry])
        known = {str(one) for values in lists for one in values}
        if known and str(value) not in known:
            self.complain(key, f"{value!r} is no value of the axis {name} in any profile", choose(str(value), sorted(known)))

    def conditions(self, axes: Sequence[str]) -> list[Condition]:
        clean = []
        for number, item in enumerate(self.section("conditions")):
            key = self.at("conditions", number)
            when, setting = self.match((*key, "when"), item.when), {}
            for name, value in item.set.items():
                place = (*key, "set", name)
                if name == "pool" or name in axes:
                    self.complain(place, "is an axis", "a condition sets other parameters; use exclude and include to shape an axis")
                elif self.known(place, name, others=()):
                    setting[name] = self.value(place, name, value)
            clean.append(Condition.model_construct(when=when, set=setting))
        return clean

    def include(self, linked: Sequence[Axes]) -> list[dict[str, Any]]:
        clean = []
        for number, entry in enumerate(self.section("include")):
            key = self.at("include", number)
            if not entry:
                self.complain(key, "is empty", "name at least one axis and its value")
            good = {name: self.value((*key, name), name, value) for name, value in entry.items() if self.known((*key, name), name)}
            for group in linked:
                named = [name for name in group if name in good]
                rows = zip(*(group[name] for name in named), strict=True)
                if (
                    named
                    and len(named) < len(group)
                    and not any(all(matrix.same(v, good[n]) for v, n in zip(r, named, strict=True)) for r in rows)
                ):
                    self.complain(key, "names only a part of linked axes, with a value they do not have", f"name all of {', '.join(group)}")
            clean.append(good)
        return clean

    def report(self, axes: Sequence[str]) -> Report:
        report: Report | None = self.section("report")
        if report is None:
            return Report(rows=list(axes[:-1]) or list(axes), columns=axes[-1])
        for number, name in enumerate(report.rows):
            if name not in axes:
                self.complain(self.at("report", "rows", number), f"{name!r} is not an axis", choose(name, axes))
            elif name in report.rows[:number] or name == report.columns:
                self.complain(self.at("report", "rows", number), f"{name!r} is used twice", "each axis is a row or the column, once")
        if report.columns is not None and report.columns not in axes:
            self.complain(self.at("report", "columns"), f"{report.columns!r} is not an axis", choose(report.columns, axes))
        self._compared(report)
        for number, figure in enumerate(report.figures):
            for name, value in figure.where.items():
                place = self.at("report", "figures", number, "where", name)
                for at, item in enumerate(value if isinstance(value, list) else [value]):
                    if name in axes:
                        self.named((*place, at) if isinstance(value, list) else place, name, item)
            numbered = "*" in figure.metric
            place = self.at("report", "figures", number, "metric")
            if self._metric(place, figure.metric) and figure.relative and metric_of(figure.metric).scale is not Scale.LOG:
                self.complain(place, f"{figure.metric} may be 0, so it has no ratio", "remove `relative: true`")
            for key, name in (
                *(() if numbered else (("x", figure.x),)),
                *(("series", name) for name in figure.series),
                *(("where", name) for name in figure.where),
            ):
                if name not in axes:
                    self.complain(self.at("report", "figures", number, key), f"{name!r} is not an axis", choose(name, axes))
        self._published(report)
        return report

    def _published(self, report: Report) -> None:
        if report.published is None:
            return
        told = [entry for entry in literature_for(self.file.workload, metric=None) if OURS.get(entry.metric, ("",))[0] == report.metric]
        wanted = report.published
        mine = [entry.batch for entry in told if entry.accelerator == wanted.accelerator]
        if not mine:
            problem = f"nobody published {report.metric} of {self.file.workload} on {wanted.accelerator!r}"
            known = list(dict.fromkeys(entry.accelerator for entry in told))
            hint = choose(wanted.accelerator, known) if known else "remove it, or add a line to experiments/literature/published.csv"
            self.complain(self.at("report", "published", "accelerator"), problem, hint)
        elif wanted.batch is not None and wanted.batch not in mine:
            place, hint = self.at("report", "published", "batch"), f"one of {', '.join(map(str, mine))}"
            self.complain(place, f"{wanted.accelerator} has no line with batch {wanted.batch}", hint)

    def _compared(self, report: Report) -> None:
        """The metric of the table: one that cells can be judged by."""
        key = self.at("report", "metric")
        if not self._metric(key, report.metric):
            return
        metric = metric_of(report.metric)
        if metric.direction is Direction.NEITHER:
            hint = "cells are compared by what is better high or low; show it in a figure, or say which in experiments/metrics.py"
            self.complain(key, f"{report.metric} is better neither high nor low", hint)
        if report.minimum_effect is not None and report.minimum_effect >= 1 and metric.scale is Scale.LOG:
            self.complain(self.at("report", "minimum_effect"), f"is {report.minimum_effect:g}", "write a share below 1: 0.02 is 2 %")

    def _metric(self, key: KeyPath, name: str) -> bool:
        wrong = self.words.unknown_metric(name)
        if wrong:
            self.complain(key, *wrong)
        return wrong is None

    def baseline(self, axes: Sequence[str]) -> dict[str, Any]:
        clean = {}
        for name, value in self.section("baseline").items():
            key = self.at("baseline", name)
            if name in axes:
                clean[name] = self.value(key, name, value)
            else:
                self.complain(key, "is not an axis", choose(name, axes))
        return clean
