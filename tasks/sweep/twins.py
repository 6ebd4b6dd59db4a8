"""What tells the twins of an A/A sweep apart, for who plans them and for who reads them."""

from __future__ import annotations

TWIN = "twin"  # the axis
TWINS = ("A", "B")
METRIC = "throughput"  # where the suite's own metric is no rate or time: ratios are what is certified
