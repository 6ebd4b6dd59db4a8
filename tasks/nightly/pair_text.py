"""What pairs of two commits say of a cell, as a sentence for the night's report and message."""

from __future__ import annotations

from experiments.regression.definition import METRICS, word_of
from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import FoundCommit
from tasks.nightly.store import CHANGED, CellVerdict, Night
from tasks.report.text_format import percent, plural


def pair_sentence(item: CellVerdict) -> str | None:
    """`slower by 5.1 % (4.2 to 6.0 %), 8 pairs of abc against def`, `looked 3.0 % slower; 5 pairs of abc against def: same`, or why a cell
    that looked changed has no pairs; None for a cell that did not look changed."""
    if item.not_paired is not None:
        return f"{_looked(item)}, and no pair counts ({item.not_paired}); {JUDGED_BY_HISTORY}"
    if item.pairs is None:
        return None
    pairs = item.pairs
    left_out = f", without {pairs.disturbed} that other work disturbed" if pairs.disturbed else ""
    count = f"{plural(pairs.count, 'pair')} of {pairs.tonight[:12]} against {pairs.good[:12]}{left_out}"
    if pairs.verdict in CHANGED and None not in (pairs.ratio, pairs.low, pairs.high):
        middle, low, high = (change(value, item.metric) for value in (pairs.ratio, pairs.low, pairs.high))
        ends = sorted((abs(low), abs(high)))
        since = f" since {pairs.good_date}, little by little" if item.crept else ""
        return (
            f"{word_of(pairs.verdict, item.metric)} by {percent(abs(middle))} ({100 * ends[0]:.1f} to {percent(ends[1])}){since}, {count}"
        )
    why = f" ({pairs.why})" if pairs.why else ""
    return f"{_looked(item)}; {count}: {pairs.verdict}{why}"


def by_pairs(item: CellVerdict) -> bool:
    """Whether pairs of two commits decided, and not past nights."""
    return item.pairs is not None and item.pairs.verdict is not Verdict.UNDECIDED


JUDGED_BY_HISTORY = "its nights and the canary judge"


def _looked(item: CellVerdict) -> str:
    """By the line through its nights, or by the screen: as measured, or relative to the node, whichever is further from no change."""
    if item.crept:
        return "looked as if it crept"
    if item.looked is Verdict.UNDECIDED and item.raw and item.ratio:
        raw, relative = (100 * change(ratio, item.metric) for ratio in (item.raw, item.ratio))
        return f"may have changed ({raw:+.1f} % as measured, {relative:+.1f} % relative to its node)"
    known = [ratio for ratio in (item.ratio, item.raw) if ratio]
    if not known:
        return "looked changed"
    ratio = max(known, key=lambda ratio: abs(change(ratio, item.metric)))
    return f"looked {percent(abs(change(ratio, item.metric)))} {word_of(Verdict.FASTER if ratio > 1 else Verdict.SLOWER, item.metric)}"


def change(ratio: float | None, metric: str) -> float:
    """A ratio (above 1 is better) as a relative change of the metric in its own direction: 0.05 is 5 % more."""
    assert ratio is not None
    return float(ratio ** (1 if METRICS[metric].higher_is_better else -1) - 1)


def commit_of(night: Night, item: CellVerdict) -> FoundCommit | None:
    """What the night's bisection found of a cell's metric."""
    return next((one for one in night.bisections if (one.cell, one.metric) == (item.cell, item.metric)), None)
