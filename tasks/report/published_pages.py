"""The pages of a folder such as docs/results: those that `sweep publish` wrote, with the facts of each of their sweeps, and the others."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.trial_layout import PLAN, RESULTS
from experiments.config.errors import UserError
from experiments.trial import Outcome
from tasks.analysis.cell import DEVICES
from tasks.analysis.held_files import read_kept
from tasks.analysis.held_time import HeldTime, ended_with
from tasks.analysis.results import ResultsError, read_parquet
from tasks.report.cell_counts import disturbed_among, per_cell
from tasks.report.lacks import README
from tasks.report.manifest import MANIFEST, listed_files
from tasks.report.text_format import devices_told
from tasks.sweep.store import Plan, read_plan

_COLUMNS = ("trial_key", "cell", "outcome", "disturbed", "attempt", "started_at", "parameters", "env.device_name", "env.host_id")


@dataclass(frozen=True)
class SweepOnPage:
    """A published sweep. `devices`: how many accelerators of which kind its trials ran on; `trials`: of each cell, as text."""

    folder: Path
    plan: Plan
    devices: str
    date: str  # 2026-11-22, UTC
    trials: str  # `3 to 4 trials for each of 8 cells (2 more are unsupported)`
    repeats: int  # most trials that ended ok of any cell
    held: HeldTime | None = None  # where the time went that its slots were held; None: not recorded
    ran_on: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # trial key -> name and number of its devices, where known
    hosts: frozenset[str] = frozenset()  # ids, of those that are known

    @property
    def repeated(self) -> bool:
        """Whether any cell has two trials that ended ok: less decides nothing."""
        return self.repeats > 1

    @property
    def precision(self) -> str:
        """That of all its cells; empty where they differ in it, so that cells are named by it. References of loss parity are no cells."""
        found = {str(trial.parameters.get("precision") or "") for trial in self.plan.trials if not trial.reference}
        return found.pop() if len(found) == 1 else ""

    @property
    def commit(self) -> str:
        return str(self.plan.git.get("commit") or "")[:12]

    @property
    def kind(self) -> str:
        """What it is beside a plain sweep: `A/A`, `A/B`, `race`, or empty."""
        plan = self.plan
        return next((name for name, of in (("A/A", plan.aa), ("A/B", plan.ab), ("race", plan.race)) if of is not None), "")


@dataclass(frozen=True)
class Page:
    """A folder with a README. `sweeps`: of a page of `sweep publish`, in the order in which the page has them; none of another page."""

    folder: Path
    title: str
    sweeps: Sequence[SweepOnPage] = ()

    @property
    def name(self) -> str:
        return self.folder.name


def pages_in(folder: Path) -> list[Page]:
    """Every page in `folder`, by name. Raises ResultsError, DamagedFile for one whose manifest, plan or results cannot be read."""
    return [page_of(readme.parent) for readme in sorted(folder.glob(f"*/{README}"))]


def pages_beside(page: Path) -> list[Page]:
    """The pages of `sweep publish` in the folder of `page`, by name, without itself. One that cannot be read is none: it must keep no other
    from being written."""
    found = []
    for manifest in sorted(page.parent.glob(f"[!.]*/{MANIFEST}")):  # a page that is being written begins with a dot
        if manifest.parent.name != page.name:
            with suppress(UserError, OSError, ValueError):
                found.append(page_of(manifest.parent))
    return found


def page_of(folder: Path) -> Page:
    """One page. Raises as `pages_in` does."""
    text = (folder / README).read_text(encoding="utf-8")
    title = re.sub(r"\\(.)", r"\1", text.partition("\n")[0].removeprefix("# "))
    if not (folder / MANIFEST).is_file():
        return Page(folder, title)
    sweeps = [path.partition("/")[0] for path in listed_files(folder) if path.endswith(f"/{PLAN}")]
    return Page(folder, title, [sweep_on_page(folder / name) for name in sorted(sweeps, key=text.find)])


def sweep_on_page(folder: Path) -> SweepOnPage:
    """The facts of a published sweep, from plan.json and results.parquet. Raises ResultsError, DamagedFile."""
    plan = read_plan(folder / PLAN)
    if plan is None:
        raise ResultsError(f"{folder / PLAN} does not exist: put it back from where the page was published")
    table = read_parquet(folder / RESULTS, "`sweep publish` writes it again from the sweep")
    rows = table.select([name for name in _COLUMNS if name in table.column_names]).to_pylist()
    references = {trial.key for trial in plan.trials if trial.reference}
    own = [row for row in rows if row["trial_key"] not in references]
    many, of = per_cell((row["cell"], row["outcome"]) for row in own)
    ok = Counter(row["cell"] for row in rows if row["outcome"] == "ok")
    told = f"{many} {'trial' if many == '1' else 'trials'} for each of {of}{disturbed_among([row.get('disturbed') for row in own])}"
    started = [row["started_at"] for row in rows if row["started_at"] is not None]
    days = sorted({datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d") for at in started})
    date = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
    ran_on = {str(row["trial_key"]): device for row in rows if (device := _device(row))}
    devices = devices_told(ran_on.values())
    hosts = frozenset(str(host) for row in rows if (host := row.get("env.host_id")))
    ended = {str(row["trial_key"]): ended_with(row["attempt"], Outcome(row["outcome"])) for row in rows if row["attempt"] is not None}
    return SweepOnPage(folder, plan, devices, date, told, max(ok.values(), default=0), read_kept(folder, ended), ran_on, hosts)


def _device(row: dict[str, Any]) -> tuple[str, int] | None:
    """Name and number; None where the trial did not tell."""
    name = row.get("env.device_name")
    return (str(name), int(json.loads(row["parameters"]).get(DEVICES) or 1)) if name else None
