"""Which program a file is of, and files of one program together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from tasks.imports.model import Origin
from tasks.imports.read import read_file, together
from tests.tasks.imports.others import mlperf, optimum, pytest_json

FILES = {
    Origin.MLPERF: mlperf().encode(),
    Origin.OPTIMUM_BENCHMARK: json.dumps(optimum()).encode(),
    Origin.PYTEST_BENCHMARK: json.dumps(pytest_json()).encode(),
}


@pytest.mark.parametrize("origin", FILES)
def test_the_content_tells_the_program(origin: Origin) -> None:
    assert read_file(Path("any.name"), FILES[origin]).origin is origin


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "f: is empty; logs of MLPerf Training"),
        (
            b"epoch 1 loss 2\n",
            "f: is no log of a known kind; logs of MLPerf Training (lines :::MLLOG), benchmark.json of optimum-benchmark",
        ),
        (b'{"context": {}, "benchmarks": []}', "f: is JSON of no kind that is known"),
        (b'{"config": 1,\n "report": \n', "f:3: is not JSON (Expecting value)"),
        (b"one\ntwo\nthr\xff", "f:3: is not UTF-8 text"),
    ],
)
def test_other_files_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_file(Path("f"), data)
    assert str(caught.value).startswith(said)


def test_runs_of_the_same_name_are_numbered_and_what_differs_is_joined() -> None:
    paths = [Path("a"), Path("b")]
    reads = [
        read_file(path, mlperf(minutes=minutes).replace("Somebody", org).encode())
        for path, minutes, org in zip(paths, (9, 8), "XY", strict=True)
    ]
    found = together(paths, reads)
    assert [result.name for result in found.results] == ["llama2_70b_lora #1", "llama2_70b_lora #2"]
    assert [result.values[0].value for result in found.results] == [540.0, 480.0]
    assert found.environment == {"submission_org": "X; Y"} and found.measured_at == reads[0].measured_at
    assert together(paths[:1], reads[:1]).results[0].name == "llama2_70b_lora"


def test_files_of_two_programs_are_refused() -> None:
    paths = [Path("a"), Path("b")]
    reads = [read_file(path, FILES[origin]) for path, origin in zip(paths, (Origin.MLPERF, Origin.PYTEST_BENCHMARK), strict=True)]
    with pytest.raises(ConfigError, match="b: is of pytest-benchmark, and a of mlperf; import each kind with a command of its own"):
        together(paths, reads)
