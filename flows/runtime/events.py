"""Prefect events of a night, for automations: `sweepbench.cell.regressed`, one for each cell that got worse."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from prefect.events import emit_event

from flows.runtime import prefect_api
from tasks.nightly.report import change_of
from tasks.nightly.store import CellVerdict, Night

REGRESSED = "sweepbench.cell.regressed"


def regressed(night: Night, report: str) -> int:
    """Emit an event for each cell of a night that got worse; returns how many. `report`: the address of the night's report.

    Their resource is the cell, so Prefect's page of it is the cell's history. None where Prefect does not answer: verdicts do not need it.
    """
    if prefect_api.problem() is not None:
        return 0
    cells: dict[str, list[CellVerdict]] = {}
    for item in night.worse():
        cells.setdefault(item.cell, []).append(item)
    sent = 0
    for cell, items in cells.items():
        resource = {
            "prefect.resource.id": f"sweepbench.cell.{cell}",
            "prefect.resource.name": items[0].name,
            "sweepbench.night": night.name,
        }
        with suppress(Exception):  # a lost event costs an automation, not a night
            sent += emit_event(REGRESSED, resource=resource, payload=payload(night, items, report)) is not None
    return sent


def payload(night: Night, items: list[CellVerdict], report: str) -> dict[str, Any]:
    """What an event says of the worse metrics of one cell: plain data, and a sentence for people in `text`."""
    found = next((one for one in night.bisections if one.cell == items[0].cell), None)
    return {
        "nightly": night.name,
        "date": night.date,
        "sweep_id": night.sweep_id,
        "cell": items[0].cell,
        "name": items[0].name,
        "text": "; ".join(f"{item.metric} {change_of(item)}" for item in items),
        "metrics": [
            {
                "metric": item.metric,
                "word": item.word,
                "ratio": item.ratio,
                "since": item.alarm_since,
                "where": item.where,
                "pairs": item.pairs.model_dump(mode="json") if item.pairs else None,
            }
            for item in items
        ],
        "commit": found.commit if found else None,
        "commit_subject": found.subject if found else None,
        "report": report,
    }
