"""The interface between the measured loop and a workload.

A workload is a file or folder in experiments/workloads. It has `Parameters`, a TrainingParameters that is importable without torch, and
`build(context) -> Workload`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from experiments import precision as precisions
from experiments.precision import Precision
from experiments.trial import DataSource

if TYPE_CHECKING:
    import torch

Batch = dict[str, Any]  # name -> tensor (first dimension: samples), or plain data that stays on the host


class Unsupported(Exception):
    """This device, or this version of a library, cannot do what the trial asks. The trial ends as `unsupported`."""


class DataError(Exception):
    """The data set cannot be used; names the file and, where it applies, the rows. The trial ends as `crashed`."""


@dataclass(frozen=True)
class Context:
    """What a workload knows about the trial and the rank it runs on."""

    parameters: Any  # the workload's own Parameters
    data: DataSource | None
    device_kind: str
    rank: int
    world_size: int
    batch_size: int  # samples per device and micro-batch, a number even where the parameter says "max"
    note: Callable[[str], None] = field(default=lambda text: None)  # writes a line into the trial's journal
    fact: Callable[[str, str], None] = field(default=lambda name, value: None)  # adds to the trial's environment what is known only now


class Workload(Protocol):
    """A model with its data and loss, in training or inference. Everything here runs on one rank."""

    find_unused_parameters: bool  # whether DDP must look for parameters without gradient

    def model(self) -> torch.nn.Module:
        """The model in fp32 on torch's current default device, its weights a function of the seed alone.

        It reads no parameter of experiments.parameters.NOT_OF_THE_MODEL: trials that differ in these alone share a file of the weights.
        """

    def layers(self, model: torch.nn.Module) -> list[torch.nn.Module]:
        """The repeated blocks: what `compile: layer` compiles, checkpointing recomputes, and whose linear layers may be in 8 bits."""

    def batches(self) -> Iterator[Batch]:
        """Endless training batches of this rank, on the host. The order depends on seed, rank and world size only."""

    def prepare(self, batch: Batch) -> Batch:
        """The batch, already on the device, as the model takes it (device-side decoding). Runs on the copying stream."""

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """The training loss, a scalar; called under the precision's autocast. In inference: the forward pass, and a scalar of its output.

        A value that is not finite ends the trial as `diverged`.
        """

    def samples(self, batch: Batch) -> int:
        """Number of samples in a batch."""

    def evaluate(self, model: torch.nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """Metrics on held-out data: at least `loss`, and `chance_loss`, the loss of a model that guesses.

        `place` moves a host batch to the device and prepares it.
        """

    def flops_per_sample(self) -> float | None:
        """Floating-point operations of one step per sample; a multiplication and an addition are two. None if unknown."""


def trains(workload: Workload) -> bool:
    """Whether a step is forward pass, backward pass and optimiser. With `trains = False` it is the forward pass in evaluation mode."""
    return bool(getattr(workload, "trains", True))


def flops_by_precision(workload: Workload, precision: Precision, flops: float | None) -> Mapping[str, float] | None:
    """FLOPs of one step per sample by the precision that computes them; None if unknown. They add up to `flops`, of all.

    Where linear layers have a precision of their own, a workload says with a method `linear_flops_per_sample()` how many of its FLOPs are
    in the linear layers of its `layers`.
    """
    if flops is None:
        return None
    named = getattr(workload, "linear_flops_per_sample", None)
    return precisions.flops_by_precision(precision, flops, None if named is None else named(), trains=trains(workload))


def attention_flops(workload: Workload) -> float | None:
    """Of a workload's `flops_per_sample`, those of attention's scores and their sums over values; None if unknown.

    A workload says them with a method `attention_flops_per_sample()`.
    """
    named = getattr(workload, "attention_flops_per_sample", None)
    return None if named is None else named()


def step_kind(workload: Workload, batch: Batch) -> str | None:
    """The kind of step that a placed batch makes; None unless the workload has a method `step_kind(batch)`.

    For workloads whose steps cost differently by design, such as FLAVA's three kinds of batch: the differences are then no noise.
    """
    named = getattr(workload, "step_kind", None)
    return None if named is None else str(named(batch))


def shard_units(workload: Workload, model: torch.nn.Module, layers: list[torch.nn.Module]) -> list[torch.nn.Module]:
    """The modules whose parameters FSDP gathers together, inner modules before those that contain them.

    These are `layers`, unless the workload has a method `shard_units(model)` that names more, such as towers.
    """
    named = getattr(workload, "shard_units", None)
    return list(named(model)) if named is not None else layers


def compiled_beside(workload: Workload, model: torch.nn.Module) -> list[torch.nn.Module]:
    """What `compile: layer` compiles beside `layers`: none, unless the workload has a method `compiled_beside(model)`.

    For what is worth a graph and no block: nothing else that is done to layers is done to it.
    """
    named = getattr(workload, "compiled_beside", None)
    return list(named(model)) if named is not None else []


def compile_units(workload: Workload, model: torch.nn.Module) -> list[torch.nn.Module]:
    """What `compile: model` compiles: the model, unless the workload has a method `compile_units(model)` that names parts of it.

    Parts are for a model whose own code no graph can hold, such as a loop that counts on the host. In inference a part's output is used
    before a part is called again: a CUDA graph writes over it.
    """
    named = getattr(workload, "compile_units", None)
    return list(named(model)) if named is not None else [model]


def graph_units(workload: Workload, model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules that HPU graphs record: the model, unless the workload has a method `graph_units(model)` that names parts of it."""
    named = getattr(workload, "graph_units", None)
    return list(named(model)) if named is not None else [model]


def few_shapes(workload: Workload) -> bool:
    """Whether layers are given few shapes (attribute `few_shapes`), all of them in a trial's first steps: each is compiled by itself."""
    return bool(getattr(workload, "few_shapes", False))


def records_itself(workload: Workload) -> bool:
    """Whether the workload sees to `cuda_graph` by itself (attribute `records_itself`), for a step that no single graph can hold.

    Such a workload has a method `leave_graphs_out()`: from then on its steps launch what its graphs held, and these are released.
    """
    return bool(getattr(workload, "records_itself", False))
