"""Decoding on the device: what it gives, when it is not to be had, and that either is said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cluster.journal.journal import Journal
from tests.gaudi_support import HABANA, PAIRS, losses, make_trial, run_here

PIPE: dict[str, Any] = {**PAIRS, "image_decode": "device", "export_images": True, "augment": False}


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("SWEEPBENCH_CACHE", str(folder))
    return folder


def run(folder: Path, drawn: Path, **changes: Any) -> Journal:
    return run_here(folder, "bridgetower", drawn, **{**PIPE, **changes})


def test_the_device_decodes_what_the_dataloader_would(drawn: Path, tmp_path: Path) -> None:
    from habana_frameworks.mediapipe.fn import ImageDecoder

    on_host = losses(run(tmp_path / "host", drawn, image_decode="cpu"))
    for workers in (0, 1, 2):
        before = ImageDecoder.decoded
        journal = run(tmp_path / str(workers), drawn, dataloader_workers=workers)
        assert ImageDecoder.decoded >= before + 6 * 8
        assert journal.environment["media_pipe"] == "used"
        assert not [note for note in journal.notes if "media pipe" in note["text"]]
        # the same rows in the same order, resized from the whole JPEG instead of an eighth-scaled draft of it
        assert losses(journal) == pytest.approx(on_host, rel=1e-3)


def test_batches_are_born_on_the_device_and_normalised(drawn: Path, tmp_path: Path) -> None:
    from cluster.devices import load
    from experiments.components.workload import Context
    from experiments.workloads import bridgetower
    from tests.gaudi_support import mode

    def first(**changes: Any) -> Any:
        trial = make_trial("bridgetower", drawn, **{**PIPE, **changes})
        parameters = bridgetower.Parameters.model_validate(trial.parameters)
        one = bridgetower.build(Context(parameters, trial.data, "hpu", 0, 1, 8))
        one.model()
        return next(iter(one.batches()))

    with mode(lazy=True):
        load("hpu")
        batch, plain, augmented = first(), first(image_decode="cpu"), first(augment=True)
    assert {name: value.device.type for name, value in batch.items()} == dict.fromkeys(batch, "hpu")
    assert batch["pixel_values"].shape == (8, 3, 64, 64) and batch["input_ids"].dtype == torch.int64
    assert torch.equal(batch["input_ids"].cpu(), plain["input_ids"])
    from experiments.workloads.bridgetower.model import inputs

    expected = inputs(plain, "eager")["pixel_values"]
    assert (batch["pixel_values"].cpu() - expected).abs().mean() < 0.05
    assert (augmented["pixel_values"].cpu() - expected).abs().mean() > 0.1, "a crop"


def test_bytes_in_parquet_are_a_recorded_fallback(drawn: Path, tmp_path: Path) -> None:
    from habana_frameworks.mediapipe.fn import ImageDecoder

    before = ImageDecoder.decoded
    journal = run(tmp_path / "fallback", drawn, export_images=False)
    assert ImageDecoder.decoded == before
    assert journal.environment["media_pipe"].startswith("fallback: it reads files")
    assert any("media pipe not used" in note["text"] for note in journal.notes)
    assert losses(journal) == losses(run(tmp_path / "host", drawn, image_decode="cpu"))


def test_a_pipe_that_cannot_be_made_is_a_recorded_fallback(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "habana_frameworks.mediapipe.mediapipe", None)
    journal = run(tmp_path, drawn)
    assert journal.environment["media_pipe"].startswith("fallback: import of habana_frameworks.mediapipe.mediapipe")
    assert len(journal.steps) == 6


def test_the_real_pipe_would_refuse_bytes_without_a_word(drawn: Path) -> None:
    """The trap behind the fallback: what is no file on disk fails where the pipe sizes its buffers."""
    from habana_frameworks.mediapipe.operators.reader_nodes.read_image_from_dir import get_max_file

    with pytest.raises(OSError):
        get_max_file(["train.parquet row 0"])


def test_a_broken_image_gets_no_file_and_another_row_takes_its_place(drawn: Path, tmp_path: Path, _cache: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(drawn, folder)
    path = next(folder.glob("train*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[5]["image"]["bytes"] = rows[5]["image"]["bytes"][:-40]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    journal = run(tmp_path / "run", folder, steps=12)  # more than an epoch: the row comes up
    assert journal.environment["media_pipe"] == "used"
    assert [note["text"] for note in journal.notes if "row 5" in note["text"] and "cut off" in note["text"]]
    exported = next((_cache / "images").iterdir())
    assert len(list(exported.glob("*.jpg"))) == len(rows) - 1


def test_graphs_and_the_pipe_work_together(drawn: Path, tmp_path: Path) -> None:
    journal = run(tmp_path, drawn, **HABANA, hpu_graphs=True, precision="bf16")
    assert journal.environment["media_pipe"] == "used" and len(journal.steps) == 6
