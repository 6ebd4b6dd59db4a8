"""What is printed of A/A certificates: all of them as a table, and those of a sweep's devices."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from flows.cli.tables import make_table
from tasks.analysis.certificates import Certificate, KnownOfDevice, certificate_file, kept_certificates, read_certificate
from tasks.report.certificate_text import GROUP, certificate_lines, counted, with_interval
from tasks.report.text_format import listed
from tasks.sweep.store import SweepStore


def print_certificates(out: Console, certificates: Sequence[Certificate]) -> None:
    """A line for each pool, device and metric; a dash for hosts or trees that trials did not know."""
    if not certificates:
        out.print("no A/A pairs yet; `sweep aa synthetic` runs some", highlight=False)
        return
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


def print_of_sweep(out: Console, store: SweepStore) -> None:
    """What is known of the sweep's devices, as its report says it; nothing before there is a report."""
    plan = store.load_plan()
    known = kept_certificates(store.dir) or []
    if plan.aa:
        own = read_certificate(certificate_file(store.dir))
        known = [KnownOfDevice(**own.subject._asdict(), certificate=own)] if own else []
        if own is None:
            out.print("no A/A pair counts yet; the report says why", highlight=False)
    for line in certificate_lines(known, plan.trials[0].suite if plan.trials else plan.suite.suite):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
