"""Images with classes from Parquet, synthetic or the user's own: what workloads that classify images share."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from experiments.components.data.splits import FOLDER, RowParameters, Splits
from experiments.components.workload import Batch, Context, DataError
from experiments.datasets.columns import Holds

if TYPE_CHECKING:
    import torch

    from experiments.components.data.parquet import BatchIndices


class ClassParameters(RowParameters):
    """Where the images come from."""

    same_work: ClassVar[tuple[str, ...]] = ("dataset",)
    columns: ClassVar[Mapping[str, Holds]] = {"image_column": "image", "label_column": "label"}

    dataset: str | None = Field("drawn-classes", description=f"drawn-classes (synthetic images of shapes), {FOLDER}")
    image_column: str = Field("image", description="column of encoded images: bytes, or struct{bytes, path}")
    label_column: str = Field("label", description="column of class numbers, or of their names in your own data")
    augment: bool = Field(True, description="random crop of 80 to 100 % of each side")


class Classes(Splits):
    """Both splits of the trial's data set, as images and the numbers of their classes. `count`: classes.

    Raises DataError as Splits does, and for class numbers that are missing or below 0.
    """

    parameters: ClassParameters

    def __init__(self, context: Context) -> None:
        super().__init__(context, (context.parameters.image_column, context.parameters.label_column), ("image", "label"))
        self.count = 1 + max(self.largest(rows) for rows in (self.train, self.held_out))

    def largest(self, rows: Any) -> int:
        """The largest class number of a split."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        column, most = self.parameters.label_column, 0
        for path in dict.fromkeys(group.path for group in rows.groups):
            numbers = pq.read_table(path, columns=[column]).column(column)
            least = pc.min(numbers).as_py()
            if numbers.null_count or (least is not None and least < 0):
                raise DataError(f"{path}: column {column!r} has rows without a class number of at least 0")
            most = max(most, pc.max(numbers).as_py() or 0)
        return most

    def dataset(self, rows: Any, size: int, *, augment: bool | None = None) -> LabelledImages:
        """The images of `rows`, one of the two splits, as squares of `size` pixels; augmented as the parameter says unless told here."""
        return LabelledImages(rows, size, augment=self.parameters.augment if augment is None else augment)

    def evaluate(self, logits: Callable[[Batch], torch.Tensor], size: int, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """`loss`, `accuracy` (0 to 1) and `chance_loss` on the held-out rows. `logits`: of a batch, (batch, classes)."""
        from torch.nn import functional

        losses, right, seen = [], 0, 0
        for host in self.held_out_batches(self.dataset(self.held_out, size, augment=False)):
            batch = place(host)
            scores, classes = logits(batch).float(), batch["classes"]
            losses.append(float(functional.cross_entropy(scores, classes)))
            right, seen = right + int((scores.argmax(dim=1) == classes).sum()), seen + len(classes)
        return {"loss": sum(losses) / len(losses), "accuracy": right / seen, "chance_loss": math.log(max(2, self.count))}


class LabelledImages:
    """BatchIndices -> images uint8 (batch, size, size, 3), classes (batch,), corrupt [(row, name, why)], on the host."""

    def __init__(self, rows: Any, size: int, *, augment: bool) -> None:
        self.rows, self.size, self.augment = rows, size, augment

    def __getitem__(self, indices: BatchIndices) -> Batch:
        """A spare row takes the place of a corrupt one. Raises DataError if there are too few."""
        import numpy as np
        import torch

        from experiments.components.data.images import decode
        from experiments.components.data.parquet import CorruptRow

        draw = random.Random(indices.seed) if self.augment else None
        images, classes, corrupt = list[Any](), list[int](), list[tuple[int, str, str]]()
        for row in (*indices.rows, *indices.spare):
            if len(images) == len(indices.rows):
                break
            try:
                data, label = self.rows.read(row)
                image = decode(data, self.size, draw)
            except CorruptRow as error:
                corrupt.append((row, self.rows.name(row), str(error)))
                continue
            except DataError as error:
                raise DataError(f"{self.rows.name(row)}: {error}") from error
            images.append(image)
            classes.append(label)
        if len(images) < len(indices.rows):
            raise DataError("a batch ran out of readable rows; corrupt: " + ", ".join(f"{name} ({why})" for _, name, why in corrupt))
        return {"images": torch.from_numpy(np.stack(images)), "classes": torch.tensor(classes), "corrupt": corrupt}
