"""Whole steps as CUDA graphs: what a step launches is recorded once for each shape of batch, and replayed with one launch from then on.

Where a step has thousands of short kernels the host cannot launch them as fast as the device runs them. A graph reads its batch, and writes
its gradients and its loss, at the addresses at which it was recorded (docs.pytorch.org, CUDA Graphs, whole-network capture). So a batch is
copied to the recorded one, the loss is copied from there, and parameters get the recorded gradients back after each replay: the update has
let go of them, so that the next backward pass writes rather than adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from experiments.components.layers import cuda_graphs
from experiments.components.layers.cuda_graphs import Replay
from experiments.components.workload import Unsupported

if TYPE_CHECKING:
    from cluster.devices import Batch

LAUNCHED = 2  # steps of each shape before its graph is recorded: compilation and allocations come first. See TrainingParameters.cuda_graph
MOST_SHAPES = 8  # that are recorded, since each holds gradients of its own; what is rare beside them is launched

Compute = Callable[..., torch.Tensor]


class Recorder(Protocol):
    """Records what is launched. `CudaRecorder`, except in tests."""

    def launch(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run once, where it will be recorded later. What is queued later waits for it."""

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[Replay, torch.Tensor]:
        """Record without running. Returns what runs it again, and where its result then lies."""


class CudaRecorder:
    """CUDA graphs that share one pool of memory, which is sound since no two of them run at once and no result outlives a step."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def launch(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """On the stream of the recording, so that what autograd keeps for a parameter belongs to that stream."""
        with cuda_graphs.beside(self._stream):
            return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> tuple[Replay, torch.Tensor]:
        return cuda_graphs.recorded(compute, self._stream, self._pool)


class _Recorded(NamedTuple):
    inputs: tuple[Batch, ...]  # where the graph reads
    replay: Replay
    result: torch.Tensor
    gradients: list[tuple[torch.nn.Parameter, torch.Tensor | None]]


class StepGraphs:
    """A step's `compute(*batches)`, recorded and replayed."""

    def __init__(self, compute: Compute, trained: Sequence[torch.nn.Parameter], recorder: Recorder | None = None) -> None:
        """`trained`: the parameters whose gradients `compute` writes."""
        self._compute, self._trained = compute, trained
        self._recorder = recorder or CudaRecorder()
        self._launches: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, _Recorded] = {}
        self._recording, self._replays = True, 0

    def leave_out(self) -> None:
        """From now on steps run without a graph. What was recorded is released, with its memory."""
        self._recording = False
        self._graphs.clear()
        for parameter in self._trained:
            parameter.grad = None  # where a graph wrote it

    @property
    def launched(self) -> int:
        """Steps so far that ran without a graph."""
        return self._launches.total()

    def __call__(self, *batches: Batch) -> torch.Tensor:
        """The step's result, in memory of its own.

        Raises Unsupported for a step that cannot be recorded, and where too many shapes leave most steps without a graph.
        """
        shape = tuple(tuple(_shape(batch)) for batch in batches)
        if (recorded := self._graphs.get(shape)) is None:
            if self._launches[shape] < LAUNCHED or not self._recording or len(self._graphs) == MOST_SHAPES:
                return self._launch(shape, batches)
            recorded = self._graphs[shape] = self._record(batches)
        else:
            for given, place in zip(batches, recorded.inputs, strict=True):
                for name, value in given.items():
                    if isinstance(value, torch.Tensor):
                        place[name].copy_(value, non_blocking=True)
        recorded.replay()
        self._replays += 1
        for parameter, gradient in recorded.gradients:
            parameter.grad = gradient
        return recorded.result.clone()

    def _launch(self, shape: Hashable, batches: tuple[Batch, ...]) -> torch.Tensor:
        self._launches[shape] += 1
        if self._recording and len(self._launches) > MOST_SHAPES and self._replays < self.launched:
            raise Unsupported(
                f"cuda_graph: batches have more than {MOST_SHAPES} shapes, each of which would be a graph, and most steps are of new ones; "
                "set cuda_graph to false, or have fewer shapes (of BERT without padding by a larger round_tokens_to)"
            )
        return self._recorder.launch(lambda: self._compute(*batches))

    def _record(self, batches: tuple[Batch, ...]) -> _Recorded:
        """With copies of these batches, over which later ones are copied."""
        for parameter in self._trained:
            parameter.grad = None  # a gradient from outside would be added to in every replay
        inputs = tuple(_copied(batch) for batch in batches)
        try:
            replay, result = self._recorder.record(lambda: self._compute(*inputs))
        except RuntimeError as error:
            cause = _first_cause(error)
            if isinstance(cause, torch.OutOfMemoryError):
                raise cause from None
            reason = str(cause).strip().splitlines()[0]
            raise Unsupported(f"cuda_graph: this step cannot be recorded ({reason}); set cuda_graph to false") from error
        return _Recorded(inputs, replay, result, [(parameter, parameter.grad) for parameter in self._trained])


def _copied(batch: Batch) -> Batch:
    return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def _shape(batch: Batch) -> Iterator[tuple[str, Hashable]]:
    """What a recorded step depends on beside the values in tensors. Raises Unsupported for what is neither a tensor nor a plain value."""
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            yield name, (tuple(value.shape), value.dtype, value.device)
        elif isinstance(value, str | int | float | bool | None):
            yield name, value
        else:
            what = type(value).__name__
            raise Unsupported(f"cuda_graph: {name} of a batch is a {what}, which no graph can be given; set cuda_graph to false")


def _first_cause(error: BaseException) -> BaseException:
    """What failed first: the end of a recording that failed is an error by itself."""
    seen: Any = error
    while seen.__context__ is not None:
        seen = seen.__context__
    return seen  # type: ignore[no-any-return]
