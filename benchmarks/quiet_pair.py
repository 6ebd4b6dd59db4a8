"""Two quiet cells of a sweep whose other cells are noisy: whether their interval holds, and how wide it is beside that of the two alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.coverage_noise import Array, places
from experiments.stats.estimate import Estimate
from experiments.stats.layout import Layout

QUIET, NOISY = 0.003, 0.15
OTHERS = ((1, QUIET), (4, QUIET), (10, QUIET), (2, NOISY), (4, NOISY), (8, NOISY))  # how many other cells there are, and their spread
REPEATS = (3, 5)


def quiet_pairs(sweeps: int, seed: int) -> Iterator[dict[str, object]]:
    """For each number and noise of the others: the share of 95 % intervals of the two's ratio that hold 1, and the medians of their
    half-widths in percent, in the whole sweep and of the two cells alone."""
    random = np.random.default_rng(seed)
    for others, noise in OTHERS:
        row: dict[str, object] = {"name": f"two cells of {QUIET:.1%} beside {others} of {noise:.1%}"}
        for rounds in REPEATS:
            sds = np.array([QUIET, QUIET, *[noise] * others])
            logs = [sds[:, None] * random.normal(size=(sds.size, rounds)) for _ in range(sweeps)]
            whole, alone = ([_difference(one[:cells]) for one in logs] for cells in (sds.size, 2))
            widths = (100 * float(np.median([found.half_width for found in of])) for of in (whole, alone))
            held = 100 * float(np.mean([found.low <= 0 <= found.high for found in whole]))
            row[f"{rounds} repeats"] = "holds {:.1f} %, ±{:.2f} %, alone ±{:.2f} %".format(held, *widths)
        yield row


def _difference(logs: Array) -> Estimate:
    """Of cells 0 and 1 of logs (cells, rounds)."""
    cells, rounds = logs.shape
    numbers, repeats = np.divmod(np.arange(logs.size), rounds)
    return Layout(logs.ravel(), numbers.tolist(), repeats.tolist(), places(cells, rounds).ravel()).difference(0, 1)
