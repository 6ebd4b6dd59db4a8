"""What a terminal shows while Prefect starts."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from cluster.journal.journal import JournalWriter
from flows.cli.starting import TrialLook, starting
from tests.tasks.plan_support import make_trial


def test_the_first_trials_phase_and_step_are_read_from_its_journal(tmp_path: Path) -> None:
    trial = make_trial(1)
    look = TrialLook(trial, tmp_path)
    assert look.text == f"{trial.name}: starts"
    with JournalWriter(tmp_path / "journal.jsonl", 1, trial=trial.key) as journal:
        journal.append("phase", name="hold")
        journal.flush()
        assert look.text == f"{trial.name}: waits for the flow"
        journal.append("phase", name="max_batch")
        journal.flush()
        assert look.text == f"{trial.name}: searching the largest batch"
        journal.append("phase", name="warmup")
        journal.append("step", step=3, loss=0.5, samples=1, total_s=1.0, measured=False)
        journal.flush()
        assert look.text == f"{trial.name}: warmup, step 3"
    (tmp_path / "journal.jsonl").write_text("damaged\n")
    assert look.text == f"{trial.name}: warmup, step 3", "the flow will say so"


def test_a_terminal_shows_what_is_waited_for_and_a_pipe_nothing() -> None:
    for terminal in (True, False):
        console = Console(file=StringIO(), width=120, force_terminal=terminal)
        with starting(console) as say:
            say("importing Prefect")
            if terminal:
                console._live_stack[-1].refresh()
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("importing Prefect, 0:0" in text) is terminal
        assert bool(text) is terminal
