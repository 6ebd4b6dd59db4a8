"""What `sweep nightly --plan` prints."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from flows.cli import show_night
from tests.tasks.nightly.night_support import DEFINITION, cell, night
from tests.tasks.plan_support import make_plan, make_trial


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (("throughput",), "throughput"),
        (("throughput", "final_loss"), "throughput and final_loss"),
        (("throughput", "final_loss", "peak_memory_bytes", "latency_p50_s"), "throughput, final_loss and 2 more"),
    ],
)
def test_the_plan_of_a_night_says_by_what_each_cell_is_judged(metrics: tuple[str, ...], said: str) -> None:
    console = Console(file=(text := StringIO()), width=200)
    show_night.plan(console, DEFINITION, make_plan([make_trial(1)]), night(cells=[cell("one", metrics=metrics)]))
    line = next(line for line in text.getvalue().splitlines() if line.startswith("one "))
    assert line.rstrip().endswith(f"  {said}")
