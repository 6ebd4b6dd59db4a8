"""Whether a data set's classes are numbers or names that a model tells apart, and where its tokenizer comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.datasets.columns import WANTED
from experiments.datasets.own.findings import Inspection
from experiments.datasets.own.needs import Needs, TokenizerRecipe
from experiments.datasets.own.table import Part

TOKENIZER_FILE = "tokenizer.json"


def check_classes(found: Inspection, needs: Needs, columns: Mapping[str, str], train: str, validation: str | None) -> tuple[str, ...]:
    """The names of the classes where labels are texts, in the order of their numbers."""
    parameter = next((name for name, kind in needs.columns.items() if kind == "label"), None)
    if parameter is None or parameter not in columns:
        return ()
    column = columns[parameter]
    trained = _values(found.table.parts[train], column)
    held_out = _values(found.table.parts[validation], column) if validation else set()
    if None in trained or None in held_out:
        found.add("missing", "classes", f"some rows have no {column}")
        return ()
    names = all(isinstance(value, str) for value in trained)
    if strange := held_out - trained:
        found.add("missing", "classes", f"held-out rows have classes that no training row has: {_few(strange)}")
    count = len(trained) if names else max(trained) + 1
    if not names and min(trained | held_out) < 0:
        found.add("missing", "classes", f"{column} holds {min(trained | held_out)}, wanted {WANTED['label']}")
    elif count < 2:
        found.add("missing", "classes", f"all training rows are of one class, {_few(trained)}: nothing is to be learnt")
    elif needs.classes is not None and count > needs.classes:
        found.add("missing", "classes", f"{count} are more than the {needs.classes} that this model tells apart", "--set model=...")
    else:
        found.add("found", "classes", f"{count}" + (f": {_few(trained)}" if names else ""))
    return tuple(sorted(trained)) if names else ()


def _values(part: Part, column: str) -> set[Any]:
    values: set[Any] = set()
    for batch in part.batches([column]):
        values |= set(batch.column(0).unique().to_pylist())
    return values


def _few(values: set[Any]) -> str:
    some = sorted(map(str, values))
    return ", ".join(some[:8]) + (f" and {len(some) - 8} more" if len(some) > 8 else "")


def check_tokenizer(found: Inspection, needs: Needs, parameters: Mapping[str, Any]) -> tuple[TokenizerRecipe | None, str | None]:
    """The tokenizer to train, or the file to take; neither where none is needed or the parameters name one."""
    if not any(kind == "text" for kind in needs.columns.values()):
        return None, None
    what = "tokenizer"
    if (own := parameters.get("tokenizer")) is not None:
        if (Path(own).expanduser() / TOKENIZER_FILE).is_file():
            found.add("found", what, own)
        else:
            found.add("missing", what, f"{own} has no {TOKENIZER_FILE}", "--set tokenizer=FOLDER, or leave it out")
        return None, None
    if parameters.get("weights") is not None:
        found.add("found", what, "that of the weights")
        return None, None
    for folder in (found.table.folder, found.table.folder / "tokenizer"):
        if (folder / TOKENIZER_FILE).is_file():
            found.add("found", what, str(folder / TOKENIZER_FILE))
            return None, str(folder / TOKENIZER_FILE)
    if needs.tokenizer is None:
        found.add("missing", what, "the workload trains none of its own", "--set tokenizer=FOLDER, with a tokenizer.json")
        return None, None
    text = f"trained on the training rows' text, at most {needs.tokenizer.vocabulary} tokens"
    found.add("made", what, text, "--set tokenizer=FOLDER takes another")
    return needs.tokenizer, None
