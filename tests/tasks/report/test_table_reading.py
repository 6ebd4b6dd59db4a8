"""What the comparison table says of the value in a cell, where its name may be taken for something else."""

from __future__ import annotations

from tests.tasks.cell_support import repeats, settings, table_of, workers


def test_a_latency_by_sample_is_told_from_the_time_that_a_sample_takes() -> None:
    """A page said `seconds a summary` of batches of 16 that took 5 s each."""
    rows = repeats({"pool": "cpu", "batch_size": 16}, 0.3, metric="latency_per_sample_s")
    table = table_of(rows, settings(columns="batch_size", metric="latency_per_sample_s", title="T5", baseline={}))
    told = "Latency per sample is the latency of a batch divided by its samples, of which none is done before the batch; ± is half"
    assert table.about.startswith(f"T5. {told} the 95 % interval.")
    service = table_of(repeats(workers(0), 0.3, metric="service_time_per_sample_s"), settings(metric="service_time_per_sample_s"))
    assert service.reading.startswith("Service time per sample is the service time of a batch divided by its samples, ")
    assert table_of(repeats(workers(0), 100.0)).reading == "± is half the 95 % interval."
