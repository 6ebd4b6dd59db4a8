"""What a workload needs of a data set of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.datasets.columns import Holds


@dataclass(frozen=True)
class TokenizerRecipe:
    """A tokenizer that is trained on the data set's own texts: see parquet_writer.write_tokenizer."""

    vocabulary: int
    special: tuple[str, ...]
    template: str


@dataclass(frozen=True)
class Needs:
    """`columns`: parameter that names a column -> what it must hold. `tokenizer`: the one to train where there is none.

    `classes`: the most that the model tells apart; None where it has none, or any number.
    """

    columns: Mapping[str, Holds]
    tokenizer: TokenizerRecipe | None = None
    classes: int | None = None
