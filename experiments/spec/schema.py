"""The schema of a suite file (SuiteFile), and of one profile of it after all checks (Suite)."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, Field, StringConstraints

from experiments.config.duration import Duration
from experiments.config.strict import Strict
from experiments.metrics import metric_of
from experiments.parameters import REFERENCE_SEEDS, ReferencePrecision
from experiments.trial import Scalar

MAX_TRIALS = 100_000
MOST_ROUNDS = 1000
MAX_PRODUCT = 5 * MAX_TRIALS  # cells before excludes: beyond it nothing is even counted

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Axes = dict[str, list[Scalar]]
Match = dict[str, Scalar | list[Scalar]]


def _references(value: Any) -> Any:
    """true means as many seeds as loss parity needs, false none. Raises ValueError for fewer than it needs."""
    if isinstance(value, bool):
        return REFERENCE_SEEDS if value else 0
    if isinstance(value, int) and 0 < value < REFERENCE_SEEDS:
        raise ValueError(f"loss parity needs at least {REFERENCE_SEEDS} seeds; 0 for none")
    return value


_MOST_REFERENCES = 20
References = Annotated[
    int,
    BeforeValidator(_references, json_schema_input_type=bool | Annotated[int, Field(ge=0, le=_MOST_REFERENCES)]),
    Field(ge=0, le=_MOST_REFERENCES),
]


class PoolFacts(Protocol):
    """What a suite needs to know about a pool."""

    @property
    def device(self) -> str:
        """Device kind: cpu, cuda, hpu."""

    @property
    def capacity(self) -> int | None:
        """Devices of the whole pool, None where only the pool itself knows."""


class Condition(Strict):
    """Where a cell matches all of `when`, it gets the values of `set`. Later conditions win."""

    when: Match = Field(min_length=1, description="axis, `device` or parameter -> a value, or a list of which one must match")
    set: dict[str, Any] = Field(min_length=1, description="parameter (not an axis) -> value")


class ReportFigure(Strict):
    """A figure of the report: a metric over an axis, a series of bars for each combination of other axes."""

    title: str = Field(max_length=200, description="above the figure")
    metric: str = Field(description="summary metric; with a * where its name has a number, each cell is a line over that number")
    x: str = Field(description="axis whose values stand side by side; of a metric with a *, what the number counts")
    series: list[str] = Field(default_factory=list, description="axes whose values make the series")
    where: Match = Field(default_factory=dict, description="only cells that match")
    relative: bool = Field(default=False, description="how many times better than the cell's baseline, instead of the metric itself")


class PublishedColumn(Strict):
    """A column of a published table: a line of published.csv for the suite's workload and metric."""

    accelerator: str = Field(max_length=64, description="as published.csv names it")
    batch: int | None = Field(default=None, ge=1, description="samples per device; null: the first line of the accelerator")


class ReportSettings(Strict):
    """The comparison table of a sweep's report, and its figures."""

    rows: list[str] = Field(min_length=1, description="axes whose values name the rows")
    columns: str | None = Field(description="axis whose values are the columns; null: one column, the metric")
    metric: str = Field(default="throughput", description="summary metric in the cells")
    beside: list[str] | None = Field(
        default=None,
        description="further summary metrics in each cell, which are not compared; null: MFU beside tokens/s, nothing beside others",
    )
    title: str | None = Field(default=None, max_length=200, description="of the table; null: made of workload and metric")
    figures: list[ReportFigure] = Field(default_factory=list, description="metrics over the values of an axis")
    published: PublishedColumn | None = Field(
        default=None, description="adds the published table with ours below it; speed-ups are over this column of theirs"
    )
    minimum_effect: float | None = Field(
        default=None,
        gt=0,
        description="a smaller difference is called the same: 0.02 is 2 %; of a score or a count, in its unit",
    )

    @property
    def shown_beside(self) -> list[str]:
        """The metrics beside `metric` in each cell: those named, else those that the registry has for it."""
        names = metric_of(self.metric).beside if self.beside is None else self.beside
        return [name for name in names if name != self.metric]  # a race may be by another metric than its suite


class Rounds(Strict):
    """Rounds of all cells until there is no time for another; with `until_decided`, of those whose comparison is open."""

    budget: Duration = Field(description="no round starts that would end later: 2m, 1h30m")
    until_decided: bool = Field(default=True, description="cells whose comparison is decided take part in no more rounds")
    least: int = Field(default=3, ge=2, le=1000, description="rounds before the first look at the comparisons")
    most: int = Field(default=MOST_ROUNDS, ge=2, le=1000, description="the most rounds")


class Sections(Strict):
    """What a profile may override. A section that is given replaces the suite's; only `fixed` is merged key by key."""

    fixed: dict[str, Any] = Field(default_factory=dict, description="workload parameter -> value, for all cells")
    axes: Axes = Field(
        default_factory=dict, description="pool, environment, commit, workload parameters -> values; their product is the matrix"
    )
    linked: list[Axes] = Field(default_factory=list, description="axes that change together: lists of equal length, zipped")
    conditions: list[Condition] = Field(default_factory=list, description="values for the cells that match; later ones win")
    exclude: list[Match] = Field(default_factory=list, description="cells that match all keys of an entry are left out")
    include: list[dict[str, Scalar]] = Field(default_factory=list, description="cells added after the excludes")
    parity_reference: References = Field(
        default=0,
        description="seeds of the reference for loss parity (true: 3): adds what is missing, and each repeat has another seed",
    )
    parity_precision: ReferencePrecision = Field(
        default="fp32",
        description="the precision of the references that are added; tf32, bf16: where fp32 would take too long, or does not fit",
    )
    same_work: list[str] = Field(
        default_factory=list,
        description="axes that change the work, besides those that the workload names: only cells with equal values are compared",
    )
    repeats: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="how often each cell runs, interleaved; with another seed each where the table's metric depends on it",
    )
    rounds: Rounds | None = Field(default=None, description="in place of `repeats`: as many as there is time for")
    limit: int = Field(default=2000, ge=1, le=MAX_TRIALS, description="most trials (cells x repeats) the suite may have")
    baseline: dict[str, Scalar] = Field(default_factory=dict, description="axis -> value: the cell that the others are compared with")
    report: ReportSettings | None = Field(default=None, description="the comparison table of the report, and its figures")
    retries: int = Field(default=2, ge=0, le=20, description="attempts after the first, for infrastructure failures only")
    retries_disturbed: int = Field(
        default=1, ge=0, le=20, description="how often a trial is measured again because other work was on its device or host"
    )
    hang_timeout_s: float = Field(default=600, gt=0, le=86_400, description="a trial that makes no progress for so long is ended")


class Profile(Sections):
    """A named override of the suite."""

    description: str = Field(default="", max_length=2000, description="when to take this profile")


class SuiteFile(Sections):
    """A suite file."""

    suite: Name = Field(description="the file's name without .yaml")
    title: str | None = Field(default=None, max_length=80, description="what it measures, in a few words, for titles; null: its name")
    description: str = Field(default="", max_length=2000, description="what the suite asks; `sweep suites` shows its first line")
    workload: str = Field(description="a file in experiments/workloads, or in workloads/ of a folder of $SWEEPBENCH_EXTRA")
    profiles: dict[Name, Profile] = Field(default_factory=dict, description="named overrides: `sweep run SUITE --profile NAME`")


class Suite(Strict):
    """One profile of a suite with the user's overrides, checked: every value is one that the workload takes."""

    suite: str
    title: str | None = None  # plans of earlier sweeps lack it
    description: str
    workload: str
    profile: str = Field(description="full, or the profile's name")
    file: str | None = Field(description="the suite's file; null in plans of early sweeps")
    pools: dict[str, str] = Field(description="pool -> device kind, for each pool of the matrix")
    fixed: dict[str, Any]
    axes: Axes
    linked: list[Axes]
    conditions: list[Condition]
    exclude: list[Match]
    include: list[dict[str, Scalar]]
    sets: dict[str, Any] = Field(description="--set: stronger than everything above")
    only: dict[str, list[Scalar]] = Field(description="--only: cells with other values are left out")
    parity_reference: References = 0  # plans of early sweeps lack it, or say true or false
    parity_precision: ReferencePrecision = "fp32"  # plans of earlier sweeps lack it
    same_work: list[str] = Field(default_factory=list, description="the workload's too; plans of earlier sweeps lack it")
    repeats: int
    rounds: Rounds | None = None  # in place of `repeats`; plans of earlier sweeps lack it
    limit: int
    baseline: dict[str, Scalar]
    report: ReportSettings
    retries: int
    retries_disturbed: int = 1  # plans of early sweeps lack it
    hang_timeout_s: float

    @property
    def axis_names(self) -> list[str]:
        """Every axis in the suite's order: axes, linked axes, then parameters that became axes by an include."""
        names = [*self.axes, *(name for group in self.linked for name in group)]
        for entry in self.include:
            names += [name for name in entry if name not in names]
        return names

    @property
    def repeats_are_seeds(self) -> bool:
        """Whether each repeat has a seed of its own: only so do repeats tell a divergence, or a better loss, from chance.

        So it is where losses have to be proven, and where the table is of a metric that depends on the seed. Not with an axis `seed`.
        """
        learnt = self.parity_reference > 0 or metric_of(self.report.metric).depends_on_seed
        return learnt and "seed" not in self.axis_names

    @property
    def measured_again(self) -> int:
        """How often a trial is measured again that other work disturbed. Never where the table is of what it learnt."""
        return 0 if metric_of(self.report.metric).depends_on_seed else self.retries_disturbed
