"""The answer of an A/B sweep: how side B stands to side A, over all cells and for each."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.stats.verdict import Verdict
from tasks.analysis.ab import AbPair
from tasks.analysis.cell import Cell
from tasks.report.text_format import OUTCOMES, change_text, quantity, spread
from tasks.sweep.ab_settings import AbSettings


def ab_headline(pairs: Sequence[AbPair], settings: AbSettings) -> str:
    """`B (HEAD) against A (main): slower, x0.77 (0.75–0.79)`; of several cells how many are what."""
    head = f"B ({settings.b}) against A ({settings.a})"
    if not pairs:
        return f"{head}: no cell has ended on both sides"
    if len(pairs) == 1:
        ratio = ratio_text(pairs[0])
        return f"{head}: {ab_word(pairs[0])}{f', {ratio}' if ratio else ''}"
    words = [ab_word(pair, short=True) for pair in sorted(pairs, key=lambda pair: (not pair.worse, not pair.undecided))]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"{head}: of {len(pairs)} cells {counts}"


def ab_word(pair: AbPair, *, short: bool = False) -> str:
    """`slower`, `undecided: too wide an interval`, `does not fit on B`; `short`: without the reason."""
    b = pair.b
    if pair.a.estimate is None or b.estimate is None:
        lacking = [f"{_ended(cell)} on {name}" for name, cell in (("A", pair.a), ("B", b)) if cell.estimate is None]
        return ", ".join(lacking)
    if b.struck:
        return "loss struck"
    word = str(b.verdict or Verdict.UNDECIDED)
    if short:
        return word
    if b.verdict is Verdict.FASTER and not b.claimed:
        return f"{word}, loss parity unproven"
    return f"{word}: {b.why_undecided}" if b.why_undecided else word


def ratio_text(pair: AbPair) -> str:
    """x0.77 (0.75–0.79); empty where the two were not compared."""
    ratio = pair.b.speedup
    return change_text(ratio, pair.b.metric) if ratio else ""


def value_text(cell: Cell) -> str:
    """581 samples/s ±1.2 %; how it ended where it has no value."""
    if cell.estimate is None:
        return _ended(cell)
    return f"{quantity(cell.estimate.value, cell.metric)} {spread(cell.estimate, cell.metric)}".strip()


def _ended(cell: Cell) -> str:
    return OUTCOMES.get(cell.outcome, cell.outcome)
