"""Files as other programs write them, with made-up figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BEGAN = 1_790_000_000_000  # ms


def mlperf(
    *, status: str | None = "success", minutes: float = 20.0, rates: tuple[float, ...] = (100.0, 140.0, 120.0), rank: str = ""
) -> str:
    """A log of one run, among lines of other things."""
    told: list[tuple[int, str, str, Any, dict[str, Any]]] = [
        (0, "POINT_IN_TIME", "cache_clear", True, {}),
        (1, "POINT_IN_TIME", "submission_benchmark", "llama2_70b_lora", {}),
        (1, "POINT_IN_TIME", "submission_org", "Somebody", {}),
        (1, "POINT_IN_TIME", "global_batch_size", 8, {}),
        (1, "POINT_IN_TIME", "opt_name", "adamw", {}),
        (1, "INTERVAL_START", "init_start", None, {}),
        (2, "INTERVAL_END", "init_stop", None, {}),
        (10, "INTERVAL_START", "run_start", None, {}),
    ]
    told += [(20 + i, "POINT_IN_TIME", "tracked_stats", {"throughput": rate, "loss": 1.0}, {"step": i}) for i, rate in enumerate(rates)]
    told += [(50 + i, "POINT_IN_TIME", "eval_accuracy", value, {"samples_count": 8 * i}) for i, value in enumerate((0.95, 0.92))]
    if status is not None:
        told += [(10 + round(minutes * 60_000), "INTERVAL_END", "run_stop", None, {"samples_count": 3072, "status": status})]
    lines = ["Starting.", *(_line(rank, *one) for one in told), "Done."]
    return "\n".join(lines) + "\n"


def _line(rank: str, at: int, event_type: str, key: str, value: Any, metadata: dict[str, Any]) -> str:
    event = {"namespace": "", "time_ms": BEGAN + at, "event_type": event_type, "key": key, "value": value}
    return f"{rank}:::MLLOG {json.dumps({**event, 'metadata': {'file': 'train.py', 'lineno': 7, **metadata}})}"


def optimum(version: str | None = "0.6.0") -> dict[str, Any]:
    """benchmark.json of a run of an inference scenario."""
    latency = {
        "unit": "s",
        "values": [0.02, 0.03, 0.04],
        "count": 3,
        "total": 0.09,
        "mean": 0.03,
        "p50": 0.03,
        "stdev": 0.01,
        "stdev_": 33.3,
    }
    memory = {"unit": "MB", "max_ram": 900.5, "max_global_vram": None, "max_allocated": None}
    prefill = {"memory": memory, "latency": latency, "throughput": {"unit": "tokens/s", "value": 533.0}, "energy": None, "efficiency": None}
    load = {"memory": memory, "latency": None, "throughput": None, "energy": None, "efficiency": None}
    environment = {"cpu": " A CPU", "cpu_count": 8, "gpu": ["A GPU"], "optimum_benchmark_version": version}
    config = {
        "name": "gpt2 on cpu",
        "backend": {"name": "pytorch", "model": "gpt2", "torch_dtype": None, "model_kwargs": {"use_cache": True}},
        "scenario": {"name": "inference", "iterations": 3, "input_shapes": {"batch_size": 2}},
        "launcher": {"name": "process"},
        "environment": environment,
        "print_report": False,
    }
    return {"config": config, "report": {"load": load, "prefill": prefill, "decode": {**load, "memory": None}}}


def pytest_json(version: str = "5.1.0", when: str = "2026-11-20T10:00:00+00:00") -> dict[str, Any]:
    """The file of --benchmark-json with two tests, one of which kept its rounds."""
    stats = {
        "min": 0.5,
        "max": 1.5,
        "mean": 1.0,
        "stddev": 0.25,
        "median": 0.9,
        "rounds": 5,
        "iterations": 2,
        "ops": 1.0,
        "outliers": "1;0",
    }
    tests = [
        {"group": "fast", "name": "test_a[4]", "fullname": "bench/test_x.py::test_a[4]", "params": {"n": 4}, "extra_info": {"kind": "x"}},
        {"group": None, "name": "test_b", "fullname": "bench/test_x.py::test_b", "params": None, "extra_info": {}},
    ]
    tests[0]["stats"] = {**stats, "data": [0.5, 0.9, 0.9, 1.2, 1.5]}
    tests[1]["stats"] = stats
    machine = {"node": "host", "python_version": "3.11.9", "system": "Linux", "cpu": {"brand_raw": "A CPU", "count": 8}}
    commit = {"id": "a" * 40, "branch": "main", "dirty": False}
    return {"machine_info": machine, "commit_info": commit, "benchmarks": tests, "datetime": when, "version": version}


def written(folder: Path, name: str, content: str | dict[str, Any]) -> Path:
    """The file, of text or of an object as JSON."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path
