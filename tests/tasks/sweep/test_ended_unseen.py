"""What ends by itself while no flow looks counts, however late the next flow sees it."""

from __future__ import annotations

import pytest

from cluster import launchers
from cluster.journal.journal import JournalWriter
from cluster.launchers import Launch
from experiments.trial import Outcome
from tasks.sweep.begin_attempt import Attempt, AttemptStarter
from tests.tasks.fake_cluster import KEY, Cluster, cluster, runner, trial

__all__ = ["cluster"]  # a fixture

BUSY = "other processes used 38 % of the CPU (limit 5 %)"


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    ("outcome", "again", "followed"),
    [
        (Outcome.OK, None, True),
        (Outcome.DOES_NOT_FIT, None, True),
        (Outcome.CANCELLED, None, False),
        (Outcome.OK, 1, False),
        (Outcome.OK, 2, True),
    ],
)
def test_what_ended_by_itself_after_its_flow_had_died_counts_however_late_it_is_seen(
    cluster: Cluster, noted: bool, outcome: Outcome, again: int | None, followed: bool
) -> None:
    """The flow that goes on had looked for its result a moment before. `noted`: launch.json tells of it, not its journal alone. `again`:
    the attempt that is to be measured again, of which `outcome` is the result where that is 1; else of the one that does so."""
    made, number = trial(cluster), again or 1
    folder = cluster.store.trial_dir(KEY)
    with JournalWriter(folder / "journal.jsonl", number, trial=KEY):
        pass
    if noted:
        launchers.save(Launch(launcher="ray_job", key=KEY, attempt=number, id=f"{KEY}-a{number}"), folder)
    cluster.finish(1, Outcome.OK, BUSY)
    disturbed = cluster.store.result(KEY) if again is not None else None
    cluster.finish(number, outcome, BUSY if again == 1 else None)
    begun = AttemptStarter(runner(cluster), made).begin(again=disturbed)
    assert isinstance(begun, Attempt)
    assert (begun.launch.attempt, begun.started_here) == ((number, False) if followed else (number + 1, True))
    assert cluster.started == ([] if followed else [f"{KEY}-a{number + 1}"])
