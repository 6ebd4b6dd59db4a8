"""Parts of a model as CUDA graphs, for a workload whose step calls them many times: each is recorded once for each kind of input.

What is recorded may be compiled: a replay then launches its kernels. What a graph asks of a part (docs.pytorch.org, CUDA Graphs): that its
inputs lie where they lay, so each call copies them there; that the host waits for nothing on the way; and that its output is used before
the next call, which writes over it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from experiments.components.layers import cuda_graphs
from experiments.components.layers.autocast import weights_cast_anew
from experiments.components.layers.cuda_graphs import Replay
from experiments.components.workload import Unsupported

WARM_UP = 3  # calls before one is recorded, as torch asks for: they compile, and set up the libraries' memory

HOST = "cpu"  # torch's name


class _Recording(NamedTuple):
    inputs: list[torch.Tensor]  # where a replay reads
    output: Any  # where it writes
    replay: Replay


class Recorded:
    """A function, such as a module's forward pass, by CUDA graphs: one for each kind of input, recorded at the first call of its kind.

    A kind is the tensors' shapes and types, and all other arguments' values. Outside of inference mode, as where held-out metrics are
    computed, nothing is recorded, nor after `leave_out`. Raises Unsupported for a tensor on the host.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward
        self._recordings: dict[tuple[object, ...], _Recording] = {}
        self._recording = True

    def leave_out(self) -> None:
        """From now on calls run without a graph. What was recorded is released, with its memory."""
        self._recording = False
        self._recordings.clear()

    def __call__(self, *given: Any, **named: Any) -> Any:
        if not self._recording or not torch.is_inference_mode_enabled():
            return self.forward(*given, **named)
        values = (*given, *named.values())
        kind = (len(given), *named, *((value.shape, value.dtype) if isinstance(value, torch.Tensor) else value for value in values))
        if (recording := self._recordings.get(kind)) is None:
            recording = self._recordings[kind] = self._record(given, named)
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        for place, value in zip(recording.inputs, tensors, strict=True):
            place.copy_(value)
        recording.replay()
        return recording.output

    def _record(self, given: tuple[Any, ...], named: dict[str, Any]) -> _Recording:
        inputs: list[torch.Tensor] = []

        def placed(name: object, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if value.device.type == HOST:
                raise Unsupported(f"cuda_graph: argument {name} of the forward pass lies on the host, where no graph can read it")
            inputs.append(value.clone())
            return inputs[-1]

        places = [placed(at, value) for at, value in enumerate(given)]
        named_places = {name: placed(name, value) for name, value in named.items()}
        with weights_cast_anew():  # a graph would read what autocast has kept from where it lay
            replay, output = record(lambda: self.forward(*places, **named_places))
        return _Recording(inputs, output, replay)


def record(call: Callable[[], Any]) -> tuple[Replay, Any]:
    """Record what a call launches: what replays it, and its output, which each replay writes anew."""
    with cuda_graphs.beside(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        for _ in range(WARM_UP):
            call()
    return cuda_graphs.recorded(call)
