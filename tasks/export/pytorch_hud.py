"""A sweep as benchmark records of PyTorch's HUD, schema version 3: one record for each cell and metric, with its repeats.

The form is that of table benchmark.oss_ci_benchmark_v3 (clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql in pytorch/test-infra) and of
the page "PyTorch OSS benchmark infra" of PyTorch's wiki: a JSON list of records with `benchmark`, `model` and `metric`, and optionally
`runners` and `dependencies`. What belongs to the upload (timestamp, repository, workflow, job) is added by whoever uploads. `extra_info` is
a map from text to text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.metrics import metric_of
from experiments.price import COST
from experiments.stats.estimate import Estimate
from experiments.summary import BATCH_TIMES
from experiments.trial import label
from tasks.analysis.cell import Cell, numbers
from tasks.analysis.cell_records import simulated
from tasks.analysis.results import Sweep

# Beside the metric that the cells are compared by
METRICS = (
    *("throughput", "step_time_median_s", "step_time_p90_s", "latency_p50_s", "latency_p99_s", "service_time_p50_s"),
    *("peak_memory_bytes", "compile_seconds", "time_to_first_step_s", "mfu", "energy_j_per_sample", COST),
    *("final_loss", "eval_loss_after"),
)
_LIBRARIES = {
    "torch": "pytorch/pytorch",
    "torchao": "pytorch/ao",
    "transformers": "huggingface/transformers",
    "diffusers": "huggingface/diffusers",
    "ray": "ray-project/ray",
}


def hud_text(sweep: Sweep, cells: Sequence[Cell]) -> str:
    """The JSON of `hud_records`."""
    return json.dumps(hud_records(sweep, cells), indent=1, allow_nan=False) + "\n"


def hud_records(sweep: Sweep, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Cells without a value, such as those that did not fit, have no record: the form has no place for how a trial ended."""
    return [
        {
            "benchmark": _benchmark(sweep, cell),
            "model": _model(cell),
            "metric": _metric(cell, name, values),
            "runners": [_runner(cell)],
            "dependencies": _dependencies(cell),
        }
        for cell in cells
        for name in dict.fromkeys((cell.metric.name, *METRICS))
        if (values := numbers(row.summary.get(name) for row in cell.measured))
    ]


def _benchmark(sweep: Sweep, cell: Cell) -> dict[str, Any]:
    """`name`: the suite. `extra_info`: which sweep and cell, and whether that is a measurement."""
    trial = cell.trial
    timed = any(row.summary.get(f"{name}_p50_s") is not None for row in cell.measured for name in BATCH_TIMES.values())
    said = {
        "sweep": sweep.sweep_id,
        "command": sweep.plan.command,
        "cell": trial.cell,
        "setting": cell.name,
        "emulated": cell.emulated,
        "simulated": simulated(trial),
        "disturbed": cell.disturbed,
        "loss_parity": cell.parity.status if cell.parity else None,
        **{f"axis.{axis}": label(axis, value) if value is None else value for axis, value in cell.axes.items()},
    }
    dtype = str(trial.parameters.get("precision") or "")
    return {"name": trial.suite, "mode": "inference" if timed else "training", "dtype": dtype, "extra_info": _texts(said)}


def _model(cell: Cell) -> dict[str, Any]:
    size = cell.trial.parameters.get("model")
    name = f"{cell.trial.workload} {size}" if isinstance(size, str) else cell.trial.workload
    compiled, mode = cell.trial.parameters.get("compile"), cell.trial.parameters.get("compile_mode", "default")
    return {
        "name": name,
        "type": "sweepbench workload",
        "backend": "" if compiled in (None, False, "none", "off") else f"torch.compile {compiled}{'' if mode == 'default' else f' {mode}'}",
        "origins": ["sweepbench"],
        "extra_info": {},
    }


def _metric(cell: Cell, name: str, values: Sequence[float]) -> dict[str, Any]:
    """`benchmark_values`: the metric of each repeat. Of the metric that cells are compared by also the interval and the verdict."""
    metric = cell.metric if name == cell.metric.name else metric_of(name)
    said: dict[str, Any] = {"unit": metric.unit, "better": metric.direction}
    if name == cell.metric.name:
        said |= _ends("", cell.estimate)
        said |= {
            "ratio_to_baseline": cell.speedup.value if cell.speedup else None,
            **_ends("ratio_", cell.speedup),
            "verdict": cell.verdict,
        }
    return {"name": name, "benchmark_values": list(values), "extra_info": _texts(said)}


def _ends(prefix: str, value: Estimate | None) -> dict[str, float]:
    if value is None or not math.isfinite(value.se):
        return {}
    return {f"{prefix}low": value.low, f"{prefix}high": value.high}


def _runner(cell: Cell) -> dict[str, Any]:
    """The kind of machine; no host is named."""
    there = next((row.environment for row in cell.measured if row.environment), {})
    device, on_cpu = str(there.get("device_name") or ""), cell.trial.device == "cpu"
    count = int(cell.trial.parameters.get("devices") or 1)
    return {
        "name": cell.trial.pool,
        "type": cell.trial.device,
        "cpu_info": str(there.get("cpu") or (device if on_cpu else "")),
        "cpu_count": int(there.get("cores") or 0),
        "gpu_info": "" if on_cpu else device,
        "gpu_count": 0 if on_cpu else count,
        "extra_info": _texts({name: there.get(name) for name in ("driver", "cuda", "os", "image", "host_id")}),
    }


def _dependencies(cell: Cell) -> dict[str, Any]:
    there = next((row.environment for row in cell.measured if row.environment), {})
    return {
        name: {"repo": repository, "version": str(there[name]), "extra_info": {}}
        for name, repository in _LIBRARIES.items()
        if there.get(name)
    }


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Text -> text, without what is not known; true and false as JSON has them."""
    return {name: json.dumps(value) if isinstance(value, bool) else str(value) for name, value in values.items() if value is not None}
