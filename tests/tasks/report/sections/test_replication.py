from __future__ import annotations

from experiments.metrics import metric_of
from experiments.stats.replication import Replication
from tasks.report.sections.replication import range_text


def test_the_range_in_the_metrics_own_words() -> None:
    assert range_text(Replication(238.12, 254.04, 4), metric_of("throughput")) == "238.1–254.0 samples/s"
    assert range_text(Replication(0.0121, 0.0134, 4), metric_of("step_time_median_s")) == "12.1 ms–13.4 ms"
    assert range_text(Replication(0.02, 0.051, 4), metric_of("data_wait_share")) == "2.0 %–5.1 %"
