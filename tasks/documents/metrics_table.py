"""The table of docs/metrics.md, from the registry of metrics."""

from __future__ import annotations

from experiments.metric import Scale
from experiments.metrics import REGISTRY


def metrics_table() -> str:
    """A row for each summary metric, as Markdown."""
    lines = ["| summary metric | unit | better | scale | smallest effect | definition |", "|---|---|---|---|---|---|"]
    for metric in REGISTRY:
        effect = f"{metric.minimum_effect:.0%}".replace("%", " %") if metric.scale is Scale.LOG else f"{metric.minimum_effect:g}"
        said = [metric.unit or "–", metric.direction, metric.scale, effect, metric.description]
        lines.append(f"| `{metric.name}` | {' | '.join(said)} |")
    return "\n".join(lines) + "\n"
