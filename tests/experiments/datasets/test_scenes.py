"""The drawn data set: the same bytes from the same seed, real JPEGs, captions that tell scenes apart, never half a file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tokenizers import Tokenizer

from experiments.datasets import scenes

ROWS = {"rows": 40, "validation_rows": 16, "seed": 3}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, **ROWS)
    return folder


def test_files_rows_and_columns(drawn: Path) -> None:
    assert sorted(path.name for path in drawn.iterdir()) == ["tokenizer", "train.parquet", "validation.parquet"]
    for split, rows in (("train", 40), ("validation", 16)):
        table = pq.read_table(drawn / f"{split}.parquet")
        assert table.column_names == ["image", "image_description"] and table.num_rows == rows
        sizes = set()
        for value in table["image"].to_pylist():
            image = Image.open(io.BytesIO(value["bytes"]))
            image.load()
            assert image.format == "JPEG" and min(image.size) >= 96 and max(image.size) <= 512
            sizes.add(image.size)
        assert len(sizes) > rows * 0.9, "sizes vary"


def test_the_same_arguments_draw_the_same_bytes_and_another_seed_others(drawn: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    scenes.build(again, **ROWS)
    scenes.build(other, **{**ROWS, "seed": 4})
    for name in ("train.parquet", "validation.parquet", "tokenizer/tokenizer.json"):
        assert (again / name).read_bytes() == (drawn / name).read_bytes()
    assert (other / "train.parquet").read_bytes() != (drawn / "train.parquet").read_bytes()


def test_the_fingerprint_changes_with_every_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    base = scenes.fingerprint(**ROWS)
    assert base == scenes.fingerprint(**ROWS, min_size=96, max_size=512)
    others = {scenes.fingerprint(**{**ROWS, name: value + 1}) for name, value in ROWS.items()}
    others |= {scenes.fingerprint(**ROWS, max_size=300), scenes.fingerprint(**ROWS, min_size=90)}
    monkeypatch.setattr(scenes, "GENERATOR", scenes.GENERATOR + 1)
    others.add(scenes.fingerprint(**ROWS))
    assert len(others) == 6 and base not in others


def test_captions_are_distinct_and_train_and_held_out_do_not_overlap() -> None:
    train = [scenes.scene(0, "train", row).caption for row in range(2000)]
    held_out = [scenes.scene(0, "validation", row).caption for row in range(200)]
    assert len(set(train)) > 0.99 * len(train)
    assert not set(train) & set(held_out)


def test_a_caption_tells_what_the_image_shows() -> None:
    """The first group lies where the caption says: its colour dominates that half's shapes."""
    checked = 0
    for row in range(60):
        scene = scenes.scene(1, "train", row)
        pixels = scenes.draw(scene, row).resize((64, 64), Image.Resampling.NEAREST)
        half = {"left of": (0, 0, 32, 64), "right of": (32, 0, 64, 64), "above": (0, 0, 64, 32), "below": (0, 32, 64, 64)}[scene.relation]
        first, second = (_near(pixels.crop(half), scenes.COLOURS[group.colour]) for group in (scene.first, scene.second))
        assert first > second, scene.caption
        checked += 1
    assert checked == 60


def test_the_tokenizer_knows_every_text(drawn: Path) -> None:
    tokenizer = Tokenizer.from_file(str(drawn / "tokenizer" / "tokenizer.json"))
    assert [tokenizer.token_to_id(token) for token in scenes.SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    caption = scenes.scene(9, "validation", 5).caption
    encoding = tokenizer.encode(caption)
    assert encoding.ids[0] == 0 and encoding.ids[-1] == 2 and len(encoding.ids) < 24
    assert tokenizer.decode(encoding.ids).strip() == caption
    assert 3 not in tokenizer.encode("Ünknown ☃ words").ids


def test_a_failure_leaves_no_half_file_and_no_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(scene: scenes.Scene, seed: int) -> bytes:
        calls.append(scene)
        if len(calls) > 45:
            raise OSError("pretended")
        return b"not really a JPEG"

    monkeypatch.setattr(scenes, "_jpeg", fail)
    with pytest.raises(OSError, match="pretended"):
        scenes.build(tmp_path, **ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]
    assert pq.read_table(tmp_path / "train.parquet").num_rows == 40


def test_impossible_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot generate"):
        scenes.build(tmp_path / "x", rows=0, validation_rows=1, seed=0)
    assert not (tmp_path / "x").exists()


def _near(image: Image.Image, colour: scenes.Colour) -> int:
    """Pixels within 30 of a colour in every channel."""
    return int((abs(np.asarray(image, int) - colour) < 30).all(axis=2).sum())
