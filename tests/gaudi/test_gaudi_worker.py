"""Trials on the emulated Gaudi through the worker's entrypoint, as a pool starts it: one process and two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.journal.journal import read_journal
from experiments.trial import Outcome
from tests.gaudi_support import HABANA, PAIRS, SMALL, finish, losses, start

SHORT: dict[str, Any] = {"steps": 2, "warmup_steps": 2}


def test_one_process_says_what_it_ran_on_and_that_it_is_emulated(drawn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    result = finish(folder, start(folder, "bridgetower", drawn, **{**PAIRS, **HABANA, **SHORT, "precision": "bf16", "evaluate": True}))
    assert result.outcome is Outcome.OK, result.detail
    assert result.emulated, "though neither trial nor pool says so"
    journal = read_journal(folder / "journal.jsonl")
    assert journal.environment["emulated"] is True
    expected = {
        "device_kind": "hpu",
        "device_name": "GAUDI2",
        "board": "HL-225",
        "driver": "1.24.1-emulated",
        "habana-torch-plugin": "1.24.1.482+emulated",
        "optimum-habana": "1.21.2",
        "lazy_mode": True,
        "clock": "hpu events",
        "power_limit_w": 600.0,
    }
    assert {name: result.environment[name] for name in expected} == expected
    assert str(result.environment["transformers"]).startswith("4.55.")
    assert result.environment["device_memory_bytes"] == pytest.approx(94.6 * 2**30, rel=1e-6)
    assert result.summary["peak_memory_bytes"] and result.summary["eval_loss_after"] is not None
    assert result.summary["mfu"] is None and result.summary["energy_j_per_sample"] is None, "an emulated device reaches no share of a peak"
    assert journal.window is not None and journal.window["flops_per_sample"] > 0


def test_two_processes_keep_equal_weights_with_either_ddp(drawn: Path, tmp_path: Path) -> None:
    """torch's DDP; and fast DDP with HPU graphs. The first step's loss is the same for both."""
    settings = {**PAIRS, **HABANA, **SHORT, "devices": 2, "precision": "bf16", "communication_steps": 0}
    seen = {}
    for name, changes in {"stock": {}, "fast": {"ddp": "fast", "hpu_graphs": True}}.items():
        folder, records = tmp_path / name, tmp_path / f"{name}-weights"
        records.mkdir()
        result = finish(folder, start(folder, "watched_bridgetower", drawn, **{**settings, **changes, "record_dir": str(records)}))
        assert result.outcome is Outcome.OK, result.detail
        assert result.environment["world_size"] == 2 and result.summary["samples"] == 2 * 2 * 8
        weights = [(records / f"rank-{rank}.txt").read_text().split() for rank in (0, 1)]
        assert weights[0] == weights[1], name
        assert len(weights[0]) == 4 == len(set(weights[0])), "and they change from step to step"
        seen[name] = losses(read_journal(folder / "journal.jsonl"))
    # fast DDP adds bf16 gradients, as optimum-habana's trainer does; torch's adds fp32
    assert seen["fast"][0] == seen["stock"][0]
    assert seen["fast"] == pytest.approx(seen["stock"], rel=2e-2)


def test_clip_in_two_processes(tmp_path: Path) -> None:
    folder, records = tmp_path / "clip", tmp_path / "weights"
    records.mkdir()
    settings = {**SMALL, **HABANA, **SHORT, "devices": 2, "ddp": "fast", "clip_grad_norm": 1.0}
    result = finish(folder, start(folder, "clip_pairs", **settings, record_dir=str(records)))
    assert result.outcome is Outcome.OK, result.detail
    assert (records / "rank-0.txt").read_text() == (records / "rank-1.txt").read_text()


def test_a_full_device_is_does_not_fit(drawn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    process = start(folder, "bridgetower", drawn, {"HABANA_EMU_MEM_GB": "0.003"}, **{**PAIRS, **SHORT})
    result = finish(folder, process)
    assert result.outcome is Outcome.DOES_NOT_FIT, result.detail
    assert "PT_DEVMEM Allocation failed" in str(result.reason)
    assert result.emulated and result.summary.get("throughput") is None
