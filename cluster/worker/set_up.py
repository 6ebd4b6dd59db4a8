"""What a trial has before its first step: its device in the precision it asks for, its engine, its workload, its train step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.devices import Device
from cluster.devices import load as load_device
from cluster.worker.environment import environment
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context, Unsupported, Workload
from experiments.parameters import TrainingParameters
from experiments.trial import Trial

if TYPE_CHECKING:
    import torch

    from cluster.worker.train.engine import Engine


@dataclass(frozen=True)
class SessionContext:
    """One rank of a trial that is ready to run."""

    parameters: TrainingParameters
    ranks: Ranks
    recorder: Recorder
    out: Path
    device: Device
    train_step: TrainStep
    build: Callable[[int], Workload]  # the same workload with another batch size
    told: Mapping[str, Any] = field(default_factory=dict)  # what building the model told the workload, such as its image size

    @property
    def workload(self) -> Workload:
        """What the train step runs. A resized one takes its place, so that nothing keeps the memory of the one before."""
        return self.train_step.workload

    def resized(self, batch_size: int) -> Workload:
        """The workload with another batch size, for the model that is there."""
        workload = self.build(batch_size)
        vars(workload).update(self.told)
        return workload


def set_up(trial: Trial, ranks: Ranks, recorder: Recorder, out: Path) -> SessionContext:
    """Everything up to the first step. Raises Unsupported, DataError, and whatever workload and libraries raise."""
    recorder.phase("start")
    module = workloads.load(trial.workload)
    parameters: TrainingParameters = module.Parameters.model_validate(trial.parameters)
    device = load_device(trial.device, ranks.local_rank)
    threads = device.set_threads(parameters.threads, ranks.local_world_size)
    facts = environment(device, ranks.world_size, threads)
    recorder.environment(facts)

    def add_fact(name: str, value: str) -> None:
        """What a workload found out about where it runs. Readers take the last environment of an attempt."""
        facts[name] = value
        recorder.environment(facts)

    def build(batch_size: int) -> Workload:
        context = Context(parameters, trial.data, device.kind, ranks.rank, ranks.world_size, batch_size, recorder.note, add_fact)
        workload: Workload = module.build(context)
        return workload

    _set_precision(device, parameters)
    engine = choose_engine(parameters, device, ranks.world_size)
    engine.adapt()
    if parameters.parallel != "ddp" and ranks.world_size == 1:
        recorder.note(f"parallel {parameters.parallel}: one device alone has all parameters, nothing is sharded")
    recorder.phase("data")
    if isinstance(parameters.batch_size, str):
        raise ValueError("batch_size max must be replaced by the size that was found before a trial runs")
    workload = build(parameters.batch_size)
    recorder.phase("build")
    train_step, told = _train_step(workload, parameters, device, engine, ranks.rank)
    return SessionContext(parameters, ranks, recorder, out, device, train_step, build, told)


def _set_precision(device: Device, parameters: TrainingParameters) -> None:
    """Raises Unsupported where the device does not have it."""
    why_not = device.unsupported(parameters.precision)
    if why_not:
        raise Unsupported(why_not)
    device.set_precision(parameters.precision)
    if parameters.allow_tf32:
        if device.kind != "cuda":
            raise Unsupported(f"allow_tf32: only on cuda, and this is {device.kind}")
        device.set_precision("tf32")  # switches of the process; autocast is the step's own


def _train_step(
    workload: Workload, parameters: TrainingParameters, device: Device, engine: Engine, rank: int
) -> tuple[TrainStep, dict[str, Any]]:
    """The train step of a model with the same weights on every rank, and what building that model told the workload."""
    import torch

    torch.manual_seed(parameters.seed)
    before = dict(vars(workload))
    model = _model(workload, device.torch_device if parameters.build_on == "device" else None)
    told = {name: value for name, value in vars(workload).items() if before.get(name) is not value}
    train_step = TrainStep(workload, model, parameters, device, engine)
    torch.manual_seed(parameters.seed + rank)  # other dropout masks on every rank
    return train_step, told


def _model(workload: Workload, place: torch.device | None) -> torch.nn.Module:
    """Made where it will be: drawing large weights on the CPU takes longer than training them. None: on the CPU."""
    with nullcontext() if place is None else place:
        return workload.model()
