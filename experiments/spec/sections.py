"""The sections of a suite file, one function each: complain about what is wrong, and return the section with typed values.

`report` is in report_section.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.config.errors import KeyPath, choose
from experiments.config.scalar_text import yaml_text
from experiments.spec import matrix
from experiments.spec.profile import ProfileContext
from experiments.spec.schema import Axes, Condition, Match
from experiments.spec.vocabulary import BAD
from experiments.trial import DEFAULTS, RUN_AXES

# --- axes


def check_axes(profile: ProfileContext) -> Axes:
    """`axes`: each axis with its values, without those that the workload refuses."""
    axes = _check_values(profile, profile.section("axes"), "axes")
    for name, values in axes.items():
        seen: set[Any] = set()
        for number, value in enumerate(values):
            if (type(value), value) in seen:
                profile.complain((*profile.key("axes", name), number), f"{value!r} is listed twice", "list each value once")
            seen.add((type(value), value))
    return axes


def _check_values(profile: ProfileContext, axes: Axes, section: str, *place: int) -> Axes:
    clean: Axes = {}
    for name, values in axes.items():
        key = profile.key(section, *place, name)
        if name == "device":
            profile.complain(key, "is no axis", "the axis is `pool`; each pool has one kind of device")
            continue
        if not profile.knows(key, name):
            continue
        if not values:
            profile.complain(key, "has no values", f"list at least one, as in `{name}: [{_example(profile, name)}]`")
        clean[name] = [profile.value((*key, number), name, value) for number, value in enumerate(values)]
    return {name: [value for value in values if value is not BAD] for name, values in clean.items()}


def _example(profile: ProfileContext, name: str) -> str:
    """A value that the axis could have, as YAML writes it."""
    if name in RUN_AXES:
        return {"pool": next(iter(profile.words.pools), "cpu"), **DEFAULTS}[name]
    field = profile.words.schema.model_fields[name]
    value = "..." if field.is_required() else field.get_default()
    return yaml_text(value)


# --- linked


def check_linked(profile: ProfileContext, axes: Iterable[str]) -> list[Axes]:
    """`linked`: each group of axes with its values. `axes` are those of the section `axes`."""
    groups, seen = [], set(axes)
    for number, group in enumerate(profile.section("linked")):
        key = profile.key("linked", number)
        lengths = {name: len(values) for name, values in group.items()}
        if len(set(lengths.values())) > 1:
            profile.complain(key, f"lists differ in length: {matrix.show(lengths)}", "linked axes are zipped: give each as many values")
            continue
        if len(group) < 2:
            profile.complain(key, "links fewer than two axes", "name two or more axes, or use `axes`")
        for name in seen.intersection(group):
            profile.complain((*key, name), "is an axis already", "keep it in one place")
        seen.update(group)
        clean = _check_values(profile, group, "linked", number)
        _check_rows_differ(profile, key, clean)
        groups.append(clean)
    return groups


def _check_rows_differ(profile: ProfileContext, key: KeyPath, group: Axes) -> None:
    seen: set[Any] = set()
    for row, values in enumerate(zip(*group.values(), strict=False)):  # lists lose the values that were complained about
        identity = tuple((type(value), value) for value in values)
        if identity in seen:
            profile.complain(key, f"row {row + 1} repeats an earlier one", "list each combination once")
        seen.add(identity)


# --- fixed


def check_fixed(profile: ProfileContext, axes: Iterable[str]) -> dict[str, Any]:
    """`fixed`: the suite's values merged with the profile's. `axes` are all axes of the profile."""
    merged = dict(profile.file.fixed)
    if profile.prefix:
        if profile.gives("axes") or profile.gives("linked"):  # a profile's axis takes the place of the suite's fixed value
            merged = {name: value for name, value in merged.items() if name not in set(axes)}
        merged |= profile.sections.fixed
    clean = {}
    for name, value in merged.items():
        key = profile.key("fixed", name)
        if name in RUN_AXES:
            profile.complain(key, "is an axis", f"write `axes: {{{name}: [{value}]}}`")
        elif profile.knows(key, name, others=()):
            if name in axes:
                profile.complain(key, "is an axis too", "keep it in one place: axes for several values, fixed for one")
            clean[name] = profile.value(key, name, value)
    return clean


# --- conditions and exclude


def check_conditions(profile: ProfileContext, axes: Sequence[str]) -> list[Condition]:
    """`conditions`: what each matches and sets."""
    clean = []
    for number, item in enumerate(profile.section("conditions")):
        key = profile.key("conditions", number)
        when, setting = _check_match(profile, (*key, "when"), item.when), {}
        for name, value in item.set.items():
            place = (*key, "set", name)
            if name in RUN_AXES or name in axes:
                profile.complain(place, "is an axis", "a condition sets other parameters; use exclude and include to shape an axis")
            elif profile.knows(place, name, others=()):
                setting[name] = profile.value(place, name, value)
        clean.append(Condition.model_construct(when=when, set=setting))
    return clean


def check_exclude(profile: ProfileContext) -> list[Match]:
    """`exclude`: what each entry matches."""
    return [_check_match(profile, profile.key("exclude", number), entry) for number, entry in enumerate(profile.section("exclude"))]


def _check_match(profile: ProfileContext, key: KeyPath, match: Mapping[str, Any]) -> Match:
    if not match:
        profile.complain(key, "is empty", "name at least one axis and its value")
    clean: Match = {}
    for name, value in match.items():
        if not profile.knows((*key, name), name, (*RUN_AXES, "device")):
            continue
        if isinstance(value, list):
            clean[name] = [profile.value((*key, name, number), name, item) for number, item in enumerate(value)]
            if not value:
                profile.complain((*key, name), "has no values", "give a value or a list of values")
            for number, item in enumerate(value):
                profile.check_free_name((*key, name, number), name, item)
        else:
            clean[name] = profile.value((*key, name), name, value)
            profile.check_free_name((*key, name), name, value)
    return clean


# --- include


def check_include(profile: ProfileContext, linked: Sequence[Axes]) -> list[dict[str, Any]]:
    """`include`: the values that each entry names. An entry may name a part of linked axes only with values that they have."""
    clean = []
    for number, entry in enumerate(profile.section("include")):
        key = profile.key("include", number)
        if not entry:
            profile.complain(key, "is empty", "name at least one axis and its value")
        good = {name: profile.value((*key, name), name, value) for name, value in entry.items() if profile.knows((*key, name), name)}
        for group in linked:
            if _names_a_part_with_a_new_value(group, good):
                problem = "names only a part of linked axes, with a value they do not have"
                profile.complain(key, problem, f"name all of {', '.join(group)}")
        clean.append(good)
    return clean


def _names_a_part_with_a_new_value(group: Axes, entry: Mapping[str, Any]) -> bool:
    named = [name for name in group if name in entry]
    if not named or len(named) == len(group):
        return False
    rows = zip(*(group[name] for name in named), strict=True)
    return not any(all(matrix.same(value, entry[name]) for value, name in zip(row, named, strict=True)) for row in rows)


# --- baseline


def check_baseline(profile: ProfileContext, axes: Sequence[str]) -> dict[str, Any]:
    """`baseline`: axis -> value."""
    clean = {}
    for name, value in profile.section("baseline").items():
        key = profile.key("baseline", name)
        if name in axes:
            clean[name] = profile.value(key, name, value)
        else:
            profile.complain(key, "is not an axis", choose(name, axes))
    return clean
