"""What is printed of a sweep, from made-up rows."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from flows.cli.show_comparison import print_shown
from tasks.report.make_shown import shown_comparison
from tasks.report.model import report_of
from tests.tasks.cell_support import repeats, source_of, workers


def test_trials_that_other_work_disturbed_are_told_where_the_values_are() -> None:
    """Their values are not in the table, so it would else look like that of undisturbed trials."""
    first, *others = [*repeats(workers(0), 100.0), *repeats(workers(1), 110.0)]
    assert first.result is not None
    first = replace(first, result=first.result.model_copy(update={"disturbed": "another process"}))
    source = source_of([first, *others])
    shown = shown_comparison((source, report_of(source)))
    assert shown is not None
    assert shown.disturbed == [
        "Other work disturbed 1 trial (MP-0 · #1): it is left out of the figures.",
        "5 trials (MP-0 · #2, MP-0 · #3, MP-1 · #1 and 2 more) were not judged for other work: nothing was sampled.",
    ]
    out = StringIO()
    print_shown(Console(file=out, width=200), shown)
    assert all(line in out.getvalue() for line in shown.disturbed)
