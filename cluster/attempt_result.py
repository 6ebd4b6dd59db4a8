"""The result of an attempt, from its journal and its device's state: made by the trial's process, or by the flow where none is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.journal.errors import JournalError
from cluster.journal.journal import read_journal
from cluster.journal.writer_lock import writer_ended
from cluster.sampler.state_file import mark_of, read_state
from cluster.trial_layout import DEVICE_STATE, JOURNAL
from experiments.device_state import DeviceState
from experiments.journal_mark import JournalMark
from experiments.summary import summarise
from experiments.trial import Outcome, Trial, TrialResult

SAMPLER_END_S = 10.0  # how long the end of a sampler is waited for, whose worker was killed


def attempt_result(
    trial: Trial, out: Path, attempt: int, started_at: float, outcome: Outcome, reason: str | None, detail: str | None
) -> TrialResult:
    """The result of the attempt whose files are in `out` and that ended so; crashed, if its journal cannot be read.

    Environment and summary come from the journal and the device's state, as in any later report. `started_at`: Unix time, s.
    """
    environment: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    state: DeviceState | None = None
    journal_mark: JournalMark | None = None
    state_mark: JournalMark | None = None
    try:
        journal = read_journal(out / JOURNAL, trial=trial.key)
        if journal.attempt == attempt:
            environment, journal_mark = journal.environment, journal.mark
            if outcome is Outcome.OK:  # the rate of a failed trial must not be mistaken for a result
                summary = dict(summarise(journal.steps, journal.window, journal.evaluations))
                state, state_mark = _state(out, attempt, journal.steps)
            if journal.window and "batch_size" in journal.window:
                summary["batch_size"] = journal.window["batch_size"]
    except (JournalError, ValueError) as error:
        if outcome is Outcome.OK:
            outcome, reason = Outcome.CRASHED, f"{type(error).__name__}: {error}"
    return TrialResult(
        key=trial.key,
        attempt=attempt,
        outcome=outcome,
        reason=reason,
        detail=detail,
        disturbed=state.disturbed if state else None,
        not_judged=state.not_judged if state else None,
        started_at=started_at,
        finished_at=time.time(),
        emulated=trial.emulated or bool(environment.get("emulated")),  # the device knows best whether it is emulated
        environment=environment,
        summary={**summary, **(state.metrics() if state else {})},
        journal=journal_mark,
        device_state=state_mark,
    )


def _state(out: Path, attempt: int, steps: Sequence[Mapping[str, Any]]) -> tuple[DeviceState | None, JournalMark | None]:
    """The state of the device in the measured window, and which records of the sampler, which has ended, it is of.

    A file that cannot be read leaves it unknown: the trial was measured all the same. So does one to which a sampler still adds records,
    since its count would then not be the result's.
    """
    try:
        if writer_ended(out / DEVICE_STATE, SAMPLER_END_S) is False:
            raise JournalError(out / DEVICE_STATE, 0, f"is still written {SAMPLER_END_S:g} s after the trial's end")
        return read_state(out, attempt, steps), mark_of(out / DEVICE_STATE, attempt)
    except (JournalError, OSError, ValueError, KeyError) as error:
        print(f"the device's state is unknown: {error}", file=sys.stderr, flush=True)
        return None, None
