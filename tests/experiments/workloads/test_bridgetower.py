"""BridgeTower: the published sizes, a golden loss, learning, and data that is not as it should be."""

from __future__ import annotations

import io
import math
import shutil
import struct
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.components.data.parquet import batch_indices, read_index
from experiments.components.data.staging import copy as stage
from experiments.components.layers.attention import ApartAttention
from experiments.components.workload import Batch, Context, DataError, Unsupported
from experiments.datasets import scenes
from experiments.trial import DataSource
from experiments.workloads import bridgetower
from experiments.workloads.bridgetower.model import config, recall

pytestmark = pytest.mark.usefixtures("one_thread")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHORT: dict[str, Any] = {"model": "tiny", "text_length": 24, "batch_size": 16, "evaluation_samples": 64, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=256, validation_rows=64, seed=0, max_size=160)
    return folder


def workload(folder: Path, notes: list[str] | None = None, rank: int = 0, world: int = 1, **changes: Any) -> bridgetower.BridgeTower:
    parameters = bridgetower.Parameters(**{**SHORT, **changes})
    data = DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))
    note = notes.append if notes is not None else (lambda text: None)
    return bridgetower.build(Context(parameters, data, "cpu", rank, world, int(parameters.batch_size), note))


@pytest.mark.parametrize(("size", "count"), [("large", 866_612_737), ("base", 327_921_409)])
def test_parameter_counts_are_the_published_models(size: str, count: int) -> None:
    from transformers import BridgeTowerForContrastiveLearning

    with torch.device("meta"):
        model = BridgeTowerForContrastiveLearning(config(bridgetower.Parameters(model=size)))  # type: ignore[arg-type]
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_the_first_losses_are_the_golden_ones(drawn: Path) -> None:
    """A refactor changes nothing: model, initial weights, data order, augmentation and decoding all stand behind these."""
    one = workload(drawn)
    model = one.model()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    losses = []
    for batch in islice(one.batches(), 3):
        loss = one.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses == pytest.approx(GOLDEN, abs=0.02)


def test_held_out_loss_falls_clearly_below_chance_in_the_smoke_profiles_steps(drawn: Path) -> None:
    one = workload(drawn)
    model = one.model()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    before = evaluate(one, model)
    for step, batch in enumerate(islice(one.batches(), 60)):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - step / 60)
        one.loss(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    after = evaluate(one, model)
    assert before["chance_loss"] == pytest.approx(math.log(16))
    assert before["loss"] > 0.95 * before["chance_loss"]
    assert after["loss"] < 0.75 * after["chance_loss"]
    assert after["recall_at_5"] > 2 * 5 / after["retrieval_pool"]
    assert after["retrieval_pool"] == 64


@pytest.mark.parametrize(
    ("scores", "first", "two"),
    [
        ([[9, 1, 2], [3, 2, 1], [5, 6, 4]], 1 / 3, 2 / 3),  # own images are nearest, second and third
        ([[1, 1, 1]] * 3, 1 / 3, 2 / 3),  # all alike: by chance
        ([[2, 2, 1], [1, 2, 3], [1, 1, 2]], (1 / 2 + 0 + 1) / 3, 1.0),
        ([[math.nan] * 3] * 3, 0.0, 0.0),
        ([[1, math.nan, 0], [0, 1, 0], [0, 0, 1]], 2 / 3, 1.0),
    ],
)
def test_recall_counts_what_is_as_near_by_chance_and_what_is_no_number_against_it(
    scores: list[list[float]], first: float, two: float
) -> None:
    table = torch.tensor(scores, dtype=torch.float32)
    assert (recall(table, 1), recall(table, 2)) == (pytest.approx(first), pytest.approx(two))


def evaluate(one: bridgetower.BridgeTower, model: torch.nn.Module) -> dict[str, float]:
    model.eval()
    metrics = one.evaluate(model, lambda batch: batch)
    model.train()
    return metrics


def test_sdpa_computes_what_eager_does(drawn: Path) -> None:
    """Also in the cross-modal image layers, which have no mask and are marked causal in transformers."""
    losses = {}
    for attention in ("eager", "sdpa"):
        one = workload(drawn, attention=attention)
        model: Any = one.model()
        named = "sweepbench_bridgetower_" + {"eager": "eager", "sdpa": "fused"}[attention]
        assert model.config.text_config._attn_implementation == named
        losses[attention] = one.loss(model, next(one.batches())).item()
    assert losses["sdpa"] == pytest.approx(losses["eager"], rel=1e-5)


def test_views_of_the_projections_compute_what_copies_do_with_the_same_weights(drawn: Path) -> None:
    found = {}
    for qkv in ("copied", "views"):
        one = workload(drawn, attention="sdpa", qkv=qkv)
        model: Any = one.model()
        block = model.bridgetower.vision_model.visual.transformer.resblocks[0]
        assert type(block.attn) is {"copied": torch.nn.MultiheadAttention, "views": ApartAttention}[qkv]
        loss = one.loss(model, next(one.batches()))
        loss.backward()  # type: ignore[no-untyped-call]
        found[qkv] = [loss.detach(), block.attn.out_proj.weight.grad, block.mlp["c_fc"].weight.grad]
    for views, copied in zip(found["views"], found["copied"], strict=True):
        torch.testing.assert_close(views, copied, rtol=1e-4, atol=1e-6)


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that hand a tensor's value to the host: on a GPU, each waits until the device has caught up."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(name in str(function) for name in ("_local_scalar_dense", "is_nonzero", "nonzero", "item")):
            self.found.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_step_never_makes_the_host_wait(drawn: Path, attention: str) -> None:
    one = workload(drawn, attention=attention)
    model, batch = one.model(), None
    for batch in islice(one.batches(), 1):
        with HostReads() as reads:
            one.loss(model, batch).backward()  # type: ignore[no-untyped-call]
    assert batch is not None and reads.found == []
    with HostReads() as reads:
        torch.ones(1).item()
    assert reads.found, "the test can fail"


def test_every_trained_parameter_gets_a_gradient(drawn: Path) -> None:
    """DDP waits for each: only the frozen text pooler has none."""
    one = workload(drawn)
    model = one.model()
    one.loss(model, next(one.batches())).backward()  # type: ignore[no-untyped-call]
    without = {name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None}
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert without == set()
    assert frozen == {f"bridgetower.text_model.pooler.dense.{part}" for part in ("weight", "bias")}
    assert workload(drawn, freeze_text_pooler=False).find_unused_parameters


def test_weights_come_back_from_a_folder(drawn: Path, tmp_path: Path) -> None:
    one = workload(drawn)
    model: Any = one.model()
    model.save_pretrained(tmp_path / "saved")
    shutil.copy(drawn / "tokenizer" / "tokenizer.json", tmp_path / "saved")
    again = workload(drawn, weights=str(tmp_path / "saved"), seed=5, attention="sdpa")
    loaded = again.model()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_a_pickled_checkpoint_is_refused(drawn: Path, tmp_path: Path) -> None:
    model: Any = workload(drawn).model()
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match=f"weights {tmp_path}: .*safetensors are read"):
        workload(drawn, weights=str(tmp_path)).model()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"weights": "BridgeTower/bridgetower-large-itm-mlm-itc"}, "40 hex digits"),
        ({"weights": "BridgeTower/bridgetower-large-itm-mlm-itc", "revision": "main"}, "40 hex digits"),
        ({"revision": COMMIT}, "only for weights"),
        ({"dataset": "hf://datasets/jmhessel/newyorker_caption_contest/matching"}, "COMMIT"),
        ({"trust_remote_code": True}, "trust_remote_code"),
        ({"steps": "60"}, "steps"),
    ],
)
def test_parameters_that_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        bridgetower.Parameters(**changes)


def test_pinned_hub_names_are_accepted() -> None:
    bridgetower.Parameters(weights="BridgeTower/bridgetower-base", revision=COMMIT, dataset=f"hf://datasets/jmhessel/x@{COMMIT}/matching")


def test_the_schema_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from experiments.workloads import bridgetower, synthetic\n"
        "assert 'dataloader_workers' in bridgetower.Parameters.model_json_schema()['properties']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_order_is_the_seeds_and_ranks_share_it(drawn: Path) -> None:
    groups = read_index([drawn / "train.parquet"], scenes.COLUMNS, ("image", "text"))
    alone = [indices.rows for indices in islice(batch_indices(groups, batch=16, rank=0, world=1, seed=7), 16)]
    assert sorted(row for rows in alone for row in rows) == list(range(256)), "an epoch visits every row once"
    ranks = [[indices.rows for indices in islice(batch_indices(groups, batch=8, rank=rank, world=2, seed=7), 16)] for rank in (0, 1)]
    assert [first + second for first, second in zip(*ranks, strict=True)] == alone
    other = [indices.rows for indices in islice(batch_indices(groups, batch=16, rank=0, world=1, seed=8), 16)]
    assert other != alone


def test_loader_processes_change_nothing_in_the_batches(drawn: Path) -> None:
    def first(workers: int) -> list[Batch]:
        one = workload(drawn, dataloader_workers=workers)
        one.model()
        return list(islice(one.batches(), 4))

    for left, right in zip(first(0), first(2), strict=True):
        assert left.keys() == right.keys() == {"input_ids", "attention_mask", "pixels"}
        for name in left:
            assert torch.equal(left[name], right[name])
    assert left["pixels"].shape == (16, 64, 64, 3) and left["pixels"].dtype == torch.uint8
    assert left["input_ids"].shape == (16, 24)


def damaged(drawn: Path, folder: Path, damage: dict[int, Any]) -> Path:
    """A copy of the drawn set in which some training rows have other image bytes."""
    folder.mkdir()
    shutil.copytree(drawn / "tokenizer", folder / "tokenizer")
    shutil.copy(drawn / "validation.parquet", folder)
    table = pq.read_table(drawn / "train.parquet")
    images = table["image"].to_pylist()
    for row, change in damage.items():
        images[row]["bytes"] = change(images[row]["bytes"])
    pq.write_table(table.set_column(0, "image", pa.array(images, table.schema[0].type)), folder / "train.parquet", row_group_size=64)
    return folder


def test_corrupt_rows_are_named_skipped_and_counted(drawn: Path, tmp_path: Path) -> None:
    folder = damaged(drawn, tmp_path / "d", {17: lambda data: data[: len(data) // 2], 200: lambda data: b"", 30: lambda data: b"no image"})
    notes: list[str] = []
    one = workload(folder, notes)
    one.model()
    for batch in islice(one.batches(), 40):  # two and a half epochs: each row is met more than once
        assert len(batch["pixels"]) == 16, "the batch stays whole"
    text = "\n".join(notes)
    assert len(notes) == 3 and len(one.pairs.corrupt) == 3, text
    for row in (17, 200, 30):
        assert f"train.parquet row {row}:" in text


def test_too_many_corrupt_rows_end_the_trial_and_name_them(drawn: Path, tmp_path: Path) -> None:
    rows = range(0, 40, 8)
    folder = damaged(drawn, tmp_path / "d", {row: lambda data: data[:100] for row in rows})
    one = workload(folder)
    one.model()
    with pytest.raises(DataError, match=r"more than 3 of 256 rows are corrupt: .*train\.parquet row") as caught:
        for _ in islice(one.batches(), 40):
            pass
    assert sum(f"row {row}" in str(caught.value) for row in rows) == 4


def test_a_decompression_bomb_is_an_error_even_where_corrupt_rows_are_not(drawn: Path, tmp_path: Path) -> None:
    folder = damaged(drawn, tmp_path / "d", {row: lambda data: bomb() for row in range(256)})
    one = workload(folder)
    one.model()
    with pytest.raises(DataError, match=r"train\.parquet row \d+: refused to decode"):
        next(one.batches())


def bomb() -> bytes:
    """A small JPEG whose header claims 30000 x 30000 pixels."""
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16)).save(buffer, "JPEG")
    data = bytearray(buffer.getvalue())
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 30000, 30000)
    return bytes(data)


def test_half_a_parquet_file_is_named(drawn: Path, tmp_path: Path) -> None:
    folder = damaged(drawn, tmp_path / "d", {})
    path = folder / "train.parquet"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"train\.parquet is not a whole Parquet file"):
        workload(folder)


def test_missing_things_are_named(drawn: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        workload(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no train\.parquet"):
        workload(tmp_path)
    with pytest.raises(DataError, match="no column 'picture'; it has image, image_description"):
        workload(drawn, image_column="picture")
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        parameters = bridgetower.Parameters(**SHORT)
        bridgetower.build(Context(parameters, DataSource(uri=str(drawn), fingerprint="f", tokenizer=None), "cpu", 0, 1, 16)).model()
    with pytest.raises(Unsupported, match="image_decode device"):
        workload(drawn, image_decode="device")


def test_remote_files_are_staged_once_and_whole(drawn: Path, tmp_path: Path) -> None:
    from pyarrow import fs

    folder = stage(fs.LocalFileSystem(), str(drawn), ("train", "validation"), tmp_path / "cache")
    names = sorted(path.name for path in folder.glob("*.parquet"))
    assert names == ["train.parquet", "validation.parquet"]
    assert (folder / "train.parquet").read_bytes() == (drawn / "train.parquet").read_bytes()
    before = (folder / "train.parquet").stat().st_mtime_ns
    stage(fs.LocalFileSystem(), str(drawn), ("train", "validation"), tmp_path / "cache")
    assert (folder / "train.parquet").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="cannot be listed"):
        stage(fs.LocalFileSystem(), str(tmp_path / "nowhere"), ("train",), tmp_path / "other")


GOLDEN = [2.9649, 3.3670, 2.8078]
