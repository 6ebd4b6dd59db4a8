"""What a summary metric is: its unit, which way is better, and how it is averaged and printed. metrics.py lists them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """Which values are better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Scale(StrEnum):
    """On what a metric is averaged and compared.

    LOG: geometric mean and ratios, for what is always above 0. LINEAR, COUNT: arithmetic mean and differences, for what may be 0.
    """

    LOG = "log"
    LINEAR = "linear"
    COUNT = "count"


class Kind(StrEnum):
    """How a value is printed: 581.5 samples/s, 12.3 ms, 3.00 GiB, 12.3 %, 2.345, 1,024."""

    RATE = "rate"
    SECONDS = "seconds"
    BYTES = "bytes"
    SHARE = "share"
    NUMBER = "number"
    COUNT = "count"


_WORDS = {Kind.RATE: ("slower", "faster"), Kind.SECONDS: ("slower", "faster"), Kind.BYTES: ("more", "less"), Kind.COUNT: ("more", "less")}


@dataclass(frozen=True)
class Metric:
    """One summary metric.

    minimum_effect: the smallest difference that matters; relative on the logarithmic scale (0.03 is 3 %), else absolute, in the unit.
    depends_on_node: a slower node shows in it, so nights take off what the canary shares with it.
    depends_on_batch: comparable only between cells of one batch size.
    depends_on_seed: of the model, not of the time it takes: trials of one seed agree in it, whatever those of other seeds would show.
    of_steps: a field of each step, not of the summary.
    beside: metrics that a table shows with it, as its field tells them together; a suite may name others (`report: beside`).
    """

    name: str
    unit: str
    direction: Direction
    scale: Scale
    minimum_effect: float
    kind: Kind
    description: str
    depends_on_node: bool = False
    depends_on_batch: bool = False
    depends_on_seed: bool = False
    of_steps: bool = False
    short: str = ""  # the name without its unit, where the name holds one
    meaning: str = ""  # of a label that is an abbreviation, or may be taken for something else, in a few words
    beside: tuple[str, ...] = ()
    words: tuple[str, str] | None = None  # of a change for the worse and for the better, where the kind's do not fit

    @property
    def label(self) -> str:
        """For people, without the unit: `latency p50`."""
        return self.short or self.name.replace("_", " ")

    @property
    def title(self) -> str:
        """With the unit, unless the label says it: `latency p50 (s)`."""
        return f"{self.label} ({self.unit})" if self.unit and self.unit not in self.label.split() else self.label

    @property
    def higher_is_better(self) -> bool:
        return self.direction is Direction.HIGHER

    @property
    def lower_is_better(self) -> bool:
        return self.direction is Direction.LOWER

    @property
    def worse(self) -> str:
        """A change for the worse in a word, such as `slower`."""
        return self._words[0]

    @property
    def better(self) -> str:
        """A change for the better in a word, such as `faster`."""
        return self._words[1]

    @property
    def _words(self) -> tuple[str, str]:
        of_numbers = ("lower", "higher") if self.higher_is_better else ("higher", "lower")
        of_kind = of_numbers if self.higher_is_better and self.kind is not Kind.RATE else _WORDS.get(self.kind, of_numbers)
        return self.words or of_kind
