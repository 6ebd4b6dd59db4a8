"""What is printed of A/A certificates: all of them as a table."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from flows.cli.tables import make_table
from tasks.analysis.certificates import Certificate
from tasks.report.certificate_text import GROUP, counted, with_interval
from tasks.report.text_format import listed, plural


def print_none(out: Console, uncertified: Sequence[str]) -> None:
    """That no pair counts. `uncertified`: the A/A sweeps that ran, newest first."""
    if not uncertified:
        out.print("no A/A pairs yet; `sweep aa synthetic` runs some", highlight=False)
        return
    ran = f"{plural(len(uncertified), 'A/A sweep')} ran, of which no pair counts"
    why = f"`sweep report {uncertified[0]}` says why{' of the last' if len(uncertified) > 1 else ''}"
    out.print(f"{ran}; {why}", highlight=False, soft_wrap=True)


def print_certificates(out: Console, certificates: Sequence[Certificate]) -> None:
    """A line for each pool, device and metric; a dash for hosts or trees that trials did not know."""
    heads = "pool", "device", "metric", "pairs", "suites", "of three repeats covered", "false verdicts", "single pairs covered"
    table = make_table(*heads, "hosts", "trees", "last (UTC)", "sweeps")
    for one in certificates:
        group = one.group(GROUP)
        last = time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.last))
        told = (one.pool, one.device, one.metric, str(one.pairs), listed(one.suites), counted(group.covered))
        shares = (f"{group.false_verdicts.hits} of {group.false_verdicts.of}", with_interval(one.single))
        counts = (str(len(one.hosts) or "–"), str(len(one.trees) or "–"), last, str(len(one.sweeps)))
        table.add_row(*(Text(cell) for cell in (*told, *shares, *counts)))
    out.print(table)
