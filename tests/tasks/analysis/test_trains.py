"""Whether a step trains, of a trial and of a cell: it is told from what only inference has, of trials that measured."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.trial import Outcome
from tests.tasks.cell_support import made, row, workers

SERVICE, LATENCY = {"service_time_p50_s": 0.1}, {"latency_p50_s": 0.1}


@pytest.mark.parametrize(
    ("summary", "trains"),
    [({}, True), (SERVICE, False), (LATENCY, False), ({**SERVICE, **LATENCY}, False), ({"latency_p50_s": None}, True)],
)
def test_a_trial_with_the_times_of_a_batch_does_not_train(summary: dict[str, Any], trains: bool) -> None:
    assert row(workers(0), summary=summary).trains is trains


def test_a_cell_trains_where_all_its_trials_that_measured_do() -> None:
    inference, training = row(workers(0), summary=LATENCY), row(workers(0), repeat=2)
    crashed = row(workers(0), None, repeat=3, outcome=Outcome.CRASHED)
    for rows, trains in [([inference], False), ([training], True), ([inference, training], False), ([inference, crashed], False)]:
        assert made(rows)[0].trains is trains
    assert made([crashed])[0].trains is True, "where nothing was measured"
