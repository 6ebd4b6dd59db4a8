"""What a night measures and how it decides: experiments/nightly/*.yaml, and nightly/*.yaml in the folders of $SWEEPBENCH_EXTRA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from experiments.config.duration import HINT, seconds
from experiments.config.errors import ConfigError, KeyPath, Problem, choose
from experiments.config.named_files import chosen_file, misnamed, named_files
from experiments.config.strict import Strict
from experiments.config.validate import validate
from experiments.config.yaml_document import Document, load
from experiments.metric import Metric
from experiments.metrics import metric_of
from experiments.non_default_parameters import non_default
from experiments.regression.decision import ALPHA, FDR
from experiments.regression.effect import RESOLUTION
from experiments.regression.paired_test import PAIRS
from experiments.spec.schema import Name
from experiments.stats.verdict import Verdict
from experiments.trial import DEFAULTS, Scalar, digest

_HERE = Path(__file__).resolve().parents[1] / "nightly"
_LEAST = 1e-9 + RESOLUTION

Effect = Annotated[float, Field(gt=_LEAST, lt=1)]
BlockName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+/[a-z0-9-]+$")]


# What nights decide on: their words, smallest effects and whether the node shows in them are the registry's
METRICS: dict[str, Metric] = {
    name: metric_of(name)
    for name in (
        "throughput",
        "step_time_p05_s",
        "step_time_median_s",
        "step_time_p90_s",
        "service_time_p50_s",
        "service_time_p99_s",
        "latency_p50_s",
        "latency_p99_s",
        "tokens_per_s",
        "latency_per_token_s",
        "time_to_first_step_s",
        "peak_memory_bytes",
        "final_loss",
        "energy_j_per_sample",
    )
}
DEFAULT_METRICS = ["throughput", "peak_memory_bytes", "time_to_first_step_s", "final_loss", "energy_j_per_sample"]


class NightCells(Strict):
    """Cells of a suite that a night measures."""

    suite: str = Field(description="a suite's name, or the path of its file")
    profile: str = Field(default="full", description="a profile of the suite")
    pools: list[str] = Field(default_factory=list, description="pools to use instead of the suite's")
    only: dict[str, list[Scalar]] = Field(default_factory=dict, description="axis -> values: other cells stay out")
    set: dict[str, Any] = Field(default_factory=dict, description="workload parameter -> value")
    value: float = Field(default=1.0, gt=0, description="what a verdict on them is worth: the lowest is dropped first to fit the budget")
    metrics: list[str] = Field(default_factory=lambda: list(DEFAULT_METRICS), min_length=1, description="the first asks for repeats")
    minimum_effect: dict[str, Effect] = Field(default_factory=dict, description="metric -> smallest change that matters; 0.03 is 3 %")


class NightFile(Strict):
    """A nightly definition: one YAML file. Field names are its keys."""

    nightly: Name = Field(description="the file's name without .yaml")
    description: str = Field(default="", max_length=2000, description="what the nights guard")
    cells: list[NightCells] = Field(min_length=1, description="what is measured every night, by suite")
    canary: NightCells | None = Field(default=None, description="one cell for each pool: tells whether the node or the code is slower")
    probe: str | None = Field(default=None, description="suite of the cell that both controls copy; null: the canary's")
    injected_slowdown: float = Field(default=0.08, gt=0, le=1, description="size of the slow-down that must be found every night")
    repeats: int = Field(default=3, ge=2, le=50, description="of each cell, interleaved")
    looks: list[int] = Field(default_factory=lambda: [5, 8], description="repeats of the later interim analyses, for undecided cells")
    pairs: list[int] = Field(default_factory=lambda: list(PAIRS), description="numbers of pairs after which is decided; []: no pairs")
    bisect: bool = Field(default=True, description="look for the commit behind what pairs have shown to be worse")
    bisect_budget: str = Field(default="30m", description="most of the night's time that this may take")
    budget: str = Field(default="2h", description="time for the whole night, such as 2h or 90m")
    baseline_nights: int = Field(default=20, ge=3, le=200, description="most nights a baseline is made of")
    least_nights: int = Field(default=5, ge=3, le=50, description="nights that a baseline needs; before, everything is undecided")
    accept_after: int = Field(default=5, ge=2, le=50, description="nights in a row after which a change is accepted by itself")
    alpha: float = Field(default=ALPHA, gt=0, lt=0.2, description="chance of a false alarm of a cell a night; of pairs, in each direction")
    false_discovery_rate: float = Field(default=FDR, gt=0, lt=0.5, description="over all cells of a night, where past nights judge")
    notify: list[BlockName] = Field(default_factory=list, description="Prefect notification blocks, such as slack-webhook/team")

    @property
    def interim_repeats(self) -> list[int]:
        """Repeats after which an interim analysis decides: the first, then the later ones."""
        return [self.repeats, *self.looks]

    @property
    def budget_s(self) -> float:
        return seconds(self.budget)

    @property
    def bisect_budget_s(self) -> float:
        return seconds(self.bisect_budget)


def word_of(verdict: Verdict, metric: str) -> str:
    """A verdict in the words of a metric of METRICS: `slower`, `more`, `higher`; `same` and `undecided` are every metric's."""
    return {Verdict.SLOWER: METRICS[metric].worse, Verdict.FASTER: METRICS[metric].better}.get(verdict, str(verdict))


def load_night(name_or_path: str) -> NightFile:
    """A nightly definition by name or path, checked without its suites. Raises ConfigError that names the file, the key and the remedy."""
    files = nights()  # also for a path: two of one name are an error whenever one is run
    path = chosen_file(str(name_or_path), lambda: files, "nightly", "nightly definition")
    document = load(path)
    file = validate(NightFile, document)
    problems = _problems(file, document, path)
    if problems:
        raise ConfigError(problems)
    return file


def _problems(file: NightFile, document: Document, path: Path) -> list[Problem]:
    """What the schema alone cannot tell."""
    problems = misnamed(document, "nightly", file.nightly, path)
    for index, entry in enumerate(file.cells):
        problems += _unjudged(entry, ("cells", index), document)
    if file.canary is not None:
        problems += _unjudged(file.canary, ("canary",), document)
    if any(later <= earlier for earlier, later in zip(file.interim_repeats, file.looks, strict=False)):
        problems.append(document.problem(("looks",), f"is {file.looks}", f"write rising numbers of repeats above {file.repeats}"))
    if any(later <= earlier for earlier, later in zip([1, *file.pairs], file.pairs, strict=False)):
        problems.append(document.problem(("pairs",), f"is {file.pairs}", "write rising numbers of pairs from 2 on, such as [3, 5, 8, 12]"))
    if file.least_nights > file.baseline_nights:
        key = "least_nights" if "least_nights" in file.model_fields_set else "baseline_nights"
        problem = f"a baseline of {file.baseline_nights} nights at most never has the {file.least_nights} that it needs"
        problems.append(document.problem((key,), problem, "write a `least_nights` that is no more than `baseline_nights`"))
    for key in ("budget", "bisect_budget"):
        try:
            seconds(getattr(file, key))
        except ValueError as error:
            problems.append(document.problem((key,), str(error), HINT))
    suites = [entry.suite for entry in file.cells]
    if file.probe is not None and file.probe not in suites:
        problems.append(document.problem(("probe",), f"{file.probe!r} has no cells here", choose(file.probe, suites)))
    return problems


def _unjudged(entry: NightCells, key: KeyPath, document: Document) -> list[Problem]:
    """Metrics that no night judges, and smallest effects of metrics that are not among the entry's."""
    problems = [
        document.problem((*key, "metrics"), f"{name!r} is not judged", choose(name, METRICS))
        for name in entry.metrics
        if name not in METRICS
    ]
    for name in entry.minimum_effect:
        if name not in entry.metrics:
            hint = "add it to `metrics`, or leave it out" if name in METRICS else choose(name, entry.metrics)
            problems.append(document.problem((*key, "minimum_effect", name), f"{name!r} is not judged here", hint))
    return problems


def nights() -> dict[str, Path]:
    """Name -> file of every nightly definition. Raises ConfigError if two have one name."""
    return named_files(_HERE, "nightly")


def cell_id(suite: str, workload: str, pool: str, parameters: Mapping[str, Any], defaults: Mapping[str, Any], **run: str) -> str:
    """A cell's identity over the nights: a digest of the parameters that are not at their default.

    `run`: its environment and commit by name, which count where they are not the plain ones.

    So a cell keeps its history when the schema gains a parameter; a default whose value changed is named as a cause where it matters.
    """
    special = {name: value for name, value in run.items() if value != DEFAULTS[name]}
    return digest({"suite": suite, "workload": workload, "pool": pool, "parameters": non_default(parameters, defaults), **special})


def drop_to_fit(costs: Mapping[str, float], values: Mapping[str, float], budget_s: float, fixed_s: float = 0.0) -> list[str]:
    """Which cells to leave out so that the rest takes no longer than the budget: lowest value first, of equals the most expensive.

    `costs`: cell -> expected seconds. `fixed_s`: what is measured in any case.
    """
    total = fixed_s + sum(costs.values())
    dropped = []
    for cell in sorted(costs, key=lambda cell: (values[cell], -costs[cell])):
        if total <= budget_s:
            break
        dropped.append(cell)
        total -= costs[cell]
    return dropped
