"""A cell's loss parity in a sentence fragment: the verdict, over how much, and what it could have found."""

from __future__ import annotations

import math

from experiments.parameters import REFERENCE_SEEDS
from experiments.stats.loss_parity import MARGIN, MINIMUM_STEPS, TARGET, Parity, ParityStatus

NEAR_ZERO = 0.01  # of its first loss: what an exactly solvable task falls below, and one with noise in its data does not


def parity_note(parity: Parity, precision: str, *, trains: bool = True) -> str:
    """`precision`: the reference's, empty where there is none."""
    if parity.status is ParityStatus.STRUCK:
        known = math.isfinite(parity.difference or 0.0)
        where = f"differs by {signed(parity.difference, places(parity))}" if known else "is not finite"
        against = f"{_against(parity, precision, trains=trains)}{_near_zero(parity) if trains else ''}"
        return f"struck: the loss {where} from step {parity.left_at}, {against}: no speed-up is claimed"
    if parity.status is ParityStatus.PROVEN:
        within = f"the loss is equal within {share(MARGIN)} ({interval(parity)}, 90 % interval)"
        return f"proven: {within}, {_against(parity, precision, trains=trains)}{_found(parity)}"
    if not precision:
        return f"unproven: {parity.why}"
    missing = [parity.why, *_missing(parity, precision, trains=trains)]
    return f"unproven against {precision}: {'; '.join(missing)}{_found(parity)}"


def _against(parity: Parity, precision: str, *, trains: bool) -> str:
    seeds = f"{parity.pairs} of {parity.seeds} seeds" if trains else "the same batches"
    return f"against {precision} over {parity.steps} steps, {seeds}"


def _near_zero(parity: Parity) -> str:
    """A warning where the reference's loss has all but vanished: a task that can be solved exactly tells roundings apart, not learning."""
    if parity.fell_to is None or not abs(parity.fell_to) < NEAR_ZERO:
        return ""
    return f" (whose loss fell to {share(parity.fell_to)} of its first: so near 0, rounding errors make large differences)"


def _found(parity: Parity) -> str:
    return "" if parity.smallest is None else f"; a divergence of {divergence(parity)} would have been found"


def _missing(parity: Parity, precision: str, *, trains: bool) -> list[str]:
    """What would prove it, or strike it."""
    if not parity.seeds or not trains:  # of what does not train, `why` says whether more batches may
        return []
    if parity.seeds < REFERENCE_SEEDS:
        more = REFERENCE_SEEDS - parity.seeds
        return [f"needs {more} more {precision} seed{'s' * (more > 1)} (parity_reference: {REFERENCE_SEEDS})"]
    if parity.pairs < REFERENCE_SEEDS:
        return [f"needs {REFERENCE_SEEDS - parity.pairs} more of its own seeds (repeats: {REFERENCE_SEEDS})"]
    if parity.smallest is not None and parity.recommended is None and parity.steps >= MINIMUM_STEPS:
        return [f"more steps would not show {share(TARGET)}, more seeds would (parity_reference and repeats: {parity.seeds + 2})"]
    steps = max(parity.recommended or 0, MINIMUM_STEPS)
    return [f"{steps} steps would show {share(TARGET)}"] if steps > parity.steps else []


def interval(parity: Parity) -> str:
    """`-0.10 % to +0.22 %`, the 90 % interval of the difference."""
    return f"{signed(parity.low, places(parity))} to {signed(parity.high, places(parity))}"


def difference(parity: Parity) -> str:
    """`+0.12 %`."""
    return signed(parity.difference, places(parity))


def divergence(parity: Parity) -> str:
    """`0.70 %`, the smallest that would have been found."""
    return "–" if parity.smallest is None else f"{100 * parity.smallest:.{places(parity)}f} %"


def places(parity: Parity) -> int:
    """Decimals of a percent for every figure of a comparison: one to three, so that half of its interval has two significant digits; two
    where it has none."""
    if parity.low is None or parity.high is None or not math.isfinite(parity.high - parity.low):
        return 2
    half = 50 * (parity.high - parity.low)
    return min(3, max(1, 1 - int(f"{half:.1e}".partition("e")[2]))) if half > 0 else 3  # of the rounded value, as in text_format.number


def share(value: float) -> str:
    """A share that is given and not measured: `0.5 %`."""
    return f"{100 * value:.2g} %"


def signed(value: float | None, digits: int) -> str:
    """`+0.12 %` with so many decimals, U+2212 for minus."""
    return "–" if value is None else f"{round(100 * value, digits) + 0.0:+.{digits}f} %".replace("-", "−")  # + 0.0: no minus before zero
