"""What a folder of the user's own is: every layout, its rows in their order, and what is wrong with it by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from experiments.datasets.own.recognise import recognise, version
from experiments.datasets.own.table import ROWS_AT_ONCE, UNNAMED, OwnDataError, Table
from tests.own_data_support import captioned, classes, images, pairs, parquet, picture, save_dict, save_to_disk


def shape(table: Table) -> dict[str, tuple[int, list[str]]]:
    return {name: (part.rows, part.schema.names) for name, part in table.parts.items()}


def values(table: Table, split: str, *columns: str) -> list[tuple[object, ...]]:
    batches = list(table.parts[split].batches(columns))
    assert all(batch.schema.names == list(columns) and len(batch) <= ROWS_AT_ONCE for batch in batches)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def held(row: int, name: str) -> dict[str, object]:
    return {"bytes": picture(row), "path": name}


def test_parquet_by_the_names_of_its_files(tmp_path: Path) -> None:
    table = recognise(parquet(tmp_path / "d", **{"train-0-of-2": pairs(3), "train-1-of-2": pairs(2), "test": pairs(4), "other": pairs(9)}))
    columns = ["image", "image_description"]
    assert (table.what, shape(table)) == ("Parquet files", {"train": (5, columns), "test": (4, columns)})
    assert [path.name for path in table.parts["train"].files] == ["train-0-of-2.parquet", "train-1-of-2.parquet"]
    assert values(table, "train", "image_description")[3:] == [("picture 0, of a thing",), ("picture 1, of a thing",)]


def test_parquet_whose_names_say_nothing_is_one_part(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", a=pairs(3), b=pairs(200))
    assert shape(recognise(folder)) == {UNNAMED: (203, ["image", "image_description"])}
    assert not recognise(folder).named
    assert list(recognise(folder, ["b"]).parts) == ["b"], "a split that the user named"
    assert len(values(recognise(folder), UNNAMED, "image_description")) == 203


def test_parquet_in_the_one_folder_that_has_some(tmp_path: Path) -> None:
    parquet(tmp_path / "hub" / "data", train=pairs(3), validation=pairs(2))
    assert recognise(tmp_path / "hub").folder == tmp_path / "hub" / "data"
    parquet(tmp_path / "hub" / "more", train=pairs(3))
    with pytest.raises(OwnDataError, match=r"hub has Parquet files in several folders \(data, more\): give one of them"):
        recognise(tmp_path / "hub")


def test_parquet_that_is_cut_off_or_of_other_columns(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", **{"train-0": pairs(3), "train-1": pairs(2, caption="text")})
    with pytest.raises(OwnDataError, match=r"train-1\.parquet has other columns than train-0\.parquet: .*text \(string\)"):
        recognise(folder)
    (folder / "train-1.parquet").write_bytes((folder / "train-0.parquet").read_bytes()[:-9])
    with pytest.raises(OwnDataError, match=r"train-1\.parquet is not a whole Parquet file"):
        recognise(folder)


def test_what_save_to_disk_wrote(tmp_path: Path) -> None:
    table = recognise(save_dict(tmp_path / "dict", train=pairs(20), test=pairs(9)))
    assert table.what == "a data set of Hugging Face's save_to_disk"
    assert shape(table) == {"train": (20, ["image", "image_description"]), "test": (9, ["image", "image_description"])}
    assert values(table, "train", "image_description", "image")[13] == ("picture 13, of a thing", held(13, "13.png"))
    one = recognise(save_to_disk(tmp_path / "one", pairs(5)))
    assert (shape(one)[UNNAMED][0], one.parts[UNNAMED].files) == (5, ())


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("train/state.json", {"_data_files": [{"filename": "../../secret.arrow"}]}, r"\.\./secret\.arrow that it names lies outside"),
        ("train/state.json", {"_data_files": [{"filename": "gone.arrow"}]}, r"there is no file gone\.arrow"),
        ("train/state.json", {"_data_files": []}, r"names no data files"),
        ("train/state.json", {"_data_files": [{"name": "x"}]}, r"_data_files is not what save_to_disk writes"),
        ("train/state.json", {"_indices_data_files": [{"filename": "i"}]}, r"selects its rows by an index file"),
        ("dataset_dict.json", {"splits": ["../other"]}, r"the file \.\./other/state\.json that it names lies outside"),
        ("dataset_dict.json", {"splits": []}, r"names no splits"),
        ("dataset_dict.json", [], r"is not what save_to_disk writes"),
    ],
)
def test_a_saved_set_that_names_what_it_must_not(tmp_path: Path, file: str, change: object, message: str) -> None:
    folder = save_dict(tmp_path / "d", train=pairs(4))
    (tmp_path / "secret.arrow").write_bytes(b"")
    save_to_disk(tmp_path / "other", pairs(1))
    (folder / file).write_text(json.dumps(change))
    with pytest.raises(OwnDataError, match=message):
        recognise(folder)


def test_a_saved_file_that_is_cut_off(tmp_path: Path) -> None:
    folder = save_to_disk(tmp_path / "d", pairs(30))
    (file,) = folder.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(OwnDataError, match=r"\.arrow is cut off or damaged"):
        recognise(folder)
    file.write_bytes(b"no arrow")
    with pytest.raises(OwnDataError, match=r"\.arrow is not an Arrow stream file"):
        recognise(folder)


def test_a_saved_file_whose_text_is_no_text(tmp_path: Path) -> None:
    folder = save_to_disk(tmp_path / "d", pairs(3))
    (file,) = folder.glob("*.arrow")
    file.write_bytes(file.read_bytes().replace(b"picture 1, of", b"pictur\xff\xff1, of"))
    with pytest.raises(OwnDataError, match=r"\.arrow is damaged"):
        list(recognise(folder).parts[UNNAMED].batches(["image_description"]))


def test_images_with_captions_in_a_metadata_file(tmp_path: Path) -> None:
    table = recognise(captioned(tmp_path / "csv", 150))
    assert (table.what, shape(table)) == ("images with metadata.csv", {UNNAMED: (150, ["image", "text"])})
    assert values(table, UNNAMED, "text", "image")[131] == ("picture 131, of a thing", held(131, "131.png"))
    folder = images(tmp_path / "lines", ["a.png", "deep/b.png"])
    rows = [{"file_name": "deep/b.png", "text": "b", "stars": 3}, {"file_name": "a.png", "text": None, "stars": 4}]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert values(recognise(folder), UNNAMED, "image", "text", "stars") == [(held(1, "deep/b.png"), "b", 3), (held(0, "a.png"), None, 4)]


def test_images_with_a_text_beside_each(tmp_path: Path) -> None:
    folder = images(tmp_path / "d", ["a.png", "b.JPG", ".hidden.png"])
    (folder / "a.txt").write_text("an a\n")
    with pytest.raises(OwnDataError, match=r"no caption \(\.txt beside it\) for b\.JPG$"):
        recognise(folder)
    (folder / "b.txt").write_bytes(b"\xef\xbb\xbfa b")
    assert values(recognise(folder), UNNAMED, "image", "caption") == [(held(0, "a.png"), "an a"), (held(1, "b.JPG"), "a b")]
    (folder / "b.txt").write_bytes(b"\xff")
    with pytest.raises(OwnDataError, match=r"b\.txt is not UTF-8 text"):
        recognise(folder)


def test_images_in_folders_of_splits_and_of_classes(tmp_path: Path) -> None:
    classes(tmp_path / "d" / "train", 7)
    classes(tmp_path / "d" / "val", 3)
    table = recognise(tmp_path / "d")
    assert shape(table) == {"train": (7, ["image", "label"]), "val": (3, ["image", "label"])}
    assert values(table, "train", "label") == [("cat",), ("cat",), ("cat",), ("dog",), ("dog",), ("eel",), ("eel",)]
    assert table.what == "images with a folder for each class"
    (tmp_path / "d" / "metadata.csv").write_text("file_name,text\n")
    with pytest.raises(OwnDataError, match=r"metadata\.csv lies above the folders of the splits \(train, val\): put one into each"):
        recognise(tmp_path / "d")


def broken_metadata(name: str, text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (images(folder, ["a.png"]) / name).write_text(text)
        return folder

    return write


def both(folder: Path) -> Path:
    captioned(folder, 1)
    (folder / "metadata.jsonl").write_text("{}")
    return folder


def link_outside(folder: Path) -> Path:
    images(folder.parent / "elsewhere", ["a.png"])
    folder.mkdir()
    (folder / "a.png").symlink_to(folder.parent / "elsewhere" / "a.png")
    (folder / "a.txt").write_text("a")
    return folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder, r"/d does not exist; give a folder with Parquet files"),
        (lambda folder: images(folder, ["x.png"]) / "x.png", r"x\.png is a file: give the folder"),
        (parquet, r"/d holds no data that is known here; known are Parquet"),
        (lambda folder: images(folder, ["a.png", "b/c.png"]), r"images and nothing that says what they show; give metadata\.csv"),
        (both, r"has both metadata\.csv and metadata\.jsonl"),
        (link_outside, r"the file a\.png that it names lies outside"),
        (broken_metadata("metadata.csv", "file_name,text\n"), r"metadata\.csv has no rows"),
        (broken_metadata("metadata.csv", "name,text\na.png,x\n"), r"metadata\.csv, row 1: no file_name; it has name, text"),
        (broken_metadata("metadata.csv", "file_name,text\na.png,x,y\n"), r"row 1 has other columns"),
        (broken_metadata("metadata.csv", "file_name,text\n../x.png,x\n"), r"the file \.\./x\.png that it names lies outside"),
        (broken_metadata("metadata.csv", "file_name,text\n/etc/passwd,x\n"), r"the file /etc/passwd that it names lies outside"),
        (broken_metadata("metadata.csv", "file_name,text\nb.png,x\n"), r"there is no file b\.png"),
        (broken_metadata("metadata.csv", "file_name,image\na.png,x\n"), r"has a column image, which is the image itself here"),
        (broken_metadata("metadata.csv", f"file_name,text\na.png,{'x' * 200_000}\n"), r"metadata\.csv cannot be read: field larger"),
        (broken_metadata("metadata.jsonl", "{"), r"metadata\.jsonl:1 is not JSON"),
        (broken_metadata("metadata.jsonl", "[1]"), r"metadata\.jsonl:1 is not an object"),
        (broken_metadata("metadata.jsonl", "[" * 100_000), r"metadata\.jsonl:1 is not JSON"),
        (
            broken_metadata("metadata.jsonl", '{"file_name": "a.png", "n": 1}\n{"file_name": "a.png", "n": "one"}'),
            r"the values of a metadata column differ in kind",
        ),
    ],
)
def test_what_is_no_data_set_is_named(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(OwnDataError, match=message):
        recognise(make(tmp_path / "d"))


def test_an_image_that_grew_beyond_what_any_is_ends_the_reading(tmp_path: Path) -> None:
    table = recognise(captioned(tmp_path / "d", 2))
    with open(tmp_path / "d" / "001.png", "wb") as file:
        file.truncate(257 * 2**20)
    with pytest.raises(OwnDataError, match=r"001\.png is larger than 256 MiB"):
        list(table.parts[UNNAMED].batches(["image"]))


def test_a_set_counts_as_changed_by_name_size_and_time_of_its_files(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 2)
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    seen = [version(folder)]
    (folder / "README.md").write_text("no data")
    assert version(folder) == seen[0]
    os.utime(folder / "001.png", ns=(10**18, 10**18 + 1))
    seen.append(version(folder))
    (folder / "001.png").rename(folder / "002.png")
    seen.append(version(folder))
    (folder / "001.txt").write_text("")
    seen.append(version(folder))
    assert len(set(seen)) == 4


def test_columns_of_any_type_pass_a_table(tmp_path: Path) -> None:
    table = pairs(3).append_column("sizes", pa.array([[1], [2, 3], []]))
    assert values(recognise(save_to_disk(tmp_path / "d", table)), UNNAMED, "sizes") == [([1],), ([2, 3],), ([],)]
