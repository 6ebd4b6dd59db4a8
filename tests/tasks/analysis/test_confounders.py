"""What differs between compared cells and is not an axis: environment, parameters, and which numbers are equal."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.trial import Outcome
from tasks.analysis.confounders import confounders
from tests.tasks.cell_support import made, repeats, row, settings, workers


@pytest.mark.parametrize("name", ["max_clock_mhz", "application_clocks_mhz", "power_limit_w", "device_memory_bytes"])
@pytest.mark.parametrize(("value", "differs"), [(1009, False), (1010, False), (1011, True), (991, False), (989, True), (None, True)])
def test_what_a_device_reports_of_itself_is_equal_within_one_percent(name: str, value: float | None, differs: bool) -> None:
    cells = made([row(workers(0), environment={name: 1000}), row(workers(1), environment={name: value})])
    assert cells[1].differs == ([name] if differs else [])
    assert cells[0].differs == []


@pytest.mark.parametrize(
    "name", ["threads", "cores", "world_size", "device_count", "locked_clocks_mhz", "driver", "torch", "of_a_workload", "cache_bytes"]
)
@pytest.mark.parametrize(("first", "second", "differs"), [(1000, 1001, True), (12.1, 12.2, True), (8, 8.0, False), (8, "8", False)])
def test_counts_and_versions_are_equal_or_differ(name: str, first: Any, second: Any, differs: bool) -> None:
    """128 threads beside 127 were within 1 %, and so passed for equal."""
    cells = made([row(workers(0), environment={name: first}), row(workers(1), environment={name: second})])
    assert cells[1].differs == ([name] if differs else [])


def test_every_repeat_counts_for_what_differs() -> None:
    cells = made(
        [
            *repeats(workers(0), 100.0, environment={"torch": "2.12", "max_clock_mhz": 1000, "driver": "1"}),
            row(workers(1), repeat=1, environment={"torch": "2.12", "max_clock_mhz": 1000, "driver": "1"}),
            row(workers(1), repeat=2, environment={"torch": "2.13", "max_clock_mhz": 1005}),
            row(workers(1), repeat=3, outcome=Outcome.CRASHED, environment={"torch": "9", "max_clock_mhz": 9, "driver": "9"}),
        ]
    )
    found = {name: {value: [cell.name for cell in members] for value, members in groups} for name, groups in confounders(cells)}
    assert found == {
        "torch": {"2.12": ["cpu · MP-0", "cpu · MP-1"], "2.13": ["cpu · MP-1"]},
        "driver": {"1": ["cpu · MP-0", "cpu · MP-1"], "unknown": ["cpu · MP-1"]},
    }


def test_a_number_that_one_cell_does_not_know_differs() -> None:
    cells = made([row(workers(0), environment={"clock": 1000}), row(workers(1), environment={"other": 1})])
    assert cells[1].differs == ["clock", "other"]


def test_what_an_axis_says_is_no_confounder() -> None:
    facts = [{"device_name": name, "device_kind": name, "device_count": count, "pool": name} for name, count in (("x", 1), ("y", 8))]
    pools = made([row(workers(0, "x"), environment=facts[0]), row(workers(0, "y"), environment=facts[1])], settings(baseline={"pool": "x"}))
    assert pools[1].differs == []
    same = made([row(workers(0), environment=facts[0]), row(workers(1), environment=facts[1])])
    assert same[1].differs == ["device_name", "device_kind", "device_count", "pool"]
    worlds = [{"world_size": count, "device_count": count} for count in (1, 8)]
    grown = made(
        [row({"pool": "x", "devices": count}, environment=facts) for count, facts in zip((1, 8), worlds, strict=True)],
        settings(baseline={"devices": 1}, columns="devices"),
    )
    assert grown[1].differs == []
    assert made([row(workers(place), environment=facts) for place, facts in enumerate(worlds)])[1].differs == ["world_size", "device_count"]


def test_parameters_set_without_an_axis_are_confounders() -> None:
    cells = made(
        [
            row(workers(0), parameters={"batch_size": 8, "seed": 1}),
            row(workers(1), parameters={"batch_size": 16, "seed": 1}),
            row(workers(2), parameters={"seed": 1}),
        ]
    )
    assert [cell.differs for cell in cells] == [[], ["batch_size"], ["batch_size"]]
    [(name, groups)] = confounders(cells)
    assert (name, [(value, [cell.name for cell in members]) for value, members in groups]) == (
        "batch_size",
        [("8", ["cpu · MP-0"]), ("16", ["cpu · MP-1"]), ("None", ["cpu · MP-2"])],
    )


def test_what_a_rung_stands_for_is_no_confounder_and_the_rest_is() -> None:
    suite = settings(
        baseline={"rung": "a"},
        columns="rung",
        conditions=[{"when": {"rung": "b"}, "set": {"compile": "layer"}}, {"when": {"pool": "cpu"}, "set": {"batch_size": 8}}],
    )
    rungs = {"a": {"compile": "none", "batch_size": 8}, "b": {"compile": "layer", "batch_size": 16}}
    cells = made([row({"pool": "cpu", "rung": rung}, parameters=chosen) for rung, chosen in rungs.items()], suite)
    assert cells[1].named == {"compile"}
    assert cells[1].differs == ["batch_size"]
    one_rung = made(
        [row(workers(count, rung="b"), parameters={"compile": compiled}) for count, compiled in enumerate(("none", "layer"))], suite
    )
    assert [name for name, _ in confounders(one_rung)] == ["compile"], "of cells on one rung it is a confounder"
