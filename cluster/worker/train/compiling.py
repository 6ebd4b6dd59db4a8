"""torch.compile as a trial asks for it: what a mode goes with, and what its CUDA graphs ask of a step.

A CUDA graph replays its kernels at the addresses at which they were recorded. torch copies a call's inputs to theirs; what a call returns
is overwritten once the next step is marked. So each step is marked, its loss is copied, and gradients are freed rather than kept: the next
step's are written elsewhere (docs.pytorch.org, CUDAGraph Trees).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cluster.worker import torch_internals
from experiments.parameters import CUDA_GRAPHS, TrainingParameters

if TYPE_CHECKING:
    from cluster.devices import Device

INDUCTOR = "inductor"  # the one back end that has modes
GRAPHS = 32


def why_not(parameters: TrainingParameters, device: Device) -> str | None:
    """Why this device cannot compile as the trial asks; None if it can. On a CPU max-autotune is torch's max-autotune-no-cudagraphs."""
    mode = parameters.compile_mode
    if parameters.multi_kernel and device.kind != "cuda":
        return f"multi_kernel: a choice between Triton kernels, and {device.kind} is compiled for without them; use false"
    if mode == "default":
        return None
    if device.compile_backend != INDUCTOR:
        return f"compile_mode {mode}: a mode of {INDUCTOR}, and {device.kind} compiles with {device.compile_backend}; use default"
    if mode == "reduce-overhead" and device.kind != "cuda":
        return f"compile_mode {mode}: all it does is to record CUDA graphs, which {device.kind} has none of; use default"
    return None


def records_cuda_graphs(parameters: TrainingParameters, device: Device) -> bool:
    """Whether torch.compile records CUDA graphs in this trial, as far as it finds that it can."""
    return parameters.compile_mode in CUDA_GRAPHS and device.kind == "cuda"


def settings(parameters: TrainingParameters, device: Device, *, few_shapes: bool = False) -> dict[str, Any]:
    """What torch.compile is told, beside what to compile: no mode where it is the default, since only one back end takes it.

    With multi_kernel the options that a mode stands for, and that one: torch takes a mode or options.
    `few_shapes`: what is compiled is called with few shapes, each of which then has a graph of its own. Else torch takes what has changed
    once for a variable, and tunes its kernels for the first of its values.
    """
    mode: dict[str, Any] = {} if parameters.compile_mode == "default" else {"mode": parameters.compile_mode}
    if parameters.multi_kernel:
        mode = {"options": {**torch_internals.options_of(parameters.compile_mode), "triton.multi_kernel": 1}}
    return {"backend": device.compile_backend, **mode, **({"dynamic": False} if few_shapes else {})}


def prepare(parameters: TrainingParameters) -> None:
    """What has to be so before anything is compiled."""
    if parameters.multi_kernel:
        torch_internals.choose_kernels_anew()


def allow_graphs() -> None:
    """Let torch compile more graphs of one function than its 8: to it the layers of all kinds are calls of nn.Module's one function.

    BridgeTower's four kinds come to seven where a layer may be given fp32 or bf16; beyond the limit layers would run eagerly, unsaid.
    """
    torch._dynamo.config.recompile_limit = max(GRAPHS, torch._dynamo.config.recompile_limit)


def mark_step(*_: Any) -> None:
    """A step begins: CUDA graphs may write over what they returned in the last one. A module's forward pre-hook too."""
    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
