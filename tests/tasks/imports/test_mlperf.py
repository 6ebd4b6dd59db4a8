"""Logs of MLPerf Training: what is read of one, and which line is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from tasks.imports.mlperf import read_mlperf
from tasks.imports.model import Origin, Read, Value
from tests.tasks.imports.others import BEGAN, mlperf

PATH = Path("result_0.txt")


def read(text: str) -> Read:
    return read_mlperf(PATH, text)


@pytest.mark.parametrize("rank", ["", "0: ", " 3: "])
def test_a_run_has_its_time_its_throughput_and_its_quality(rank: str) -> None:
    found = read(mlperf(rank=rank))
    [result] = found.results
    assert result.values == [
        Value(name="time_to_train", value=1200.0, unit="s"),
        Value(name="throughput_median", value=120.0),
        Value(name="eval_accuracy_last", value=0.92),
    ]
    assert result.samples == {"throughput_median": [100.0, 140.0, 120.0], "eval_accuracy_last": [0.95, 0.92]}
    assert (result.name, result.file, result.line, result.outcome) == ("llama2_70b_lora", "result_0.txt", 9, "success")
    assert result.settings == {"global_batch_size": 8, "opt_name": "adamw"}
    assert (found.origin, found.environment) == (Origin.MLPERF, {"submission_org": "Somebody"})
    assert found.measured_at == (BEGAN + 10) / 1000


def test_what_happened_and_what_was_measured_are_no_settings() -> None:
    point = '"event_type": "POINT_IN_TIME", "metadata": {"file": "train.py", "lineno": 83}'
    more = [
        f':::MLLOG {{"namespace": "", "time_ms": {BEGAN}, "key": "{key}", "value": {value}, {point}}}'
        for key, value in (("weights_initialization", "null"), ("train_loss", "11.8"), ("train_loss", "3.2"), ("eval_loss", "3.3"))
    ]
    started = f':::MLLOG {{"namespace": "", "time_ms": {BEGAN}, "event_type": "INTERVAL_START", "key": "init_start", "metadata": {{}}}}'
    found = read("\n".join([started, started, started, *more, mlperf()]))  # each rank says that it starts
    assert found.results[0].settings == {"global_batch_size": 8, "opt_name": "adamw"}


def test_how_it_ended_is_said_in_their_words_and_no_end_has_no_time() -> None:
    assert read(mlperf(status="aborted")).results[0].outcome == "aborted"
    [result] = read(mlperf(status=None)).results
    assert result.outcome == "unfinished" and [value.name for value in result.values] == ["throughput_median", "eval_accuracy_last"]
    assert read(mlperf().replace('"status": "success"', '"other": 1')).results[0].outcome == "ended"


def test_a_log_without_a_benchmark_has_the_name_of_its_file() -> None:
    text = "\n".join(line for line in mlperf().splitlines() if "submission" not in line)
    assert read(text).results[0].name == "result_0" and read(text).environment == {}


def test_what_mllog_could_not_write_is_left_out() -> None:
    assert read(":::MLLOG [convert-error: [('key', 'x')]]\n" + mlperf()).results[0].values[0].value == 1200.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"key": "opt_name"', '"key": opt_name'), "result_0.txt:6: what follows :::MLLOG is not JSON"),
        (lambda text: text.replace('"key": "opt_name", ', ""), "result_0.txt:6: key: is missing; add it"),
        (lambda text: text.replace(f'"time_ms": {BEGAN + 10}, ', '"time_ms": "now", '), "result_0.txt:9: time_ms: is 'now'"),
        (lambda text: text.replace("INTERVAL_END", "END"), "result_0.txt:8: event_type: is 'END'; should be 'INTERVAL_START', "),
        (lambda text: text + text, "result_0.txt:25: is the second run_start, after that of line 9; give each run a file of its own"),
        (lambda text: text.replace(str(BEGAN + 1_200_010), str(BEGAN + 10)), "run_stop is not after the run_start of line 9"),
        (
            lambda text: "\n".join(
                line for line in text.splitlines() if "run_st" not in line and "tracked" not in line and "eval" not in line
            ),
            "result_0.txt: has 7 :::MLLOG lines and no result among them; a log of a run has run_start and run_stop",
        ),
        (lambda text: "x\n:::MLPv0.6.0 resnet 1566 (a.py:1) run_start\n", "result_0.txt:2: lines begin with :::MLPv0, the format of"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(change: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(change(mlperf()))  # type: ignore[operator]
    assert said in str(caught.value)


def test_what_a_run_that_diverged_logs_as_nan_is_no_figure() -> None:
    [result] = read(mlperf(rates=(100.0, float("nan"), 140.0)).replace("0.92", "NaN")).results
    assert result.samples == {"throughput_median": [100.0, 140.0], "eval_accuracy_last": [0.95]}
    assert [value.value for value in result.values] == [1200.0, 120.0, 0.95]
    with pytest.raises(ConfigError, match=r"result_0.txt:9: time_ms: is inf; should be a finite number"):
        read(mlperf().replace(f'"time_ms": {BEGAN + 10},', '"time_ms": Infinity,'))
