"""The table of docs/metrics.md."""

from __future__ import annotations

from experiments.metrics import REGISTRY
from tasks.documents.metrics_table import metrics_table


def test_a_metric_has_a_row_with_its_effect_relative_or_in_its_unit() -> None:
    header, line, *rows = metrics_table().splitlines()
    assert (header.count("|"), line.count("|"), len(rows)) == (7, 7, len(REGISTRY))
    by_name = {row.split("|")[1].strip().strip("`"): row for row in rows}
    assert (
        by_name["final_loss"] == "| `final_loss` | – | lower | log | 3 % | training loss of the last step of the learning rate's schedule |"
    )
    assert by_name["alloc_retries"].startswith("| `alloc_retries` | – | lower | count | 1 | allocations in the window")
    assert by_name["eval_accuracy_<when>"].startswith("| `eval_accuracy_<when>` | – | higher | linear | 0.02 |")
