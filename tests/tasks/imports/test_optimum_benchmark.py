"""JSON of optimum-benchmark: what is read of it, and which key is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.config.errors import ConfigError
from tasks.imports.model import Origin, Value
from tasks.imports.optimum_benchmark import is_optimum, read_optimum
from tests.tasks.imports.others import optimum

PATH = Path("runs/gpt2/benchmark.json")


def test_each_target_that_measured_something_is_a_result_with_every_figure() -> None:
    found = read_optimum(PATH, optimum())
    load, prefill = found.results
    assert (load.name, prefill.name) == ("gpt2 on cpu · load", "gpt2 on cpu · prefill")
    assert load.values == [Value(name="memory_max_ram", value=900.5, unit="MB")] and load.samples == {}
    assert prefill.values == [
        Value(name="memory_max_ram", value=900.5, unit="MB"),
        Value(name="latency_count", value=3.0),
        Value(name="latency_total", value=0.09, unit="s"),
        Value(name="latency_mean", value=0.03, unit="s"),
        Value(name="latency_p50", value=0.03, unit="s"),
        Value(name="latency_stdev", value=0.01, unit="s"),
        Value(name="latency_stdev_", value=33.3, unit="%"),
        Value(name="throughput", value=533.0, unit="tokens/s"),
    ]
    assert prefill.samples == {"latency_mean": [0.02, 0.03, 0.04]}
    assert prefill.settings["backend.model"] == "gpt2" and prefill.settings["scenario.input_shapes.batch_size"] == 2
    assert prefill.settings["backend.model_kwargs.use_cache"] is True and "backend.torch_dtype" not in prefill.settings
    assert (found.origin, found.version, found.measured_at) == (Origin.OPTIMUM_BENCHMARK, "0.6.0", None)
    assert found.environment == {"cpu": "A CPU", "cpu_count": "8", "gpu": "A GPU", "optimum_benchmark_version": "0.6.0"}


def test_a_report_alone_has_the_name_of_its_folder_and_no_settings() -> None:
    found = read_optimum(Path("/some/gpt2/benchmark_report.json"), optimum()["report"])
    assert [result.name for result in found.results] == ["gpt2 · load", "gpt2 · prefill"]
    assert (found.version, found.environment, found.results[0].settings) == (None, {}, {})


@pytest.mark.parametrize(
    ("content", "expected"),
    [(optimum(), True), (optimum()["report"], True), ({}, False), ({"a": 1}, False), ({"a": {"b": 1}}, False), ({"config": {}}, False)],
)
def test_it_is_known_by_its_keys(content: dict[str, Any], expected: bool) -> None:
    assert is_optimum(content) is expected


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "soon"])
def test_versions_whose_files_are_not_known_are_refused(version: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"config\.environment\.optimum_benchmark_version: is '{version}', .*; files of 0\.5 and later 0\.x"
    ):
        read_optimum(PATH, optimum(version))
    assert read_optimum(PATH, optimum("0.5.0")).version == "0.5.0" and read_optimum(PATH, optimum(None)).version is None


def test_keys_that_are_wrong_are_named() -> None:
    content = optimum()
    del content["report"]["prefill"]["latency"]["unit"]
    content["report"]["prefill"]["throughput"]["value"] = "many"
    with pytest.raises(ConfigError) as caught:
        read_optimum(PATH, content)
    assert [(one.file, one.key) for one in caught.value.problems] == [
        (str(PATH), "report.prefill.latency.unit"),
        (str(PATH), "report.prefill.throughput.value"),
    ]
    with pytest.raises(ConfigError, match="report: holds no measurement; give the file of a run that ended"):
        read_optimum(PATH, {**optimum(), "report": {"load": {}}})
