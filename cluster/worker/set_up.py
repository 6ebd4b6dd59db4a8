"""Prepare a trial up to its first step: its device in the right precision, its engine, its workload and its train step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cluster.devices import Device
from cluster.devices import load as load_device
from cluster.devices.clock import SYNCHRONISED
from cluster.kept_files import kept_folder
from cluster.packages import installed
from cluster.trial_layout import WEIGHTS
from cluster.worker.compile_cache import CompileCache
from cluster.worker.environment import environment
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.torch_internals import let_segments_grow
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context, Unsupported, Workload
from experiments.parameters import SYNCHRONOUS, TrainingParameters, compiles, execution
from experiments.precision import around
from experiments.trial import Trial

if TYPE_CHECKING:
    from cluster.worker.staged_weights import BuildModel, Built
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
    weights: Mapping[str, float | None] = field(default_factory=dict)  # how long they took, for the window record
    compile_cache: CompileCache = field(default_factory=CompileCache)
    fact: Callable[[str, str], None] = lambda name, value: None  # records a fact of the environment that is known only now

    @property
    def aside_s(self) -> float:
        """Time of the set-up that served later trials, and so counts to none of this one's figures."""
        return self.weights.get("weights_kept_s") or 0.0

    @property
    def workload(self) -> Workload:
        """The workload that the train step runs. A resized one replaces it there, so that the old one's memory is freed."""
        return self.train_step.workload

    def resized(self, batch_size: int) -> Workload:
        """The workload with another batch size, for the existing model."""
        workload = self.build(batch_size)
        vars(workload).update(self.model_facts)
        return workload


def set_up(
    trial: Trial,
    ranks: Ranks,
    recorder: Recorder,
    out: Path,
    found: Mapping[str, Any] = MappingProxyType({}),
    compile_cache: CompileCache | None = None,
) -> SessionContext:
    """Prepare everything up to the first step. `found`: facts of the environment that are known already.

    Raises Unsupported, DataError, and whatever workload and libraries raise.
    """
    recorder.phase("start")
    module = workloads.load(trial.workload)
    parameters: TrainingParameters = module.Parameters.model_validate(trial.parameters)
    if parameters.profile_repeats is not None and trial.repeat > parameters.profile_repeats:
        parameters = parameters.model_copy(update={"profile_steps": 0})
    device = load_device(trial.device, ranks.local_rank)
    shared_by = 1 if parameters.cores_per_device else ranks.local_world_size  # whose cores this process sees
    threads = device.set_threads(parameters.threads, shared_by)
    facts = {**environment(device, ranks.world_size, threads), **found}
    if execution(parameters) == SYNCHRONOUS:
        facts["clock"] = SYNCHRONISED
    if parameters.compile == "none":
        facts["compilation"] = "none"
    recorder.packages(installed())
    recorder.environment(facts)
    cache = compile_cache or CompileCache()
    if compiles(parameters) and (problem := cache.use(facts)):
        recorder.note(problem)

    def add_fact(name: str, value: str) -> None:
        """Record a fact that a workload learnt about its environment. Readers take an attempt's last environment record."""
        facts[name] = value
        recorder.environment(facts)

    def build(batch_size: int) -> Workload:
        context = Context(parameters, trial.data, device.kind, ranks.rank, ranks.world_size, batch_size, recorder.note, add_fact)
        workload: Workload = module.build(context)
        return workload

    _set_precision(device, parameters)
    _set_allocator(device, parameters)
    engine = choose_engine(parameters, device, ranks.world_size)
    engine.adapt()
    if parameters.parallel != "ddp" and ranks.world_size == 1:
        recorder.note(f"parallel {parameters.parallel}: one device alone has all parameters, nothing is sharded")
    recorder.phase("data")
    if isinstance(parameters.batch_size, str):
        raise ValueError("batch_size max must be replaced by the size that was found before a trial runs")
    workload = build(parameters.batch_size)
    recorder.phase("build")
    build_model = _weights(trial, parameters, device, ranks, recorder, facts)
    train_step, model_facts, built = _train_step(workload, parameters, device, engine, ranks.rank, build_model)
    if train_step.converted:
        recorder.note(train_step.converted)
    if built.read_s is not None or built.kept_s:
        add_fact("weights", "drawn" if built.read_s is None else "staged")
    return SessionContext(parameters, ranks, recorder, out, device, train_step, build, model_facts, built.record(), cache, add_fact)


def _set_precision(device: Device, parameters: TrainingParameters) -> None:
    """Switch the device to the trial's precision. Raises Unsupported if the device does not have it."""
    why_not = device.unsupported(parameters.precision)
    if why_not:
        raise Unsupported(why_not)
    device.set_precision(around(parameters.precision))
    if parameters.allow_tf32:
        if device.kind != "cuda":
            raise Unsupported(f"allow_tf32: only on cuda, and this is {device.kind}")
        device.set_precision("tf32")  # switches of the whole process; each step sets autocast itself


def _set_allocator(device: Device, parameters: TrainingParameters) -> None:
    """Before the first tensor is on the device. Raises Unsupported on a device whose allocator has no such switch."""
    if not parameters.expandable_segments:
        return
    if device.kind != "cuda":
        raise Unsupported(f"expandable_segments: only on cuda, and this is {device.kind}")
    let_segments_grow()


def _weights(
    trial: Trial, parameters: TrainingParameters, device: Device, ranks: Ranks, recorder: Recorder, facts: Mapping[str, Any]
) -> BuildModel:
    """How this trial's model comes to its initial weights: drawn, or read where an earlier trial has kept them."""
    from cluster.worker.staged_weights import StagedWeights, drawn, weights_key

    key = weights_key(trial, parameters, device.torch_device, facts)
    try:
        folder = kept_folder(WEIGHTS) if key else None
    except OSError as error:
        recorder.note(f"weights: nothing is kept: {error}")
        folder = None
    if key is None or folder is None:
        return drawn
    staged = StagedWeights(folder, key, recorder, keeps=ranks.local_rank == 0)
    return staged.build


def _train_step(
    workload: Workload, parameters: TrainingParameters, device: Device, engine: Engine, rank: int, build: BuildModel
) -> tuple[TrainStep, dict[str, Any], Built]:
    """The train step, with the same weights on every rank, the workload's attributes that building the model set, and what `build` tells.

    The model is built on the device unless the trial says otherwise: drawing large weights on the CPU takes longer than training them.
    """
    import torch

    before = dict(vars(workload))

    def draw() -> torch.nn.Module:
        vars(workload).clear()
        vars(workload).update(before)
        return workload.model()

    built = build(draw, parameters.seed, device.torch_device if parameters.build_on == "device" else None)
    model_facts = {name: value for name, value in vars(workload).items() if before.get(name) is not value}
    train_step = TrainStep(workload, built.model, parameters, device, engine)
    torch.manual_seed(parameters.seed + rank)  # other dropout masks on every rank
    return train_step, model_facts, built
