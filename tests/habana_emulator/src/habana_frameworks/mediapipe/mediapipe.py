"""MediaPipe: a graph of nodes, run once a batch."""

from abc import ABC, abstractmethod
from typing import Any


class MediaPipe(ABC):
    @abstractmethod
    def __init__(
        self, device: Any = None, prefetch_depth: int = 2, batch_size: int = 1, num_threads: int = 1, pipe_name: str | None = None
    ) -> None:
        self._batch_size, self._outputs = batch_size, None

    @abstractmethod
    def definegraph(self) -> Any: ...

    def getBatchSize(self) -> int:
        return self._batch_size

    def build(self) -> None:
        if self._outputs is None:
            self._outputs = list(self.definegraph())
            self._reader = self._outputs[0].reader
            self._files = self._reader.open(self._batch_size)

    def iter_init(self) -> None:
        self._iterator = iter(self._files)

    def run(self) -> list[Any]:
        assert self._outputs is not None
        batch = {self._reader: next(self._iterator)}
        return [node(batch) for node in self._outputs]

    def __len__(self) -> int:
        return len(self._files)
