"""Components of variance of nested measurements: trials in sweeps, sweeps on hosts. What one trial, one sweep or one host may be off by.

Values are logarithms, or on linear scales the values themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from experiments.stats.variances import SampleVariance, VarianceLaw, learn_variances, sample_variances

Groups = Mapping[str, Sequence[float]]  # of one cell: sweep or host -> its values

LEAST_GROUPS = 5  # of repeats, each of a cell in a sweep: error rates are known from five cells on (docs/verdicts.md)
LEAST_SWEEP_DF = 3
LEAST_HOST_DF = 2
_LEAST_D0_OF_SWEEPS = 4.0  # days are a node's more than a cell's, so cells are thought less unlike each other than in their own noise


def trial_law(repeats: Iterable[Sequence[float]]) -> VarianceLaw | None:
    """The law of the variance between trials of one workload's cells. `repeats`: for each cell and sweep the values of its trials.

    None for fewer than `LEAST_GROUPS` groups of repeats.
    """
    samples = sample_variances(repeats)
    return learn_variances(samples) if len(samples) >= LEAST_GROUPS else None


def sweep_law(cells: Sequence[Groups], trials: VarianceLaw | None) -> VarianceLaw | None:
    """The law of the variance between sweeps of a cell, beyond what the trials in them explain. `cells`: for each, sweep -> trials.

    The variance of k sweeps' means is expected at sigma_sweep^2 + sigma_trial^2 mean(1/n) on k - 1 degrees of freedom, the second part
    from the cell's own repeats and `trials`; without `trials` nothing is taken off. None for less than `LEAST_SWEEP_DF` independent
    degrees of freedom: see `independent_df`.
    """
    several = [cell for cell in cells if len(cell) > 1]
    df = independent_df(several)
    if df < LEAST_SWEEP_DF:
        return None
    return learn_variances([_between_sweeps(cell, trials) for cell in several], least_d0=_LEAST_D0_OF_SWEEPS, independent_df=df)


def _between_sweeps(cell: Groups, trials: VarianceLaw | None) -> SampleVariance:
    means = [float(np.mean(values)) for values in cell.values()]
    within = sample_variances(cell.values())
    df = sum(sample.df for sample in within)
    own = SampleVariance(sum(sample.df * sample.variance for sample in within) / df, df) if df else None
    trial_variance = trials.expected(own) if trials else 0.0
    offset = trial_variance * float(np.mean([1 / len(values) for values in cell.values()]))
    return SampleVariance(float(np.var(means, ddof=1)), len(means) - 1, offset)


def host_law(cells: Sequence[Groups]) -> VarianceLaw | None:
    """The law of the variance between hosts' means of a cell. `cells`: for each, host -> the means of its sweeps there.

    It holds what a host's sweeps vary by, as another host's value will. None for less than `LEAST_HOST_DF` independent degrees of freedom.
    """
    several = [cell for cell in cells if len(cell) > 1]
    df = independent_df(several)
    if df < LEAST_HOST_DF:
        return None
    means = ([float(np.mean(values)) for values in cell.values()] for cell in several)
    return learn_variances(sample_variances(means), independent_df=df)


def independent_df(cells: Sequence[Groups]) -> int:
    """Degrees of freedom between sweeps (or hosts) if all cells of a sweep shared its effect: sweeps less groups of connected sweeps.

    Sweeps are connected by a cell that both have. Eight cells in the same two sweeps show one difference between days, not eight. This is
    the rank of the contrasts between levels in a two-way layout with empty places (Searle 1987, Linear Models for Unbalanced Data, ch. 5).
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for cell in cells:
        first, *others = cell
        for other in (first, *others):
            parent[root(other)] = root(first)
    return len(parent) - len({root(name) for name in list(parent)})
