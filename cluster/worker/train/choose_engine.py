"""Choose the engine that trains a trial's model, and check that it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.worker.train import block_weights, compiling, optimizers, parallel
from cluster.worker.train.engine import Engine
from experiments.components.workload import Unsupported
from experiments.parameters import TrainingParameters, lazy_mode

if TYPE_CHECKING:
    from cluster.devices import Device


def why_not(parameters: TrainingParameters, device: Device) -> str | None:
    """Why this combination of engine, mode and device cannot run; None if it can."""
    kind = device.kind
    if parameters.cuda_graph and kind != "cuda":
        return f"cuda_graph: only on cuda, and this is {kind}"
    if kind != "hpu":
        hpu_only = {
            "engine optimum_habana": parameters.engine == "optimum_habana",
            "ddp fast": parameters.ddp == "fast",
            "hpu_graphs": parameters.hpu_graphs,
            "hpu_lazy": parameters.hpu_lazy is not None,
        }
        return next((f"{name}: only on hpu, and this is {kind}" for name, requested in hpu_only.items() if requested), None)
    if parameters.ddp == "fast" and parameters.engine != "optimum_habana":
        return "ddp fast: optimum-habana's all-reduce; needs engine optimum_habana"
    lazy = lazy_mode(parameters.model_dump())
    if not lazy and (parameters.hpu_graphs or parameters.ddp == "fast"):
        return f"{'hpu_graphs' if parameters.hpu_graphs else 'ddp fast'}: needs lazy mode (hpu_lazy: true)"
    if lazy and parameters.compile != "none":
        return f"compile {parameters.compile}: on hpu torch.compile needs eager mode (hpu_lazy: false)"
    return _why_no_graphs(parameters) if parameters.hpu_graphs else None


def _why_no_graphs(parameters: TrainingParameters) -> str | None:
    if parameters.compile != "none":
        return "hpu_graphs: not beside torch.compile"
    if parameters.accumulation_steps > 1:
        return "accumulation_steps: not with hpu_graphs, whose recorded backward pass has not been shown to add to gradients"
    return None


def choose_engine(parameters: TrainingParameters, device: Device, world_size: int) -> Engine:
    """The engine that the parameters name. Raises Unsupported if the parameters do not go together on this device."""
    on_its_own = why_not(parameters, device) or compiling.why_not(parameters, device)
    together = parallel.why_not(parameters) or optimizers.why_not(parameters, device.kind) or block_weights.why_not(parameters)
    if reason := on_its_own or together:
        raise Unsupported(reason)
    if parameters.engine == "optimum_habana":
        from cluster.worker.train.engine_habana import OptimumHabana

        return OptimumHabana(parameters, device, world_size)
    return Engine(parameters, device, world_size)
