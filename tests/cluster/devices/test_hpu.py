"""The Gaudi path where there is no Gaudi and no emulator: what the tools say, what an error means, what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.devices import _hpu_tools, load
from cluster.devices._hpu_tools import ToolError, hl_smi, number, own_row, parse
from cluster.worker.main import _set_defaults
from cluster.worker.outcome import classify
from cluster.worker.train.choose_engine import why_not
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters, lazy_mode
from experiments.trial import Outcome
from tests.contracts import make_trial

ROW = "0, 3, HL-225, 1.24.1-1a2b3c4, 98304 MiB, 1650 MHz, N/A\n"


def test_hl_smis_csv_becomes_values_with_units() -> None:
    (row,) = parse(ROW + "\n", _hpu_tools.COLUMNS)
    assert (row["name"], row["driver_version"], row["power.max"]) == ("HL-225", "1.24.1-1a2b3c4", None)
    assert number(row["memory.total"]) == 98304 * 2**20
    assert number(row["clocks.max.soc"]) == 1650
    assert (number(None), number("many"), number("3 furlongs"), number("90")) == (None, None, None, 90)


def test_what_is_no_row_is_named() -> None:
    with pytest.raises(ToolError, match="line 2: 1 values for 7 columns: 'driver not loaded'"):
        parse(ROW + "driver not loaded", _hpu_tools.COLUMNS)


def test_a_process_finds_its_own_accelerator() -> None:
    rows = [{"index": str(i), "module_id": str(7 - i)} for i in range(8)]
    assert own_row(rows, {"HLS_MODULE_ID": "5"})["index"] == "2"
    assert own_row(rows, {"HABANA_VISIBLE_MODULES": "4,5"})["index"] == "3"
    assert own_row(rows, {"HABANA_VISIBLE_MODULES": "all"})["index"] == "0"
    assert own_row([], {}) == {}


def _tool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "hl-smi"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_an_older_hl_smi_is_asked_again_for_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(
        tmp_path,
        "import sys; q = sys.argv[2]; sys.exit('no such field') if 'power' in q else print('0, 0, HL-225, 1.20.0, 1 GB')",
        monkeypatch,
    )
    assert [row["driver_version"] for row in hl_smi()] == ["1.20.0"]


def test_a_tool_that_fails_or_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tool(tmp_path, "import sys; sys.exit('driver is not loaded')", monkeypatch)
    with pytest.raises(ToolError, match="driver is not loaded"):
        hl_smi()
    (tmp_path / "hl-smi").unlink()
    with pytest.raises(ToolError, match="not on this machine"):
        hl_smi()


@pytest.mark.parametrize(
    "words",
    [
        "[Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::268435456 (256)MB",
        "FATAL ERROR :: MODULE:SYNHELPER workspace Allocation of size ::18187027456 failed!",
    ],
)
def test_a_full_gaudi_is_a_batch_that_does_not_fit(words: str) -> None:
    assert classify(RuntimeError(words)).outcome is Outcome.DOES_NOT_FIT
    assert classify(ValueError(words)).outcome is Outcome.CRASHED, "only what the bridge raises"
    assert classify(RuntimeError("FATAL ERROR :: MODULE:PT_LAZY Graph compile failed")).outcome is Outcome.CRASHED


def test_without_the_bridge_a_trial_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    with pytest.raises(Unsupported, match="bridge is not installed"):
        load("hpu")


@pytest.mark.parametrize(
    ("parameters", "lazy"),
    [
        ({}, False),
        ({"engine": "optimum_habana"}, True),
        ({"hpu_graphs": True}, True),
        ({"engine": "optimum_habana", "compile": "layer"}, False),
        ({"engine": "optimum_habana", "hpu_lazy": False}, False),
        ({"hpu_lazy": True}, True),
    ],
)
def test_lazy_or_eager_is_set_before_anything_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any], lazy: bool
) -> None:
    assert lazy_mode(TrainingParameters(**parameters).model_dump()) is lazy
    trial = make_trial(tmp_path, "0" * 16, **parameters).model_copy(update={"device": "hpu"})
    monkeypatch.setattr(os, "environ", {"PT_HPU_LAZY_MODE": "somebody's"})
    _set_defaults(trial)
    assert os.environ["PT_HPU_LAZY_MODE"] == ("1" if lazy else "0")


@pytest.mark.parametrize(
    ("kind", "parameters", "why"),
    [
        ("cuda", {"engine": "optimum_habana"}, "engine optimum_habana: only on hpu, and this is cuda"),
        ("cpu", {"ddp": "fast"}, "ddp fast: only on hpu, and this is cpu"),
        ("cuda", {"hpu_graphs": True}, "hpu_graphs: only on hpu"),
        ("cuda", {"hpu_lazy": False}, "hpu_lazy: only on hpu"),
        ("hpu", {"ddp": "fast"}, "needs engine optimum_habana"),
        ("hpu", {"engine": "optimum_habana", "ddp": "fast", "hpu_lazy": False}, "needs lazy mode"),
        ("hpu", {"hpu_lazy": True, "compile": "model"}, "needs eager mode"),
        ("hpu", {"hpu_graphs": True, "compile": "layer", "hpu_lazy": False}, "needs lazy mode"),
        ("cuda", {}, None),
        ("hpu", {"engine": "optimum_habana", "ddp": "fast", "hpu_graphs": True}, None),
        ("hpu", {"compile": "layer"}, None),
    ],
)
def test_what_a_device_does_not_have_is_refused_in_words(kind: str, parameters: dict[str, Any], why: str | None) -> None:
    found = why_not(TrainingParameters(**parameters), SimpleNamespace(kind=kind))  # type: ignore[arg-type]
    assert found is None if why is None else why in str(found)
