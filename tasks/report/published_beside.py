"""Each value that others published of a sweep's workload, beside our nearest cell, or our two cells that make the same ratio; and what
differs. Nothing here is a verdict.

Totals of another number of devices are told for one device; a ratio is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.literature.reader import OURS, PER_DEVICE, LiteratureValue, literature_for, loader_ratios
from experiments.metric import Scale
from experiments.precision import LOW
from experiments.stats.verdict import Verdict
from experiments.trial import label
from tasks.analysis.cell import Cell
from tasks.analysis.judge_cells import told_ratio
from tasks.analysis.same_work import other_work
from tasks.report.largest_fit import Fit, fits_of
from tasks.report.text_format import amount, listed, plural, ratio_with_interval, spread, times

_RUN = ("pool", "commit", "environment", "lock_clocks_mhz")
_OF_FLOPS = frozenset({"tflops_per_device", "mfu"})  # a ratio of these may be of cells that do other work
_OF_ONE_DEVICE = PER_DEVICE | {"max_batch_per_device"}
ENOUGH = 3  # trials of a cell: one with fewer is told only where no other has them
OF_WHAT_FITS = frozenset({"max_batch_ratio", "model_size_ratio"})  # one trial tells it
_LESS_IS_BETTER = frozenset({"latency", "epoch_time"})
_PLAIN = {"compile": "none", "attention": "eager", "cuda_graph": False, "kernels": "stock", "block_weights": "fp32", "passes": "apart"}
_PLAIN |= {"padding": "kept", "activation_checkpointing": False}
# more settings that the largest size hangs on
_OF_MEMORY = ("strategy", "batch_size", "precision", "optimizer", "fsdp_reduce", "expandable_segments")
_NO_DIFFERENCE = frozenset({"seed", "evaluate", "communication_steps", "profile_steps", "steps", "warmup_steps", "measure_s", "warmup_s"})


@dataclass(frozen=True)
class Beside:
    """A published value and ours. `theirs`, `ours`: with their units, ours with its interval where it has one. `cell`: the name of our
    cell, or of both. `differs`: what the line names that differs, or does not say. `gap`: how far apart, among as many. `ours_with`:
    settings of our cell that make it faster or smaller, of which the line says nothing. `trials`: of our cell, or of that of both which
    has fewer. `better`: of values as near the one with the most of it is shown. `stand_in`: of another 8-bit precision, since the sweep
    has none of the published one."""

    entry: LiteratureValue
    theirs: str
    ours: str
    cell: str
    differs: Sequence[str]
    gap: float
    trials: int
    ours_with: Sequence[str] = ()
    better: float = 0.0
    stand_in: bool = False

    @property
    def trials_that_count(self) -> int:
        """Of a ratio of rates, up to ENOUGH: more make it no nearer. 0 of all else, such as of what fits, which one trial tells."""
        return min(self.trials, ENOUGH) if self.entry.over and self.entry.metric not in OF_WHAT_FITS else 0

    @property
    def distance(self) -> tuple[int, float]:
        return len(self.differs), self.gap


def published_beside(cells: Sequence[Cell]) -> list[Beside]:
    """What others published of the workloads of these cells, the nearest first; of as near ones a ratio first, then as published.csv has
    them."""
    of_workloads: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell.emulated:
            of_workloads.setdefault(cell.trial.workload, []).append(cell)
    lines = []
    for workload, measured in of_workloads.items():
        entries = literature_for(workload, metric=None)
        lines += [line for entry in [*loader_ratios(entries), *entries] if (line := _nearest(entry, measured))]
    return sorted(lines, key=lambda line: (line.distance, not line.entry.over))


def _nearest(entry: LiteratureValue, cells: Sequence[Cell]) -> Beside | None:
    """None where no cell of ours, or no pair, corresponds to it."""
    ours = [cell for cell in cells if entry.is_of_model(cell.trial.parameters)]
    if entry.metric == "model_size_ratio":
        return min(_size_ratios(entry, ours), key=_nearest_and_best, default=None)
    for stand_in in (False, True):
        mine = [cell for cell in ours if (_is_like if stand_in else _is_of)(entry, cell)]
        found = list(_ratios(entry, mine, ours) if entry.over else _values(entry, mine))
        if nearest := min(found, key=_nearest_and_best, default=None):
            return replace(nearest, stand_in=stand_in)
    return None


def _nearest_and_best(line: Beside) -> tuple[int, tuple[int, float], int, float]:
    """Of ratios first those of enough trials, and of as near ones that of the plainer cells: the largest would be picked for its luck."""
    return -line.trials_that_count, line.distance, len(line.ours_with) if line.entry.over else 0, -line.better


def _is_of(entry: LiteratureValue, cell: Cell) -> bool:
    return entry.is_of(cell.trial.parameters)


def _is_like(entry: LiteratureValue, cell: Cell) -> bool:
    """Whether a cell may stand in where none has the published 8-bit precision: it has another such precision, which then differs."""
    both_low = entry.precision in LOW and cell.trial.parameters.get("precision") in LOW
    return both_low and entry.is_of(cell.trial.parameters, but=("precision",))


# --- values


def _values(entry: LiteratureValue, cells: Iterable[Cell]) -> Iterator[Beside]:
    for cell in cells:
        value = _ours(cell, entry)
        if value is None or (texts := _texts(entry, cell, value)) is None:
            continue
        known = cell.estimate is not None and OURS[entry.metric][0] == cell.metric.name
        half = spread(cell.estimate, cell.metric) if known and cell.estimate else ""
        doubts = ["" if entry.metric == "max_batch_per_device" else _unclaimed(cell), "disturbed by other work" if cell.disturbed else ""]
        ours = ", ".join(filter(None, (" ".join(filter(None, (texts[1], half))), *doubts)))
        yield replace(_beside(entry, texts[0], ours, cell), better=-value if entry.metric in _LESS_IS_BETTER else value)


def _unclaimed(cell: Cell) -> str:
    """What keeps a cell from a claim; empty where nothing does."""
    return "" if cell.claimed else f"loss parity {cell.parity.status if cell.parity else 'unproven'}"


def _ours(cell: Cell, entry: LiteratureValue) -> float | None:
    """Our value of a published metric, in its unit; None where the cell has none."""
    if entry.metric not in OURS:
        return None
    name, unit = OURS[entry.metric]
    if entry.metric == "max_batch_per_device" and cell.trial.parameters.get("batch_size") != "max":
        return None
    value = cell.estimate.value if name == cell.metric.name and cell.estimate is not None else cell.mean(name)  # as the table has it
    return None if value is None else value / unit


def _texts(entry: LiteratureValue, cell: Cell, ours: float) -> tuple[str, str] | None:
    """Both values in words: as published for as many devices, else for one device. None where that cannot be told."""
    told, unit = amount(entry.value, entry.unit), entry.unit
    if entry.metric in _OF_ONE_DEVICE or entry.devices == cell.devices:
        return told, amount(ours, unit)
    if not entry.devices:
        return None
    if entry.metric == "throughput":
        each = amount(entry.value / entry.devices, unit)
        theirs = f"{each} a device" if entry.devices == 1 else f"{each} a device: {told} by {entry.devices} devices"
        return theirs, f"{amount(ours / cell.devices, unit)} a device"
    if entry.metric == "epoch_time":  # of an epoch's work more devices take less time, and as much of all together
        all_of_them = amount(entry.value * entry.devices, f"device-{unit}")
        return f"{all_of_them}: {told} of {entry.devices} devices", amount(ours * cell.devices, f"device-{unit}")
    return None


# --- ratios


def _ratios(entry: LiteratureValue, cells: Iterable[Cell], ours: Sequence[Cell]) -> Iterator[Beside]:
    for cell in cells:
        for base in ours:
            if base is cell or _run(base) != _run(cell) or not entry.is_over(base.trial.parameters):
                continue
            if told := _batches(cell, base) if entry.metric == "max_batch_ratio" else _speedup(cell, base):
                text, better = told
                yield replace(_beside(entry, _ratio_told(entry), text, cell, base), better=better)


def _run(cell: Cell) -> tuple[object, ...]:
    """In what the cells of a ratio do not differ."""
    return (cell.devices, *(getattr(cell.trial, name) for name in _RUN))


def _ratio_told(entry: LiteratureValue) -> str:
    """As its source has it; a quotient of two of its values to two places, as ours."""
    return times(entry.value) if entry.quotient else f"x{entry.value:g}"


def _speedup(cell: Cell, base: Cell) -> tuple[str, float] | None:
    """Our ratio with its interval and what keeps it from being claimed, and its value; None where the two have none of rates."""
    if not (cell.estimates and base.estimates) or not cell.metric.higher_is_better or cell.metric.scale is not Scale.LOG:
        return None
    apart = other_work(cell, base)
    if apart and cell.metric.name not in _OF_FLOPS:
        return None
    ratio = told_ratio(cell, base)
    if ratio.linear:
        return None
    parts = [f"{ratio_with_interval(ratio)}{f' in {cell.metric.unit}' if apart else ''}"]
    parts += ["undecided"] if cell.baseline is base and cell.verdict is Verdict.UNDECIDED else []
    parts += [] if cell.may_lead(base) else [f"not claimed: {_why_not(cell, base)}"]
    parts += ["disturbed by other work"] if cell.disturbed or base.disturbed else []
    return ", ".join(parts), ratio.value


def _why_not(cell: Cell, base: Cell) -> str:
    return _unclaimed(cell) or (f"of {base.short}, {_unclaimed(base)}" if _unclaimed(base) else "loss parity unproven")


def _batches(cell: Cell, base: Cell) -> tuple[str, float] | None:
    """The ratio of the largest batches that were found, with both, and its value; None where a cell searched for none."""
    if any(one.trial.parameters.get("batch_size") != "max" for one in (cell, base)):
        return None
    one, other = cell.mean("batch_size"), base.mean("batch_size")
    return (f"{times(one / other)}: {one:,.4g} and {other:,.4g} samples", one / other) if one and other else None


def _size_ratios(entry: LiteratureValue, cells: Sequence[Cell]) -> Iterator[Beside]:
    """Of the largest models that fit, each of cells that are set alike. Between the sizes tried lie those that fit too, so a ratio of these
    has bounds."""
    bases = _fits([cell for cell in cells if entry.is_over(cell.trial.parameters)])
    for mine in _fits([cell for cell in cells if _is_of(entry, cell)]):
        for base in bases:
            if _run(mine.cell) == _run(base.cell) and (text := _size_ratio(mine, base)):
                yield _beside(entry, _ratio_told(entry), text, mine.cell, base.cell)


def _fits(cells: Sequence[Cell]) -> list[Fit]:
    """The largest that fits of each group of cells that are set alike."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        settings = [cell.trial.parameters.get(name) for name in (*_PLAIN, *_OF_MEMORY)]
        groups.setdefault(repr((settings, _run(cell))), []).append(cell)
    return [fit for group in groups.values() if (fit := fits_of(group)) is not None]


def _size_ratio(mine: Fit, base: Fit) -> str:
    """`x2.33 (more than x2.15, less than x2.50)`, `more than x1.69`; empty where the sizes that were tried show neither end."""
    low = mine.size / base.above if base.above else None
    high = mine.above / base.size if mine.above else None
    if low and high:
        return f"{times(mine.size / base.size)} (more than {times(low)}, less than {times(high)})"
    return f"more than {times(low)}" if low else f"less than {times(high)}" if high else ""


# --- what differs


def _beside(entry: LiteratureValue, theirs: str, ours: str, cell: Cell, base: Cell | None = None) -> Beside:
    parameters = dict(cell.trial.parameters)
    if parameters.get("batch_size") == "max" and (found := cell.mean("batch_size")):
        parameters["batch_size"] = int(found) if math.isclose(found, int(found)) else found
    device = _device(cell)
    asked = entry if entry.metric not in OF_WHAT_FITS else replace(entry, batch=parameters.get("batch_size"))
    differs, gap = asked.differences(parameters, device), asked.gap(parameters, device)
    ours_with, trials = _ours_with(entry, cell), min(len(one.measured) for one in (cell, base) if one is not None)
    if base is None:
        return Beside(entry, theirs, ours, cell.short, differs, gap, trials, ours_with)
    names = _apart(entry, cell, base)
    differs += [f"our two cells differ in {listed(names, 4)} too"] if names else []
    differs += _of_base(entry, cell, base)
    return Beside(entry, theirs, ours, f"{cell.short} over {base.short}", differs, gap + len(names), trials, ours_with)


def _ours_with(entry: LiteratureValue, cell: Cell) -> list[str]:
    named, parameters = {name for name, _ in entry.cell}, cell.trial.parameters
    differ = {name: value for name, plain in _PLAIN.items() if name not in named and (value := parameters.get(name, plain)) != plain}
    texts = {name: label(name, value) for name, value in differ.items()}
    return [f"{name} {text}" if text == differ[name] else text for name, text in texts.items()]  # `attention math`: `math` says nothing


def _about(entry: LiteratureValue) -> set[str]:
    """The parameters that a ratio is about."""
    return {name for name, _ in (*entry.cell, *entry.over)} | ({"model"} if entry.metric == "model_size_ratio" else set())


def _apart(entry: LiteratureValue, cell: Cell, base: Cell) -> list[str]:
    """The parameters in which our two cells differ beside what the ratio is about, and beside what a ladder's rung implies."""
    mine, other = cell.trial.parameters, base.trial.parameters
    implied = _about(entry) | cell.named | base.named | _NO_DIFFERENCE
    return sorted(name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name) and name not in implied)


def _of_base(entry: LiteratureValue, cell: Cell, base: Cell) -> list[str]:
    """The precision of what our ratio is over, where a rung implies another: a line tells but one."""
    mine, other = (one.trial.parameters.get("precision") for one in (cell, base))
    implied = "precision" in cell.named | base.named and "precision" not in _about(entry)
    return [f"ours is over one in {other}"] if implied and mine != other else []


def setting(entry: LiteratureValue) -> str:
    """What a line was measured with: `large, 8 devices, bf16, batch 48, MP-1`."""
    parts = [
        entry.model,
        "" if entry.devices is None else plural(entry.devices, "device"),
        entry.precision or "",
        "" if entry.batch is None else f"batch {entry.batch}",
        "" if entry.dataloader_workers is None else f"MP-{entry.dataloader_workers}",
        entry.quotient,
        entry.extra,
    ]
    return ", ".join(filter(None, parts))


def _device(cell: Cell) -> str:
    """The device's own name where the environment tells it, else its kind."""
    return next((str(row.environment["device_name"]) for row in cell.rows if row.environment.get("device_name")), cell.trial.device)
