"""Prepare a trial up to its first step: its device in the right precision, its engine, its workload and its train step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cluster.devices import Device
from cluster.devices import load as load_device
from cluster.devices.clock import SYNCHRONISED
from cluster.packages import installed
from cluster.worker.environment import environment
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context, Unsupported, Workload
from experiments.parameters import SYNCHRONOUS, TrainingParameters, execution
from experiments.trial import Trial

if TYPE_CHECKING:
    import torch

    from cluster.worker.train.engine import Engine


@dataclass(frozen=True)
class SessionContext:
    """One rank of a trial, ready to run."""

    parameters: TrainingParameters
    ranks: Ranks
    recorder: Recorder
    out: Path
    device: Device
    train_step: TrainStep
    build: Callable[[int], Workload]  # the same workload with another batch size
    model_facts: Mapping[str, Any] = field(default_factory=dict)  # attributes that building the model set on the workload

    @property
    def workload(self) -> Workload:
        """The workload that the train step runs. A resized one replaces it there, so that the old one's memory is freed."""
        return self.train_step.workload

    def resized(self, batch_size: int) -> Workload:
        """The workload with another batch size, for the existing model."""
        workload = self.build(batch_size)
        vars(workload).update(self.model_facts)
        return workload


def set_up(trial: Trial, ranks: Ranks, recorder: Recorder, out: Path, found: Mapping[str, Any] = MappingProxyType({})) -> SessionContext:
    """Prepare everything up to the first step. `found`: facts of the environment that are known already.

    Raises Unsupported, DataError, and whatever workload and libraries raise.
    """
    recorder.phase("start")
    module = workloads.load(trial.workload)
    parameters: TrainingParameters = module.Parameters.model_validate(trial.parameters)
    device = load_device(trial.device, ranks.local_rank)
    threads = device.set_threads(parameters.threads, ranks.local_world_size)
    facts = {**environment(device, ranks.world_size, threads), **found}
    if execution(parameters) == SYNCHRONOUS:
        facts["clock"] = SYNCHRONISED
    recorder.packages(installed())
    recorder.environment(facts)

    def add_fact(name: str, value: str) -> None:
        """Record a fact that a workload learnt about its environment. Readers take an attempt's last environment record."""
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
    train_step, model_facts = _train_step(workload, parameters, device, engine, ranks.rank)
    return SessionContext(parameters, ranks, recorder, out, device, train_step, build, model_facts)


def _set_precision(device: Device, parameters: TrainingParameters) -> None:
    """Switch the device to the trial's precision. Raises Unsupported if the device does not have it."""
    why_not = device.unsupported(parameters.precision)
    if why_not:
        raise Unsupported(why_not)
    device.set_precision(parameters.precision)
    if parameters.allow_tf32:
        if device.kind != "cuda":
            raise Unsupported(f"allow_tf32: only on cuda, and this is {device.kind}")
        device.set_precision("tf32")  # switches of the whole process; each step sets autocast itself


def _train_step(
    workload: Workload, parameters: TrainingParameters, device: Device, engine: Engine, rank: int
) -> tuple[TrainStep, dict[str, Any]]:
    """The train step, with the same weights on every rank, and the workload's attributes that building the model set."""
    import torch

    torch.manual_seed(parameters.seed)
    before = dict(vars(workload))
    model = _model(workload, device.torch_device if parameters.build_on == "device" else None)
    model_facts = {name: value for name, value in vars(workload).items() if before.get(name) is not value}
    train_step = TrainStep(workload, model, parameters, device, engine)
    torch.manual_seed(parameters.seed + rank)  # other dropout masks on every rank
    return train_step, model_facts


def _model(workload: Workload, device: torch.device | None) -> torch.nn.Module:
    """The model, initialised on `device` (None: the CPU): drawing large weights on the CPU takes longer than training them."""
    with nullcontext() if device is None else device:
        return workload.model()
