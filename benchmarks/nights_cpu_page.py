"""The results of benchmarks/nights_cpu.py: a page, its data, figures, reports and the message, from the nights' own records."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.stats.coverage import rate_interval
from experiments.stats.verdict import Verdict
from tasks.nightly.pair_text import pair_sentence
from tasks.nightly.report import change_of
from tasks.nightly.store import AA_CONTROL, CHANGED, SLOWED_CONTROL, CellVerdict, Night, NightStore
from tasks.report.text_format import percent

WIDTH_OF_PLANTED = " · width 64 "  # in the name of the cell whose inputs cost something


@dataclass(frozen=True)
class Nights:
    """What was run: `log` is nights.jsonl, by night; `nights` their records, oldest first."""

    log: dict[int, dict[str, Any]]
    nights: list[Night]

    @cached_property
    def planted(self) -> tuple[int, str] | None:
        """(night, commit) of the planted slow-down; None where the run ended before."""
        return next(((number, str(one["planted"])) for number, one in self.log.items() if "planted" in one), None)

    def number(self, night: Night) -> int:
        return next(number for number, one in self.log.items() if one["date"] == night.date)

    def is_slow(self, item: CellVerdict, night: Night) -> bool:
        """Whether the cell is in truth slower on that night than before the planted commit."""
        return self.planted is not None and WIDTH_OF_PLANTED in f"{item.name} " and self.number(night) >= self.planted[0]

    @cached_property
    def verdicts(self) -> list[tuple[Night, CellVerdict]]:
        return [(night, item) for night in self.nights for item in night.cell_verdicts if item.ratio is not None]

    @cached_property
    def unchanged(self) -> list[tuple[Night, CellVerdict]]:
        """The verdicts on cells that are in truth as fast as before."""
        return [(night, item) for night, item in self.verdicts if not self.is_slow(item, night)]

    @cached_property
    def false_alarms(self) -> list[tuple[Night, CellVerdict]]:
        """Unchanged cells that were called slower or faster."""
        return [(night, item) for night, item in self.unchanged if item.verdict in CHANGED]

    @cached_property
    def wrong_way(self) -> list[tuple[Night, CellVerdict]]:
        """Slower cells that were called faster."""
        return [(night, item) for night, item in self.verdicts if self.is_slow(item, night) and item.verdict is Verdict.FASTER]

    @cached_property
    def found(self) -> tuple[Night, CellVerdict] | None:
        """The first night on which the planted slow-down was called slower."""
        return next(((night, item) for night, item in self.verdicts if item.verdict is Verdict.SLOWER and self.is_slow(item, night)), None)


def write(out: Path, work: Path, commit: str) -> None:
    """All files of the page. `work`: the benchmark's scratch folder; `commit`: that of the checkout that was run."""
    log: dict[int, dict[str, Any]] = {}
    for line in (work / "nights.jsonl").read_text().splitlines():
        record = json.loads(line)
        log.setdefault(record["night"], {}).update(record)
    run = Nights(log, NightStore("cpu", work / "runs").all())
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        if old.suffix in (".png", ".svg", ".html", ".txt", ".parquet", ".json", ".md"):
            old.unlink()
    shown = {"last": run.nights[-1], **({"found": run.found[0]} if run.found else {})}
    for name, night in shown.items():
        shutil.copy(work / "runs" / "nightly" / "cpu" / night.date / "report.html", out / f"{name}.html")
    pictures = _figures(run.nights[-1], work / "runs" / "nightly" / "cpu" / run.nights[-1].date / "figures", out)
    if run.found:
        _message(run.found[0], work, out)
    (out / "nights.json").write_text(json.dumps([_record(run, night) for night in run.nights], indent=1) + "\n")
    pq.write_table(_steps(work / "runs"), out / "steps.parquet", compression="zstd", compression_level=19)
    (out / "README.md").write_text(_page(run, pictures, out.name, commit[:12]))


def _figures(last: Night, folder: Path, out: Path) -> list[str]:
    names = []
    for cell in last.cells:
        for figure in sorted(folder.glob(f"{cell.cell}-{cell.metrics[0]}.*")) if cell.role == "history" else []:
            name = f"{cell.suite}-{cell.name.split('width ')[1].split()[0]}-history{figure.suffix}"
            shutil.copy(figure, out / name)
            names += [name] if figure.suffix == ".png" else []
    return names


def _message(night: Night, work: Path, out: Path) -> None:
    received = [json.loads(line) for line in (work / "received.jsonl").read_text().splitlines()]
    mine = next(item for item in reversed(received) if night.date in item["subject"])
    (out / "notification.txt").write_text(f"{mine['subject']}\n\n{mine['text'].replace(str(work / 'runs'), 'runs')}")


def _record(run: Nights, night: Night) -> dict[str, Any]:
    """A night as nights.json has it."""
    known = run.log[run.number(night)]
    return {
        **{name: known.get(name) for name in ("night", "date", "commit", "planted", "co_tenant", "seconds", "status")},
        "verdicts": [item.model_dump(mode="json", exclude={"baseline", "causes"}) for item in night.judgements],
        "nodes": [{"verdict": node.verdict, "ratio": node.ratio} for node in night.nodes],
        "bisections": [found.model_dump(mode="json") for found in night.bisections],
        "remarks": night.remarks,
    }


def _page(run: Nights, pictures: list[str], folder: str, commit: str) -> str:
    seconds = sum(one.get("seconds", 0.0) for one in run.log.values())
    host = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    rows = "\n".join(f"| {name} | {text} |" for name, text in _findings(run))
    nights = "\n".join(_row(run, night) for night in run.nights)
    found = "The report of [the night that found it](found.html), and [its message](notification.txt). " if run.found else ""
    shown = "\n\n".join(f"![Throughput by night, its level before and after, and the verdicts]({name})" for name in pictures)
    return f"""# {len(run.nights)} nights on a CPU, measured one after the other

Nights of two cells of a small network, one whose inputs cost nothing (width 256) and one whose inputs cost something (width 64),
one after the other in {seconds / 60:.0f} minutes; only their dates are made up. Each night has three commits of its own. One commit of
all makes inputs cost more, which is real work; nobody tells the nights. On three nights a process for each core computes beside them.

    python -m benchmarks.nights_cpu --out docs/results/{folder} --work /tmp/nights

Commit `{commit}`, {host}, {_day(run.nights[-1].opened_at)}, all nights in one run.

| what | result |
|---|---|
{rows}

{shown}

| night | co-tenant | verdicts that are not *same*, and what was measured in pairs |
|---|---|---|
{nights}

{found}The report of [the last night](last.html). nights.json has every verdict, pair and bisection. steps.parquet has every measured
step of every trial but those of pairs: date, suite, width, role, round, step time in µs.

**How to read it.** One machine, and minutes instead of days between nights: what changes from day to day is not in it. A false alarm is
a cell that was called slower or faster on a night on which it was not; nights of the slowed cell since the planted commit are not counted,
since *slower* is right there. The controls (A/A pairs, injected 8 %) are not among the cell-nights.
"""


def _findings(run: Nights) -> list[tuple[str, str]]:
    """The table of what came out; whatever was not reached is said as well."""
    rows = []
    planted = run.planted
    if planted is None:
        rows.append(("planted", "not reached: the run was shorter"))
    else:
        rows.append(("planted", f"before night {planted[0]}, commit `{planted[1][:12]}`"))
        found = run.found
        rows.append(
            ("found", f"night {run.number(found[0])}: {pair_sentence(found[1]) or change_of(found[1])}" if found else "**not found**")
        )
        bisections = [one for night in run.nights for one in night.bisections if one.commit]
        named = "; ".join(
            dict.fromkeys(f"night {_number_of(run, one.on)}: `{one.commit}` after {one.trials} trials" for one in bisections if one.commit)
        )
        right = bool(bisections) and all(one.commit == planted[1] for one in bisections)
        rows.append(("commit named by the night itself", f"{named or '**none**'}{', the planted one' if right else ''}"))
    rows.append(("false alarms", _alarms(run)))
    words = Counter(str(item.verdict) for _, item in run.verdicts)
    rows.append(("verdicts", ", ".join(f"{count} {word}" for word, count in words.items()) or "none: fewer nights than a baseline needs"))
    pairs = sum(item.pairs.count for _, item in run.verdicts if item.pairs)
    measured = sum(item.repeats for night in run.nights for item in night.cell_verdicts)
    nights = max(1, sum(len(night.cell_verdicts) for night in run.nights))
    rows.append(("trials a cell and night", f"{(measured + 2 * pairs) / nights:.1f}, pairs among them, without bisections"))
    rows.append(("A/A pairs", _control(run, AA_CONTROL, Verdict.SAME)))
    rows.append(("injected 8 %", _control(run, SLOWED_CONTROL, Verdict.SLOWER)))
    return rows


def _alarms(run: Nights) -> str:
    """How many unchanged cell-nights were called changed; those of a slowed cell are not among them, since *slower* is right there."""
    alarms, of = run.false_alarms, len(run.unchanged)
    low, high = rate_interval(len(alarms), of) if of else (0.0, 1.0)
    listed = "".join(f"; night {run.number(night)}: {item.name} {item.word}" for night, item in [*alarms, *run.wrong_way])
    return f"{len(alarms)} of {of} unchanged cell-nights ({percent(low)} to {percent(high)}, 95 %){listed}"


def _control(run: Nights, role: str, good: Verdict) -> str:
    """The verdicts on a control by word, what they should be, and each that says the opposite with its night."""
    seen = [(night, item) for night in run.nights for item in night.judgements if item.role == role and item.ratio is not None]
    counts = ", ".join(f"{count} {word}" for word, count in Counter(str(item.verdict) for _, item in seen).items())
    wrong = [(night, item) for night, item in seen if item.verdict in CHANGED and item.verdict is not good]
    return f"{counts} (expected: {good}){''.join(_named(run, night, item) for night, item in wrong)}"


def _named(run: Nights, night: Night, item: CellVerdict) -> str:
    number = run.number(night)
    beside = run.log[number].get("co_tenant")
    return f"; night {number}{f', beside other work {beside}' if beside else ''}: {item.word} {change_of(item)}"


def _row(run: Nights, night: Night) -> str:
    said = [
        f"{item.name.split(' · ', 3)[-1]}: {_said(item)}"
        for item in night.cell_verdicts
        if item.ratio is not None and (item.verdict is not Verdict.SAME or item.pairs or item.not_paired)
    ]
    found = [one.sentence for one in night.bisections if one.on == night.date]
    number = run.number(night)
    return f"| {number} | {run.log[number].get('co_tenant') or ''} | {'; '.join([*said, *found]).replace('|', '/')} |"


def _said(item: CellVerdict) -> str:
    sentence = pair_sentence(item)
    if sentence is None:
        return f"{item.word} {change_of(item)}"
    return sentence if item.pairs and item.pairs.verdict is item.verdict else f"{item.word} ({sentence})"


def _number_of(run: Nights, day: str) -> int:
    return next(number for number, one in run.log.items() if one["date"] == day)


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


def _steps(runs: Path) -> pa.Table:
    """Every measured step of every night but those of pairs: date, cell, role, round, step time in whole microseconds."""
    columns: dict[str, list[object]] = {name: [] for name in ("date", "suite", "width", "role", "round")}
    times = []
    for path in sorted(runs.glob("nightly-*/trials/*/steps.parquet")):
        trial = json.loads((path.parent / "trial.json").read_text())
        labels = trial["labels"]
        if labels["night.role"] == "paired":
            continue
        table = pq.read_table(path, columns=["measured", "total_s"])
        measured = table["total_s"].to_numpy()[table["measured"].to_numpy(zero_copy_only=False)]
        row = (labels["night.date"], trial["suite"], trial["parameters"]["width"], labels["night.role"], trial["repeat"])
        for name, value in zip(columns, row, strict=True):
            columns[name] += [value] * len(measured)
        times.append(np.round(measured * 1e6).astype(np.uint32))
    data = {
        name: pa.array(values).dictionary_encode() if name != "round" else pa.array(values, pa.uint8()) for name, values in columns.items()
    }
    return pa.table({**data, "step_us": np.concatenate(times)})
