"""What is in a trial's folder once an attempt is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.journal.journal import Journal
from experiments.trial import Outcome
from tasks.sweep.attempt_files import tidy
from tests.measured_support import write_measured
from tests.tasks.fake_cluster import KEY, Cluster, at, cluster, runner, trial
from tests.tasks.plan_support import make_result, make_trial

__all__ = ["cluster"]  # a fixture
TRACED = {"profile": None}  # also where the trace could not be read


@pytest.mark.parametrize(
    ("outcome", "window", "stays"),
    [
        (Outcome.OK, {"wall_s": 1.0}, False),  # its process was killed before it had written its trace, or the trace failed
        (Outcome.OK, TRACED, True),
        (Outcome.OK, {**TRACED, "trace_not_kept": "OSError: [Errno 28] No space left on device"}, False),
        (Outcome.INFRA, None, True),  # an earlier attempt, which was disturbed, may stay the trial's result
        (Outcome.CRASHED, {"wall_s": 1.0}, True),
    ],
)
def test_a_trace_stays_unless_the_attempt_counts_and_made_none(
    tmp_path: Path, outcome: Outcome, window: dict[str, object] | None, stays: bool
) -> None:
    (tmp_path / "trace.json.gz").write_bytes(b"of some attempt")
    tidy(tmp_path, make_result(make_trial(1), outcome), Journal(window=window))
    assert (tmp_path / "trace.json.gz").exists() == stays


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.INFRA])
def test_what_a_killed_process_had_half_written_is_removed(tmp_path: Path, outcome: Outcome) -> None:
    half = (".17.trace.json.gz", ".17.trace.json.gz.json", ".17.trace.json.gz.json.tmp", ".result.json.9ff98c64.tmp")
    for name in (*half, "trace.json.gz", ".hold", "journal.jsonl"):
        (tmp_path / name).touch()
    tidy(tmp_path, make_result(make_trial(1), outcome), Journal(window=dict(TRACED)))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hold", "journal.jsonl", "trace.json.gz"]


def test_an_attempt_that_is_lost_in_its_traces_leaves_no_trace_of_itself_or_another(cluster: Cluster) -> None:
    made, folder = trial(cluster), cluster.store.trial_dir(KEY)

    def end(cluster: Cluster) -> None:
        write_measured(folder / "journal.jsonl", key=KEY)
        for name in ("trace.json.gz", ".17.trace.json.gz.json"):
            (folder / name).write_bytes(b"of another")
        cluster.jobs[f"{KEY}-a1"] = "FAILED"

    cluster.on_ask = at(3, end)
    assert runner(cluster, retries=0).run(made).outcome is Outcome.OK
    assert [path.name for path in folder.iterdir() if "trace" in path.name] == []
