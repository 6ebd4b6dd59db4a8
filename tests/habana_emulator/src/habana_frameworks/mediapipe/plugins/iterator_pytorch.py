"""Batches of a media pipe as tensors that are born on the device."""

from typing import Any

import numpy as np
import torch
from habana_frameworks.torch import hpu

_AS = {"uint32": torch.int32, "uint64": torch.int64, "uint16": torch.int16}  # torch has no unsigned types of these sizes


class HPUGenericPytorchIterator:
    def __init__(self, mediapipe: Any) -> None:
        hpu.init()
        self.pipe = mediapipe
        mediapipe.build()

    def __len__(self) -> int:
        return len(self.pipe)

    def __iter__(self) -> Any:
        self.pipe.iter_init()
        return self

    def __next__(self) -> Any:
        return [_tensor(np.ascontiguousarray(array)) for array in self.pipe.run()]


def _tensor(array: Any) -> Any:
    kind = _AS.get(array.dtype.name)
    return (torch.from_numpy(array.astype("int64")).to(kind) if kind else torch.from_numpy(array)).to("hpu")
