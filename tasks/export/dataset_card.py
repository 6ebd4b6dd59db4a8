"""The card of a sweep as a Hugging Face dataset: README.md with the metadata by which `datasets` and the Hub find its tables.

https://huggingface.co/docs/hub/datasets-manual-configuration describes `configs`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import yaml

from tasks.analysis.held_files import held_of
from tasks.analysis.results import Sweep
from tasks.export.tables import Tables
from tasks.report.given_command import given_command
from tasks.report.markdown import md
from tasks.report.model import make_report

_ABOUT = {
    "cells": "one row for each setting: its value with a 95 % interval, how it stands to the baseline, and the verdict",
    "trials": "one row for each trial: outcome, summary metrics, parameters, environment",
    "steps": "one row for each step of each trial, by `trial_key`, warm-up included (`measured`)",
}


def dataset_card(sweep: Sweep, tables: Tables) -> str:
    """Markdown with YAML front matter. It names no licence: that is for whoever publishes the data."""
    plan = sweep.plan
    configs = [
        {"config_name": name, "data_files": f"{name}.parquet", **({"default": True} if name == "cells" else {})} for name in tables.named()
    ]
    front = {"pretty_name": f"{plan.name}, {sweep.sweep_id}", "tags": ["benchmark", "sweepbench"], "configs": configs}
    matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return f"---\n{matter}---\n\n" + "\n".join(_body(sweep, tables)) + "\n"


def _body(sweep: Sweep, tables: Tables) -> Sequence[str]:
    plan, report = sweep.plan, make_report(sweep)
    emulated = sum(row.emulated for row in sweep.rows)
    devices = dict.fromkeys(str(row.environment["device_name"]) for row in sweep.rows if row.environment.get("device_name"))
    date = time.strftime("%Y-%m-%d", time.gmtime(plan.created_at))
    known = str(plan.git.get("commit") or "")[:12]
    commit = f", code `{known}`{' with uncommitted changes' if plan.git.get('dirty') else ''}" if known else ""
    lines = [f"# {md(report.title)}", "", md(report.description), "", f"**{md(report.headline)}**", ""]
    if emulated:
        count = f"{emulated} of {len(sweep.rows)} trials"
        lines += [f"{count} ran on an emulated device: these are no measurements. Their rows have `emulated`.", ""]
    lines += [
        f"- Sweep: `{sweep.sweep_id}`, measured by sweepbench on {date} (UTC){commit}",
        f"- Devices: {md(', '.join(devices)) or '–'}",
        f"- Command: {given_command(plan, held_of(sweep))}",
        "",
        "| table | rows | what |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {table.num_rows} | {_ABOUT[name]} |" for name, table in tables.named().items()]
    return [*lines, "", 'Read a table with `datasets.load_dataset(FOLDER, "cells")`, or its file with pandas or Arrow.']
