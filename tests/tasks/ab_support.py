"""Commits for A/B sweeps: told apart by their hashes, with the code that lies here."""

from __future__ import annotations

import pytest

from tasks.sweep import plan as planning
from tasks.sweep import variants

COMMITS = {"main": "a" * 40, "HEAD": "b" * 40, "again": "a" * 40, "0123456789" * 4: "c" * 40}


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits above have the code that lies here."""
    code = planning.code_version
    monkeypatch.setattr(variants, "resolve_clean", lambda name: COMMITS[name])
    monkeypatch.setattr(planning, "tree_of", lambda commit: None)
    monkeypatch.setattr(planning, "code_version", lambda workload, device, tree=None: code(workload, device))
    monkeypatch.setattr(planning, "check_commits", lambda trials: {trial.commit: "tree" for trial in trials if trial.commit})
