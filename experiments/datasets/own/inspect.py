"""Whether a workload can read a data set of the user's own: everything that is missing at once, what is guessed, and what is to be made."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from experiments.datasets.columns import WANTED, Holds, holds, is_string
from experiments.datasets.own.check_content import check_classes, check_tokenizer
from experiments.datasets.own.findings import Inspection, Recipe
from experiments.datasets.own.needs import Needs
from experiments.datasets.own.table import TRAINING, UNNAMED, VALIDATION, Part, Table

CUT_SHARE, LEAST_CUT, MOST_CUT = 8, 16, 1024  # held-out rows that are cut off: one in so many, within these bounds
LABEL = "label"  # what image_folder.py calls the column of classes, and most others do
_USUAL = {"train_split": TRAINING, "validation_split": VALIDATION}


def inspect(table: Table, needs: Needs, parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> Inspection:
    """What a workload with these parameters finds in the table. `defaults`: of its parameters; only these give way to a guess.

    Raises OwnDataError for files that cannot be read.
    """
    found = Inspection(table)
    train, validation = _splits(found, parameters, defaults)
    if train is None:
        return found
    found.used = list(dict.fromkeys(name for name in (train, validation) if name is not None))
    columns = found.columns = _columns(found, table.parts[train], needs, parameters, defaults)
    if validation is not None:
        _same_columns(found, validation, columns)
    total = table.parts[train].rows
    cut = 0 if validation else min(max(total // CUT_SHARE, LEAST_CUT), MOST_CUT, total // 2)
    _count(found, parameters, total - cut, table.parts[validation].rows if validation else cut, cut)
    classes = check_classes(found, needs, columns, train, validation)
    recipe, file = check_tokenizer(found, needs, parameters)
    linked = bool(validation) and not classes and bool(table.parts[train].files)
    if found.missing or (linked and not (recipe or file)):
        return found
    texts = tuple(dict.fromkeys(columns[name] for name, kind in needs.columns.items() if kind == "text"))
    label = next((columns[name] for name, kind in needs.columns.items() if kind == "label"), None)
    chosen = tuple(dict.fromkeys(columns.values()))
    found.recipe = Recipe(train, validation, cut, chosen, texts, label, classes, recipe, file, linked)
    return found


def _splits(found: Inspection, parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The parts to train on and to evaluate on; (None, None) where there is nothing to train on, (train, None) where rows are cut off."""
    table = found.table
    names = ", ".join(table.parts) if table.named else "none"
    train, validation = (_split(found, name, usual, parameters, defaults) for name, usual in _USUAL.items())
    if train is None and not table.named and parameters["train_split"] == defaults["train_split"]:
        found.add("found", "training rows", f"all {table.parts[UNNAMED].rows} rows, of which no split is named")
        train = UNNAMED
    if train is None:
        found.add("missing", "training rows", f"there is no split {parameters['train_split']!r}; splits: {names}", "--set train_split=NAME")
        return None, None
    if validation is None and parameters["validation_split"] != defaults["validation_split"]:
        text = f"there is no split {parameters['validation_split']!r}; splits: {names}"
        found.add("missing", "held-out rows", text, "--set validation_split=NAME, or leave it out: rows are then cut off")
    return train, validation


def _split(
    found: Inspection, parameter: str, usual: tuple[str, ...], parameters: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str | None:
    """The part that the parameter names, else the first of the usual names that is there, which is said."""
    parts, name = found.table.parts, str(parameters[parameter])
    what = "training rows" if parameter == "train_split" else "held-out rows"
    if name in parts and name != UNNAMED:
        found.add("found", what, f"{parts[name].rows} rows of the split {name}")
        return name
    other = next((each for each in usual if each in parts), None)
    if other is None or name != defaults[parameter]:
        return None
    found.settings[parameter] = other
    found.add("guessed", what, f"the split {other}, of {parts[other].rows} rows", f"--set {parameter}={other}")
    return other


def _columns(found: Inspection, part: Part, needs: Needs, parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
    """Parameter -> the column that it names, or that was guessed for it. A column is guessed only if no other could be meant."""
    columns: dict[str, str] = {}
    for parameter, kind in needs.columns.items():
        name, what = str(parameters[parameter]), parameter.replace("_", " ")
        fits = [each.name for each in part.schema if _fits(each.type, kind)]
        if name in part.schema.names:
            if name in fits:
                found.add("found", what, name)
                columns[parameter] = name
            else:
                kind_there = part.schema.field(name).type
                text = f"{name} holds {kind_there}, wanted {WANTED[kind]}"
                found.add("missing", what, text, _choices(parameter, fits))
            continue
        taken = {*columns.values(), *(str(parameters[other]) for other in needs.columns if other != parameter)}
        free = [each for each in fits if each not in taken and (kind == "label" or each != LABEL)]  # a class is no caption
        close = difflib.get_close_matches(name, free, n=2, cutoff=0.85)
        if name == defaults[parameter] and (len(free) == 1 or len(close) == 1):
            columns[parameter] = found.settings[parameter] = guess = free[0] if len(free) == 1 else close[0]
            why = f"the only column of {kind}s" if len(free) == 1 else f"the only one like {name}"
            found.add("guessed", what, f"{guess}, {why}", f"--set {parameter}={guess}")
        else:
            text = f"there is no column {name!r}; columns: {', '.join(part.schema.names)}"
            found.add("missing", what, text, _choices(parameter, free))
    return columns


def _choices(parameter: str, names: list[str]) -> str:
    return f"--set {parameter}={' or '.join(names) if names else 'NAME, of a column that holds this'}"


def _fits(kind_of_column: Any, kind: Holds) -> bool:
    """Labels may be names of classes too: they are numbered when the set is made."""
    return holds(kind_of_column, kind) or (kind == "label" and is_string(kind_of_column))


def _same_columns(found: Inspection, validation: str, columns: Mapping[str, str]) -> None:
    there = found.table.parts[validation].schema.names
    for name in columns.values():
        if name not in there:
            found.add("missing", "held-out rows", f"the split {validation} has no column {name!r}; columns: {', '.join(there)}")


def _count(found: Inspection, parameters: Mapping[str, Any], train: int, held_out: int, cut: int) -> None:
    """Whether the rows fill a batch: see Splits.train_indices and held_out_indices."""
    if cut:
        found.add("made", "held-out rows", f"{cut} of {train + cut} rows are cut off, always the same; {train} are left to train on")
    size, devices = parameters["batch_size"], int(parameters["devices"])
    if size != "max" and train < size * devices:
        give = f"--set batch_size={train // devices}" if train >= devices else None
        on = f"{devices} device{'s' if devices > 1 else ''}"
        found.add("missing", "training rows", f"{train} are fewer than a batch of {size} on {on}; give more rows", give)
    if not parameters["evaluate"]:
        return
    wanted, most = int(parameters["evaluation_batch_size"]), int(parameters["evaluation_samples"])
    if held_out < wanted:
        give = f"--set evaluation_batch_size={held_out}" if held_out > 1 else None
        found.add("missing", "held-out rows", f"{held_out} are fewer than one evaluation batch of {wanted}; give more rows", give)
    if most < wanted:
        text = f"evaluation_samples {most} are fewer than one evaluation batch of {wanted}"
        found.add("missing", "held-out rows", text, f"--set evaluation_samples={wanted}")
