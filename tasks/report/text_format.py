"""Numbers and findings as a person reads them; the same words in the terminal, in Markdown and in HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from experiments.metric import Kind, Metric, Scale

if TYPE_CHECKING:  # scipy takes 0.3 s to import, and `sweep plan` prints no interval
    from experiments.stats.estimate import Estimate
    from experiments.stats.spread import Spread

OUTCOMES = {
    "ok": "ok",
    "does_not_fit": "does not fit",
    "diverged": "diverged",
    "unsupported": "unsupported",
    "hang": "hang",
    "crashed": "crashed",
    "infra": "infra",
    "cancelled": "cancelled",
    "to do": "to do",
    "unreadable": "unreadable",
}


def ended(count: int, outcome: str) -> str:
    """How many trials or cells ended so: `1 does not fit`, `8 do not fit`, `2 crashed`."""
    word = OUTCOMES.get(outcome, outcome)
    return f"{count} {'do not fit' if outcome == 'does_not_fit' and count > 1 else word}"


def code_spans(text: str) -> Iterator[tuple[str, bool]]:
    """A sentence in parts, and whether a part stood in backquotes, which it comes without: `a` and b -> (a, True), ( and b, False)."""
    for at, part in enumerate(re.split(r"`([^`\s][^`]*)`", text)):
        if part:
            yield part, at % 2 == 1


def number(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits, no exponent for what people read: 581.5, 12.35, 0.01235; a dash for nothing."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded value: 99.999 has three digits before the point
    places = max(0, digits - 1 - exponent)
    return f"{value:,.{min(places, 9)}f}" if places <= 9 else f"{value:.{digits - 1}e}"


def percent(share: float | None) -> str:
    """0.0123 -> 1.2 %; a dash for nothing."""
    if share is None or not math.isfinite(share):
        return "–"
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 99.5 else f"{value:.1f} %"


def seconds(value: float | None) -> str:
    """12.3 ms, 1.23 s; a dash for nothing."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{number(value * 1000, 3)} ms" if abs(value) < 1 else f"{number(value, 3)} s"


def clock(seconds: float) -> str:
    """1:05 for 65 s, 2 h 05 min for 7500 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(value: float | None) -> str:
    """Bytes as GiB or MiB; a dash for nothing."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def count(value: float | None, digits: int = 3) -> str:
    """1,024, and of a mean of counts 3.50; a dash for nothing."""
    return f"{int(value):,}" if value is not None and math.isfinite(value) and value == int(value) else number(value, digits)


def amount(value: float, unit: str) -> str:
    """A value in a unit that others published it in."""
    if unit == "s":
        return seconds(value)
    if unit == "samples" and value == int(value):
        return f"{int(value):,} samples"
    return size(value) if unit == "B" else f"{number(value)} {unit}".rstrip()


def quantity(value: float | None, metric: Metric) -> str:
    """A metric's value with its unit, as its kind is printed; a dash for nothing."""
    plain = {Kind.SECONDS: seconds, Kind.BYTES: size, Kind.SHARE: percent}.get(metric.kind)
    if plain or value is None or not math.isfinite(value):
        return (plain or number)(value)
    return f"{count(value, 4) if metric.kind is Kind.COUNT else number(value)} {metric.unit}".rstrip()


TOO_WIDE = "(interval too wide to use)"
_USEFUL = 100.0  # upper over lower end of a ratio's interval, from which on its ends say nothing
_WHOLE = 1e-9  # off a whole number, or of a value, which is the error of arithmetic
_NARROW = 0.02  # between the ends of a ratio's interval, below which two decimals would hide its width


def spread(estimate: Estimate, metric: Metric) -> str:
    """±1.2 %, on the linear scale ±0.021, in the metric's unit; nothing where no interval is known.

    An interval that is wider than the value itself has no ±: half its width says nothing of a quantity that is always above 0.
    """
    if estimate.linear:
        return f"±{difference(estimate.half_width, metric)}" if math.isfinite(estimate.se) else ""
    if not math.isfinite(estimate.relative):
        return ""
    if estimate.high - estimate.low > estimate.value:
        return TOO_WIDE
    return f"±{percent(estimate.relative)}" if estimate.relative >= 0.0005 else "±<0.1 %"


def size_of(spread: Spread, metric: Metric) -> str:
    """A standard deviation: 1.2 % of a logarithm, else in the metric's unit."""
    if metric.scale is not Scale.LOG:
        return difference(spread.sd, metric)
    return percent(spread.sd) if spread.sd >= 0.0005 else "<0.1 %"


def times(value: float) -> str:
    """x1.17, as the published tables write speed-ups; three digits from x1 to x999: x10.0, x123. Of a ratio without an interval."""
    return f"x{value:.{_decimals(value)}f}"


def ratio_value(ratio: Estimate) -> str:
    """x1.17, in the decimals of its interval: x1.167 beside (1.158–1.176)."""
    return f"x{ratio.value:.{_decimals_of(ratio)}f}"


def interval(ratio: Estimate) -> str:
    """(1.15–1.19); says so where none is known, or its ends are a hundredfold apart."""
    if not math.isfinite(ratio.se):
        return "(interval unknown)"
    if _too_wide(ratio):
        return TOO_WIDE
    places = _decimals_of(ratio)
    return f"({ratio.low:.{places}f}–{ratio.high:.{places}f})"


def ratio_with_interval(ratio: Estimate) -> str:
    """x1.17 (1.15–1.19)."""
    return f"{ratio_value(ratio)} {interval(ratio)}"


def _decimals(value: float) -> int:
    return 2 if value < 9.995 else 1 if value < 99.95 else 0


def _decimals_of(ratio: Estimate) -> int:
    """Of a ratio and both ends of its interval: three where the ends are less than 0.02 apart, else as `times` has them."""
    narrow = math.isfinite(ratio.se) and not _too_wide(ratio) and ratio.high - ratio.low < _NARROW
    return 3 if narrow else _decimals(ratio.value)


def _too_wide(ratio: Estimate) -> bool:
    return ratio.high > _USEFUL * ratio.low


def change(comparison: Estimate, metric: Metric) -> str:
    """x1.17, on the linear scale +0.030; in the decimals of its interval. In the metric's own direction: less is always a minus."""
    return _signed(comparison.value, comparison, metric) if comparison.linear else ratio_value(comparison)


def change_interval(comparison: Estimate, metric: Metric) -> str:
    """(1.15–1.19); on the linear scale (+0.010 to +0.050). Says so where none is known."""
    if not comparison.linear or not math.isfinite(comparison.se):
        return interval(comparison)
    ends = (comparison.high, comparison.low) if metric.lower_is_better else (comparison.low, comparison.high)
    return f"({' to '.join(_signed(end, comparison, metric) for end in ends)})"


def change_text(comparison: Estimate, metric: Metric) -> str:
    """x1.17 (1.15–1.19); on the linear scale +0.030 (+0.010 to +0.050)."""
    return f"{change(comparison, metric)} {change_interval(comparison, metric)}"


def signed(middle: float, low: float, high: float) -> str:
    """`+5.3 % (+3.9 to +6.8)`: a change and the ends of its interval, in percent."""
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


def _signed(better_by: float, comparison: Estimate, metric: Metric) -> str:
    """What is `better_by` better, as a difference of values: one of the three numbers of `comparison`, all in one unit and its decimals."""
    by = -better_by if metric.lower_is_better else better_by
    if not math.isfinite(comparison.se):
        text = difference(abs(by), metric)
    else:
        factor, unit = _unit_of_differences(comparison, metric)
        text = f"{abs(by) * factor:,.{_decimals_of_differences(comparison, metric, factor)}f} {unit}".rstrip()
    return f"{'' if not re.search('[1-9]', text) else '+' if by > 0 else '−'}{text}"


def axis_unit(metric: Metric) -> tuple[float, str]:
    """(by what its values are divided on a figure's axis, its title with the unit that they have then): bytes are in GiB."""
    return (2.0**30, f"{metric.label} (GiB)") if metric.kind is Kind.BYTES else (1.0, metric.title)


def _unit_of_differences(comparison: Estimate, metric: Metric) -> tuple[float, str]:
    """(by what the three numbers of `comparison` are multiplied, the unit that they have then)."""
    largest = max(abs(comparison.low), abs(comparison.high))
    match metric.kind:
        case Kind.SHARE:
            return 100.0, "points"
        case Kind.SECONDS:
            return (1000.0, "ms") if largest < 1 else (1.0, "s")
        case Kind.BYTES:
            return (2.0**-30, "GiB") if largest >= 2**30 else (2.0**-20, "MiB")
        case _:
            return 1.0, metric.unit


def _decimals_of_differences(comparison: Estimate, metric: Metric, factor: float) -> int:
    """None where all three differences of counts are whole; else so many that half the interval has two digits, or where it has no width
    the value three."""
    shown = [number * factor for number in (comparison.value, comparison.low, comparison.high)]
    if metric.kind is Kind.COUNT and all(abs(number - round(number)) < _WHOLE for number in shown):
        return 0
    half, digits = ((shown[2] - shown[1]) / 2, 2) if shown[2] - shown[1] > _WHOLE * abs(shown[0]) else (abs(shown[0]), 3)
    exponent = int(f"{half:.{digits - 1}e}".partition("e")[2])  # of the rounded number, as in `number`
    return min(max(0, digits - 1 - exponent), 9)


def difference(value: float, metric: Metric) -> str:
    """A difference of two values, at least 0; of two shares in percentage points."""
    return f"{number(value * 100, 3)} points" if metric.kind is Kind.SHARE else quantity(float(f"{value:.3g}"), metric)


def plural(count: int, word: str) -> str:
    """1 trial, 2 trials, 2 processes."""
    return f"{count} {word}" if count == 1 else f"{count} {word}{'es' if word.endswith('s') else 's'}"


def listed(words: list[str], most: int = 6) -> str:
    """a, b and c; the rest counted."""
    if len(words) > most:
        return f"{', '.join(words[: most - 1])} and {len(words) - most + 1} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def devices_told(found: Iterable[tuple[str, int]]) -> str:
    """`4 NVIDIA H200`, `1, 2 and 4 NVIDIA H200`; without a number of a kind of which no trial had more than one.

    `found`: of each trial the name of its devices and how many it had.
    """
    counts: dict[str, set[int]] = {}
    for name, count in found:
        counts.setdefault(name, set()).add(count)
    return "; ".join(name if of == {1} else f"{listed([str(count) for count in sorted(of)])} {name}" for name, of in counts.items())
