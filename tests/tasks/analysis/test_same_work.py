"""Which cells do the same work: by the suite, the workload and the metric; and what is said of those that do not."""

from __future__ import annotations

import pytest

from experiments import workloads
from experiments.parameters import TrainingParameters, work_parameters
from experiments.trial import Outcome
from tasks.analysis.same_work import groups_of_work, groups_to_rank, other_work
from tests.tasks.cell_support import by_name, made, repeats, row, settings, workers


def test_a_class_adds_to_what_the_classes_it_extends_name() -> None:
    class Base(TrainingParameters):
        same_work = ("model",)

    class Own(Base):
        same_work = ("length", "model")

    class Plain(Own):
        pass

    assert work_parameters(TrainingParameters) == ()
    assert work_parameters(Own) == work_parameters(Plain) == ("model", "length")


@pytest.mark.parametrize("name", workloads.names())
def test_every_workload_names_what_changes_its_work(name: str) -> None:
    schema = workloads.load(name).Parameters
    named = work_parameters(schema)
    assert named and set(named) <= set(schema.model_fields)
    assert ("model" in named) is ("model" in schema.model_fields)


def test_suite_and_workload_both_count_and_what_neither_names_does_not() -> None:
    """`synthetic` names width; the suite names `tokens`."""
    axes = [{"width": 8}, {"width": 8, "tokens": 2}, {"width": 16, "tokens": 2}, {"width": 16, "tokens": 2, "clip": 1}]
    rows = [row({"pool": "cpu", "tokens": 1, **one}) for one in axes]
    cells = made(rows, {**settings(baseline={}), "same_work": ["tokens"]})
    groups = groups_of_work(cells)
    assert {name: len(group) for name, group in groups.items()} == {
        "tokens 1 · width 8": 1,
        "tokens 2 · width 8": 1,
        "tokens 2 · width 16": 2,
    }
    assert groups_of_work(cells[2:]) == {"": cells[2:]} and groups_of_work([]) == {}


def test_what_is_timed_by_batch_is_compared_at_one_batch_and_max_counts_as_what_was_found() -> None:
    def cells(metric: str) -> list[int]:
        rows = [row({"pool": "cpu", "batch_size": size}, 1.0, metric=metric, summary={"batch_size": 8.0}) for size in (4, 8, "max")]
        return [len(group) for group in groups_of_work(made(rows, settings(metric=metric, baseline={}))).values()]

    assert cells("latency_p50_s") == [1, 2] and cells("throughput") == [3]


def test_a_cell_of_other_work_than_the_suites_baseline_has_no_speedup() -> None:
    rows = [one for count in (0, 1) for width in (64, None) for one in repeats(workers(count, width=width), 100.0)]
    cells = by_name(made(rows, settings(baseline={"dataloader_workers": 0, "width": 64})))
    same, other = cells["cpu · MP-1 · width 64"], cells["cpu · MP-1 · width none"]
    assert same.baseline is cells["cpu · MP-0 · width 64"] and same.speedup is not None and same.other_work == ""
    assert (other.baseline, other.speedup, other.verdict) == (None, None, None)
    assert other.other_work == "width none, there 64" == other_work(other, same)
    apart = by_name(made(rows, settings()))
    assert apart["cpu · MP-1 · width none"].baseline is apart["cpu · MP-0 · width none"], "the baseline names no width"


def test_without_a_baseline_the_first_of_a_row_is_none_for_other_work() -> None:
    cells = made(
        [one for width in (64, 128) for one in repeats({"pool": "cpu", "width": width}, 100.0)], settings(columns="width", baseline={})
    )
    assert cells[0].baseline is cells[0] and cells[1].baseline is None and cells[1].other_work == "width 128, there 64"


def test_cells_of_two_workloads_do_not_do_the_same_and_one_that_is_gone_names_nothing() -> None:
    rows = [row(workers(count, width=count), workload=workload) for count, workload in enumerate(("long gone", "long gone", "canary"))]
    groups = groups_of_work(made(rows))
    assert [len(group) for group in groups.values()] == [2, 1] and "canary" in list(groups)[1]
    failed = made([row(workers(0, width=1), None, outcome=Outcome.HANG)])
    assert failed[0].work == {"workload": "synthetic", "width": 1}


def test_groups_are_named_in_the_order_of_the_names_of_their_cells() -> None:
    """Work names the workload's parameters in its own order, and devices last."""
    axes = [{"devices": count, "tokens": 1, "width": width} for count in (1, 2) for width in (8, None)]
    cells = made([row({"pool": "cpu", **one}) for one in axes], settings(baseline={}))
    names = [f"devices {count} · width {width}" for count in (1, 2) for width in (8, "none")]
    assert list(groups_to_rank(cells)) == names == [cell.short for cell in cells]


def test_only_cells_on_as_many_devices_are_ranked() -> None:
    rows = [row({"pool": "cpu", "devices": n, "width": width}) for n, width in ((4, 8), (1, 8), (4, 16))]
    cells = made([*rows, row({"pool": "cpu", "width": 8, "clip": 1})], settings(baseline={}))
    assert {name: len(group) for name, group in groups_to_rank(cells).items()} == {
        "devices 4 · width 8": 1,
        "devices 1 · width 8": 2,  # one that says nothing of devices has one
        "devices 4 · width 16": 1,
    }
    assert list(groups_to_rank(cells[:1])) == [""] and len(groups_of_work(cells)) == 2
