"""What an inspection of a data set of the user's own found, and how the set that trials read is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from experiments.datasets.own.needs import TokenizerRecipe
from experiments.datasets.own.table import Table

State = Literal["found", "guessed", "made", "missing"]


@dataclass(frozen=True)
class Finding:
    """One thing that a workload needs: whether it is there, what of it, and the option that gives or changes it."""

    state: State
    what: str
    text: str
    give: str | None = None  # an option, such as --set caption_column=text

    def __str__(self) -> str:
        return f"{self.what}: {self.text}" + (f" ({self.give})" if self.give else "")


@dataclass(frozen=True)
class Recipe:
    """How the set that trials read is made of the user's files.

    `train`, `validation`: parts of the table; `validation` None: `cut` rows of `train`. `classes`: of text labels, in their numbers' order.
    """

    train: str
    validation: str | None
    cut: int
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    label: str | None
    classes: tuple[str, ...]
    tokenizer: TokenizerRecipe | None
    tokenizer_file: str | None
    linked: bool  # the user's Parquet files serve as they are


@dataclass
class Inspection:
    """What was found. `settings`: parameters whose values were guessed. `columns`: of each parameter that names one.

    `used`: the splits that are read. `recipe`: None where trials read the user's files as they are.
    """

    table: Table
    findings: list[Finding] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    recipe: Recipe | None = None

    @property
    def missing(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state == "missing"]

    def add(self, state: State, what: str, text: str, give: str | None = None) -> None:
        self.findings.append(Finding(state, what, text, give))
