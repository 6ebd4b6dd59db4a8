"""The names of a trial's and a sweep's files: what users, earlier sweeps and jobs that still run rely on."""

from __future__ import annotations

import re
from pathlib import Path

from cluster import trial_layout

ROOT = Path(__file__).parents[2]
NAMES = {
    "PLAN": "plan.json",
    "TRIALS": "trials",
    "RESULTS": "results.parquet",
    "REPORT": "report.md",
    "REPORT_PAGE": "report.html",
    "FIGURES": "figures",
    "CERTIFICATES": "certificates.json",
    "IMPORTED": "imported.json",
    "ORIGINALS": "originals",
    "AA_CERTIFICATES": "certificates",
    "STATUS": "status.json",
    "FLOW_RUNS": "flow_runs.txt",
    "SHOWN": ".shown.json",
    "SLOTS": "slots.jsonl",
    "HELD_TIME": "held_time.json",
    "LEASE": ".lease",
    "HOLDER": ".holder.json",
    "LOOKS": ".looks.json",
    "STOP": ".stop",
    "WHOLE": ".whole.json",
    "ROWS": ".rows.parquet",
    "KNOWN_SPREAD": "known_spread.json",
    "SPREAD": "spread",
    "COMPILE_CACHE": ".compile-cache",
    "WEIGHTS": ".weights",
    "RAY_TOKEN": ".stack/ray_token",
    "RATES": ".matrix-rates",
    "TRIAL": "trial.json",
    "HOLD": ".hold",
    "TOLD": "trial-of-commit.json",
    "LAUNCH": "launch.json",
    "JOURNAL": "journal.jsonl",
    "RESULT": "result.json",
    "STEPS": "steps.parquet",
    "LESSON": "lesson.json",
    "LOG": "log.txt",
    "DEVICE_STATE": "device_state.jsonl",
    "TRACE": "trace.json.gz",
    "RANKS": "ranks",
    "PROBES": "probes",
    "RAY": "ray",
    "RANK_ZERO": "rank0",
    "DAMAGED": "damaged",
    "CRASHED": "crashed",
    "ASIDE": ("damaged", "crashed"),
}


def test_the_names_of_files_and_folders() -> None:
    assert {name: value for name, value in vars(trial_layout).items() if name.isupper()} == NAMES


def test_names_that_hold_a_number() -> None:
    assert trial_layout.withdrawal(2) == "withdrawn-a2"
    assert trial_layout.attempt_result(2) == "result-a2.json"
    assert trial_layout.attempt_trace(2) == "trace-a2.json.gz"
    assert trial_layout.journal_segment(2, 1, 17) == "journal-a2/1-00000017.jsonl"
    assert (trial_layout.rank_failure(3), trial_layout.rank_failure("*")) == ("rank-3.json", "rank-*.json")
    assert trial_layout.probe(64, 1) == "batch-64-a1"
    assert (trial_layout.kept_aside(2), trial_layout.kept_aside("*", trial_layout.CRASHED)) == ("damaged-a2", "crashed-a*")


def test_the_report_of_emulated_trials_has_files_of_its_own() -> None:
    emulated = [trial_layout.for_emulated(name) for name in ("report.md", "report.html", "figures")]
    assert emulated == ["report-emulated.md", "report-emulated.html", "figures-emulated"]


def test_no_other_module_spells_the_name_of_a_trials_file() -> None:
    """As an operand of `/`, or as what is asked of a storage."""
    spelled = re.compile(rf"(?:/ |get\(|put\()[\"'](?:{'|'.join(re.escape(name) for name in NAMES.values() if '.' in name)})[\"']")
    own = {"tasks/nightly/report.py", "flows/cli/show_night.py"}  # a night's folder, which is no sweep's
    files = (file for folder in ("cluster", "experiments", "tasks", "flows") for file in (ROOT / folder).rglob("*.py"))
    found = {str(file.relative_to(ROOT)) for file in files if spelled.search(file.read_text())}
    assert found <= own, found - own
