"""What a person sees on the flow run's page in the Prefect UI: progress, each trial's figures, the comparison table."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_progress_artifact, create_table_artifact, update_progress_artifact

from experiments.trial import Trial, TrialResult
from flows.board import Board
from tasks.store import SweepStore

_progress: dict[str, Any] = {}


def progress(sweep_id: str, board: Board) -> None:
    """Percent of trials done, one artifact for each sweep."""
    with board.lock:
        percent = 100 * sum(row.ended is not None for row in board.rows.values()) / max(1, len(board.rows))
    with suppress(Exception):  # a lost Prefect server costs a picture, not a sweep
        if sweep_id in _progress:
            update_progress_artifact(_progress[sweep_id], percent)
        else:
            _progress[sweep_id] = create_progress_artifact(percent, key=_key(sweep_id, "progress"), description=sweep_id)


def trial(trial: Trial, result: TrialResult) -> None:
    """The trial's outcome and summary as a table."""
    rows = [
        {"": "outcome", " ": str(result.outcome)},
        *([{"": "reason", " ": result.reason}] if result.reason else []),
        *(
            {"": name, " ": f"{value:.6g}" if isinstance(value, float) else str(value)}
            for name, value in result.summary.items()
            if value is not None
        ),
    ]
    with suppress(Exception):
        create_table_artifact(rows, key=f"trial-{trial.key}", description=trial.name)


def sweep(store: SweepStore) -> None:
    """The report."""
    with suppress(Exception):
        create_markdown_artifact((store.dir / "report.md").read_text(), key=_key(store.sweep_id, "report"), description=store.sweep_id)


def _key(sweep_id: str, what: str) -> str:
    return f"{sweep_id.replace('_', '-')}-{what}"
