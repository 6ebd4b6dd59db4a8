"""What tells the arms of an A/A sweep apart, and by what they are compared, for who plans them and for who reads them."""

from __future__ import annotations

from experiments.metric import Scale
from experiments.metrics import metric_of

ARM = "twin"  # the axis, as stored plans have it
ARMS = ("A", "B")
_METRIC = "throughput"


def arm_metric(name: str) -> str:
    """The metric that certifies a suite whose table is of metric `name`: that metric, or throughput.

    Ratios are what is certified, and scores and counts have none; and arms, which share a seed, learn the same.
    """
    metric = metric_of(name)
    return name if metric.scale is Scale.LOG and not metric.depends_on_seed else _METRIC
