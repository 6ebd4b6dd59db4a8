"""JSON of pytest-benchmark: what is read of it, and which key is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.config.errors import ConfigError
from tasks.imports.model import Value
from tasks.imports.pytest_benchmark import is_pytest, read_pytest
from tests.tasks.imports.others import pytest_json

PATH = Path("0001_run.json")
TEN = 1_795_168_800.0  # 2026-11-20 10:00 UTC, Unix time


def test_each_test_is_a_result_in_seconds() -> None:
    found = read_pytest(PATH, pytest_json())
    a, b = found.results
    assert (a.name, b.name) == ("bench/test_x.py::test_a[4]", "bench/test_x.py::test_b")
    times = {"mean": 1.0, "median": 0.9, "stddev": 0.25, "min": 0.5, "max": 1.5}
    assert a.values == [
        *(Value(name=name, value=value, unit="s") for name, value in times.items()),
        Value(name="ops", value=1.0, unit="1/s"),
        Value(name="rounds", value=5.0),
        Value(name="iterations", value=2.0),
    ]
    assert a.samples == {"mean": [0.5, 0.9, 0.9, 1.2, 1.5]} and b.samples == {}
    assert a.settings == {"group": "fast", "n": 4, "extra_info.kind": "x"} and b.settings == {}
    assert (found.version, found.measured_at) == ("5.1.0", TEN)
    assert found.environment == {
        "node": "host",
        "system": "Linux",
        "python_version": "3.11.9",
        "cpu.brand_raw": "A CPU",
        "commit.id": "a" * 40,
        "commit.branch": "main",
        "commit.dirty": "False",
    }


@pytest.mark.parametrize(
    ("when", "seconds"), [("2026-11-20T10:00:00.000000", TEN), ("2026-11-20T12:00:00+02:00", TEN), ("2026-11-20T10:00:00Z", TEN)]
)
def test_a_time_without_a_zone_is_utc(when: str, seconds: float) -> None:
    assert read_pytest(PATH, pytest_json(when=when)).measured_at == seconds


def test_it_is_known_by_its_keys() -> None:
    assert is_pytest(pytest_json()) and not is_pytest({"benchmarks": [], "context": {}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "6.0"}, "0001_run.json: version: is '6.0', whose files are not known here; files of 3, 4 and 5 are read"),
        ({"version": "2.5.0"}, "version: is '2.5.0'"),
        ({"benchmarks": []}, "benchmarks: is empty: no test of that run used the fixture `benchmark`"),
        ({"datetime": "yesterday"}, "datetime: is 'yesterday'; should be a date and time"),
        ({"benchmarks": [{"fullname": "a", "stats": {"mean": 1.0}}]}, "benchmarks[0].stats.median: is missing; add it"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_pytest(PATH, {**pytest_json(), **change})
    assert said in str(caught.value)
