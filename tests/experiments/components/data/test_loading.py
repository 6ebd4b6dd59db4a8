"""Who loads batches changes none of them, nor their order, nor what is said of bad rows; threads end, and load only so far ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from traceback import clear_frames
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from experiments.components.data.loading import load
from experiments.components.data.packing import KEPT_TOKENS, Packed
from experiments.components.data.pairs import PairParameters, Pairs
from experiments.components.data.parquet import BatchIndices, Rows, read_index
from experiments.components.workload import Batch, Context, DataError
from experiments.datasets import scenes
from experiments.parameters import TrainingParameters
from experiments.trial import DataSource

KINDS: list[dict[str, Any]] = [{"dataloader_workers": 2}, *({"loader": "threads", "dataloader_workers": n} for n in (1, 3))]


def context(parameters: TrainingParameters, data: DataSource | None = None, rank: int = 0, world: int = 1) -> Context:
    return Context(parameters, data, "cpu", rank, world, int(parameters.batch_size))


def threaded(items: Any, order: Iterator[Any], workers: int = 2, prefetch_factor: int = 3) -> Iterator[Batch]:
    parameters = TrainingParameters(loader="threads", dataloader_workers=workers, prefetch_factor=prefetch_factor)
    return cast("Iterator[Batch]", load(items, order, context(parameters)))


def loaders() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")]


class Items:
    """A batch of its own index; `broken` ones raise."""

    def __init__(self, *broken: int) -> None:
        self.broken = broken

    def __getitem__(self, index: int) -> Batch:
        if index in self.broken:
            raise DataError(f"train.parquet row {index}: no caption")
        return {"index": torch.tensor([index])}


def numbers(batches: Iterator[Batch], most: int | None = None) -> list[int]:
    return [int(batch["index"]) for batch in islice(batches, most)]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 training rows in two row groups, of which one has no image, one half of one."""
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=96, validation_rows=16, seed=0, max_size=96)
    table = pq.read_table(folder / "train.parquet")
    images = table["image"].to_pylist()
    images[17]["bytes"], images[80]["bytes"] = b"", images[80]["bytes"][: len(images[80]["bytes"]) // 2]
    pq.write_table(table.set_column(0, "image", pa.array(images, table.schema[0].type)), folder / "train.parquet", row_group_size=48)
    return folder


def pairs(drawn: Path, rank: int = 0, **parameters: Any) -> tuple[list[Batch], list[str]]:
    """The batches of an epoch and a half on one of two ranks, and what was noted meanwhile."""
    notes: list[str] = []
    chosen = PairParameters(batch_size=8, **parameters)
    data = DataSource(uri=str(drawn), fingerprint="f", tokenizer=str(drawn / "tokenizer"))
    both = Pairs(Context(chosen, data, "cpu", rank, 2, 8, notes.append), 24)
    items = both.dataset(both.train, both.tokenizer(), 48, augment=chosen.augment)
    return list(islice(both.batches(items, both.train_indices()), 9)), notes


def same(left: list[Batch], right: list[Batch]) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
        for one, other in zip(left, right, strict=True)
    )


@pytest.mark.parametrize(("rank", "augment"), [(0, True), (1, True), (0, False)])
def test_images_and_captions_are_the_same_bit_by_bit_whoever_loads_them(drawn: Path, rank: int, augment: bool) -> None:
    alone, notes = pairs(drawn, rank, augment=augment, seed=3)
    for kind in KINDS:
        found, said = pairs(drawn, rank, augment=augment, seed=3, **kind)
        assert same(found, alone), kind
        assert said == notes, kind
    assert rank or ("row 17: no image bytes" in "".join(notes) and "row 80: cannot be decoded" in "".join(notes))
    assert not same(pairs(drawn, 1 - rank, augment=augment, seed=3)[0], alone)
    assert not same(pairs(drawn, rank, augment=augment, seed=4)[0], alone)


def test_documents_that_threads_share_are_encoded_as_one_would_and_counted_once() -> None:
    texts = [chr(ord("a") + row) * (3 + row % 7) for row in range(26)]
    rows = SimpleNamespace(columns=("text", "text"), read=lambda row: (texts[row], texts[row]), name=str)
    rows_type = type("Texts", (SimpleNamespace,), {"__len__": lambda self: len(texts)})

    def packed() -> Packed:
        split: Any = None
        tokenizer = SimpleNamespace(no_padding=int, no_truncation=int, encode=lambda text: SimpleNamespace(ids=[*map(ord, text), 0]))
        return Packed(split, rows_type(**vars(rows)), 40, tokenizer, block=True)

    def batches(items: Packed, **parameters: Any) -> list[Batch]:
        order = (BatchIndices((number % 26, (number + 5) % 26), (), number) for number in count())
        one = islice(load(items, order, context(TrainingParameters(**parameters))), 40)
        return [{name: value for name, value in batch.items() if isinstance(value, torch.Tensor)} for batch in one]

    shared = packed()
    assert same(batches(shared, loader="threads", dataloader_workers=4), batches(packed()))
    assert shared._room == KEPT_TOKENS - sum(len(ids) for ids in shared._kept.values())


def test_a_row_group_that_threads_want_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": [f"text {row}" for row in range(64)]}), tmp_path / "train.parquet", row_group_size=32)
    rows = Rows(read_index([tmp_path / "train.parquet"], ("a", "a")), "a", "a")
    read, loaded = list[int](), Rows._load
    monkeypatch.setattr(Rows, "_load", lambda self, group: (read.append(group.group), loaded(self, group))[1])

    class Texts:
        def __getitem__(self, row: int) -> Batch:
            return {"text": rows.read(row)[0]}

    found = [batch["text"] for batch in threaded(Texts(), iter(range(64)), workers=8)]
    assert found == [f"text {row}" for row in range(64)] and sorted(read) == [0, 1]


def test_a_batch_that_is_loaded_first_waits_for_those_before_it() -> None:
    second = threading.Event()

    class Turns:
        def __getitem__(self, index: int) -> Batch:
            second.wait(60) if index == 0 else second.set()
            return {"index": torch.tensor([index])}

    assert numbers(threaded(Turns(), iter(range(6)))) == [0, 1, 2, 3, 4, 5]


def test_no_more_is_loaded_ahead_than_processes_would() -> None:
    taken = list[int]()
    batches = threaded(Items(), (taken.append(number) or number for number in count()), workers=2, prefetch_factor=3)  # type: ignore[func-returns-value]
    assert taken == []
    for consumed in range(1, 5):
        next(batches)
        assert len(taken) == 2 * 3 + consumed, "as torch's DataLoader: six, and one more for each that was taken"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_with_a_row_is_said_where_its_batch_would_come(kind: dict[str, Any]) -> None:
    batches = iter(load(Items(3), count(), context(TrainingParameters(**kind))))
    assert numbers(batches, 3) == [0, 1, 2]
    with pytest.raises(DataError, match=r"train\.parquet row 3: no caption") as caught:
        next(batches)
    clear_frames(caught.tb)
    del batches  # its processes end now; left to a garbage collection, it would wait 5 s for each


def test_threads_end_with_the_batches_and_what_waited_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, begun, shutdown = threading.Event(), list[int](), ThreadPoolExecutor.shutdown

    class Gated:
        def __getitem__(self, index: int) -> Batch:
            begun.append(index)
            assert index == 0 or gate.wait(60)
            return {"index": torch.tensor([index])}

    def opened_on_the_way(pool: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        shutdown(pool, wait=False, cancel_futures=cancel_futures)
        gate.set()
        shutdown(pool, wait=wait)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", opened_on_the_way)
    batches = threaded(Gated(), count(), workers=2, prefetch_factor=8)
    assert numbers(batches, 1) == [0] and len(loaders()) == 2
    batches.close()  # type: ignore[attr-defined]  # of a generator
    assert not loaders() and set(begun) <= {0, 1, 2}, "the two that had begun are finished, the other fourteen are not begun"


def test_threads_end_where_a_batch_failed_and_where_batches_are_dropped() -> None:
    with pytest.raises(DataError):
        numbers(threaded(Items(2), count()))
    assert not loaders()
    batches = threaded(Items(), count())
    next(batches)
    del batches
    assert not loaders()


def test_loading_threads_compute_on_one_core_and_leave_the_training_threads_alone() -> None:
    class Counts:
        def __getitem__(self, index: int) -> Batch:
            return {"threads": torch.get_num_threads()}

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert [batch["threads"] for batch in threaded(Counts(), iter(range(4)))] == [1, 1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
