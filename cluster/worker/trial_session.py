"""One rank of a trial, from its parameters to its last journal record. Ray Train calls `run_rank` on every worker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from cluster.devices import load as load_device
from cluster.devices.clock import StepTiming
from cluster.devices.peaks import peak_flops
from cluster.journal.journal import JournalWriter
from cluster.trial_layout import JOURNAL, TRACE
from cluster.worker import leftovers, max_batch, trial_files
from cluster.worker.environment import environment
from cluster.worker.measure.loop import run_steps
from cluster.worker.measure.recorder import NullSink, Recorder
from cluster.worker.measure.records import RankWindow, window_record
from cluster.worker.measure.slowdown import Slowed
from cluster.worker.outcome import Termination, classify
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context, Unsupported, Workload, trains
from experiments.parameters import TrainingParameters
from experiments.trial import Outcome, Trial


@dataclass(frozen=True)
class Ranks:
    """Where this process stands among the trial's workers."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def from_ray(cls) -> Ranks:
        """As Ray Train says it, in local mode too."""
        from ray.train import get_context

        context = get_context()
        return cls(context.get_world_rank(), context.get_world_size(), context.get_local_rank(), context.get_local_world_size())


def run_rank(config: dict[str, Any]) -> None:
    """Ray Train's train_loop_per_worker. `config`: trial (JSON), out, attempt, notes, probe (see Session), store, not_before.

    Raises what ended the trial early.
    """
    trial = Trial.model_validate_json(config["trial"])
    ranks = Ranks.from_ray()
    left_over = leftovers.end() if ranks.local_rank == 0 else []
    out = trial_files.folder_of_rank(config)
    sink = JournalWriter(out / JOURNAL, config["attempt"]) if ranks.rank == 0 else NullSink()
    sent = trial_files.mirror_of_rank(out / JOURNAL, config, ranks.rank)
    with sent, Recorder(sink, ranks.world_size) as recorder:
        for found in left_over:
            recorder.note(found)
        for note in config["notes"]:
            recorder.note(note)
        try:
            session = TrialSession(trial_files.with_local_data(trial, config["store"]), ranks, recorder, out, probe=config["probe"])
            session.started_at = max(session.started_at, config["not_before"])
            session.run()
        except BaseException as error:
            with suppress(OSError):  # the disk may be what ended the trial
                recorder.end(classify(error))
            raise
        recorder.phase("done")
        recorder.end(Termination(Outcome.OK))


@dataclass
class TrialSession:
    """The phases of one trial on one rank."""

    trial: Trial
    ranks: Ranks
    recorder: Recorder
    out: Path
    probe: str | None = None  # what the search for the largest batch knows already (max_batch.encode); None: measure
    started_at: float = field(default_factory=lambda: psutil.Process().create_time())
    _aside_s: float = 0.0  # spent on evaluation before the first step
    _slowed: Slowed | None = None
    _told: dict[str, Any] = field(default_factory=dict)  # what building the model told the workload, such as its image size

    def run(self) -> None:
        """Raises Unsupported, DataError, Diverged, and whatever workload and libraries raise."""
        self.recorder.phase("start")
        module = workloads.load(self.trial.workload)
        self.parameters: TrainingParameters = module.Parameters.model_validate(self.trial.parameters)
        self.device = load_device(self.trial.device, self.ranks.local_rank)
        threads = self.device.set_threads(self.parameters.threads, self.ranks.local_world_size)
        self._environment = environment(self.device, self.ranks.world_size, threads)
        self.recorder.environment(self._environment)
        why_not = self.device.unsupported(self.parameters.precision)
        if why_not:
            raise Unsupported(why_not)
        self.device.set_precision(self.parameters.precision)
        if self.parameters.allow_tf32:
            if self.device.kind != "cuda":
                raise Unsupported(f"allow_tf32: only on cuda, and this is {self.device.kind}")
            self.device.set_precision("tf32")  # switches of the process; autocast is the step's own
        self.engine = choose_engine(self.parameters, self.device, self.ranks.world_size)
        self.engine.adapt()
        if self.parameters.parallel != "ddp" and self.ranks.world_size == 1:
            self.recorder.note(f"parallel {self.parameters.parallel}: one device alone has all parameters, nothing is sharded")
        self.recorder.phase("data")
        self._build = module.build
        self.workload: Workload = self._build(self._context(self.parameters.batch_size))
        self.recorder.phase("build")
        self.train_step = self._learner()
        self._evaluate("before")
        window = self._train()
        if self.probe is not None:
            self._try_sizes(window, max_batch.decode(self.probe))
            return
        self._profile(window)
        if trains(self.workload):  # else it would say what "before" said
            self._evaluate("after")
            self._communicate(window)
        self._publish_window(window)

    def _context(self, size: int | str) -> Context:
        if isinstance(size, str):
            raise ValueError("batch_size max must be replaced by the size that was found before a trial runs")
        return Context(
            parameters=self.parameters,
            data=self.trial.data,
            device_kind=self.device.kind,
            rank=self.ranks.rank,
            world_size=self.ranks.world_size,
            batch_size=size,
            note=self.recorder.note,
            fact=self._fact,
        )

    def _fact(self, name: str, value: str) -> None:
        """What a workload found out about where it runs. Readers take the last environment of an attempt."""
        self._environment = {**self._environment, name: value}
        self.recorder.environment(self._environment)

    def _learner(self) -> TrainStep:
        import torch

        torch.manual_seed(self.parameters.seed)  # the same weights on every rank
        # made where it will be: drawing large weights on the CPU takes longer than training them
        with self.device.torch_device if self.parameters.build_on == "device" else nullcontext():
            built = dict(vars(self.workload))
            model = self.workload.model()
            self._told = {name: value for name, value in vars(self.workload).items() if built.get(name) is not value}
        train_step = TrainStep(self.workload, model, self.parameters, self.device, self.engine)
        torch.manual_seed(self.parameters.seed + self.ranks.rank)  # other dropout masks on every rank
        return train_step

    def _train(self) -> dict[str, Any]:
        """First step, warm-up, measured window. Returns the window record, its rates still missing."""
        parameters, device = self.parameters, self.device
        self.batches = iter(self.workload.batches())
        self.clock = device.clock()
        if parameters.injected_slowdown:
            self._slowed = Slowed(self.train_step, parameters.injected_slowdown)
            self.recorder.note(f"every measured step is made {parameters.injected_slowdown:.3g} times itself longer, on purpose (injected)")
        seen: list[StepTiming] = []

        def warm_up(timing: StepTiming) -> None:
            seen.append(timing)
            self.recorder.step(timing, measured=False, more=self.train_step.diagnostics(timing.step))

        def measure(timing: StepTiming) -> None:
            self.recorder.step(timing, measured=True, more=self.train_step.diagnostics(timing.step))

        self.recorder.phase("first_step")
        self.clock.begin()
        self._steps(range(1, 2), warm_up)
        to_first_step = time.time() - self.started_at - self._aside_s
        self.recorder.phase("warmup")
        self._steps(range(2, parameters.warmup_steps + 1), warm_up)
        compile_s = None if parameters.compile == "none" else compile_seconds()

        self.recorder.phase("measure")
        if self._slowed:
            self._slowed.start()
        self._meet()
        device.reset_peak_memory()
        device.synchronize()
        energy = device.energy_j()
        started = time.perf_counter()
        self.clock.begin()
        last = parameters.warmup_steps + parameters.steps
        samples = self._steps(range(parameters.warmup_steps + 1, last + 1), measure)
        device.synchronize()
        wall = time.perf_counter() - started
        energy_end = device.energy_j()
        mine = RankWindow(
            rank=self.ranks.rank,
            samples=samples,
            wall_s=wall,
            peak_memory_bytes=device.peak_memory_bytes(),
            alloc_retries=device.alloc_retries(),
            energy_j=None if energy is None or energy_end is None else energy_end - energy,
        )
        return {
            **window_record(self._gather(mine)),
            "time_to_first_step_s": to_first_step,
            "compile_seconds": compile_s,
            "first_measured_step": parameters.warmup_steps + 1,
            "batch_size": parameters.batch_size,
            "trains": trains(self.workload),
            "epoch_samples": getattr(self.workload, "epoch_samples", None),
            "spikes_after": parameters.spikes_after,
            **({"injected_slowdown": parameters.injected_slowdown} if parameters.injected_slowdown else {}),
        }

    def _steps(self, steps: range, record: Any) -> int:
        return run_steps(steps, self.batches, self._slowed or self.train_step, self.clock, record)

    def _publish_window(self, window: dict[str, Any]) -> None:
        """Complete the window with what takes time to find out, and write it."""
        if self.ranks.rank != 0:
            return
        name = self.device.describe()["device_name"]
        peak, source = (None, None) if self.device.emulated else peak_flops(name, self.parameters.precision)
        try:
            flops = self.workload.flops_per_sample()
        except Exception as error:  # not knowing them costs the MFU; it must not cost a trial that was measured
            flops = None
            self.recorder.note(f"FLOPs not counted: {type(error).__name__}: {str(error)[:200]}")
        self.recorder.window({**window, "flops_per_sample": flops, "peak_flops": peak, "peak_source": source})

    def _evaluate(self, when: str) -> None:
        """On rank 0, while the others wait: replicas are equal. On all of them where the model is sharded: each has a part of it."""
        if not self.parameters.evaluate or self.probe is not None:
            return
        with self._aside():
            self.recorder.phase("evaluate")
            if self.ranks.rank == 0 or self.train_step.sharded:
                self.recorder.evaluation(when, self.train_step.evaluate())  # what another rank records goes nowhere
            self._meet()

    def _profile(self, window: dict[str, Any]) -> None:
        """Trace some more steps, after the window, into trace.json.gz, and put what they spent their time on into the window's record."""
        if not self.parameters.profile_steps:
            return
        from cluster.worker.measure.profile import read_breakdown, trace

        self.recorder.phase("profile")
        last = self.parameters.warmup_steps + self.parameters.steps
        steps = range(last + 1, last + self.parameters.profile_steps + 1)
        self.clock.begin()
        path = self.out / TRACE
        with trace(path if self.ranks.rank == 0 else None):
            self._steps(steps, lambda timing: None)
            self.device.synchronize()
        if self.ranks.rank == 0:
            window["profile"] = read_breakdown(path, len(steps))
            self.recorder.note(f"{len(steps)} more steps were traced into {TRACE}")

    def _communicate(self, window: dict[str, Any]) -> None:
        """How long the gradients' all-reduce takes, and how much longer it makes a step."""
        from torch.nn.parallel import DistributedDataParallel

        steps = self.parameters.communication_steps
        if not steps or not isinstance(self.train_step.model, DistributedDataParallel):  # nothing that could be left out of a step
            return
        if not getattr(self.workload, "steps_alike", True):  # and DDP fails where a step uses other parameters than one under no_sync()
            self.recorder.note("the all-reduce was not measured apart: steps differ in kind, so a few with and without it do not compare")
            return
        from cluster.worker.measure import communication

        self.recorder.phase("communication")
        step = self.parameters.warmup_steps + self.parameters.steps + self.parameters.profile_steps

        def run(count: int, record: Any) -> None:
            self._meet()
            self.device.synchronize()
            self.clock.begin()
            self._steps(range(step + 1, step + count + 1), record)

        window["communication"] = communication.measure(self.train_step, self.device, steps, run)

    def _try_sizes(self, window: dict[str, Any], known: dict[int, max_batch.Probed]) -> None:
        """A probe's end: what its size took of the device's memory, then other sizes for as long as the search wants them.

        The window record holds the answers so far. Every rank comes to the same ones, so all of them try the same sizes.
        """
        size = int(window["batch_size"])
        while (used := self._used_share()) is not None:
            known[size] = max_batch.answer(used)
            self.recorder.window({**window, "probes": {str(n): [found.fits, found.used] for n, found in known.items()}})
            wanted = max_batch.next_size(known)
            if wanted is None or not self._can_resize():
                return
            size = wanted
            del self.batches  # its processes end with it
            self.device.release_memory()
            self.workload = self.train_step.workload = self._build(self._context(size))
            vars(self.workload).update(self._told)
            self.batches, self.clock = iter(self.workload.batches()), self.device.clock()
            self.clock.begin()
            self._steps(range(1, self.parameters.warmup_steps + self.parameters.steps + 1), lambda timing: None)
            self.device.synchronize()

    def _can_resize(self) -> bool:
        """Whether another batch size in this process takes what it takes in one of its own: nothing was recorded for a shape."""
        return self.device.releases_memory and self.parameters.compile == "none" and not self.parameters.hpu_graphs

    def _used_share(self) -> float | None:
        """Of the device's memory at its peak, on the rank that used most; None where the device does not tell."""
        free = self.device.free_share_at_peak()
        if free is None or self.ranks.world_size == 1:
            return None if free is None else 1 - free
        import torch

        share = torch.tensor(1 - free, device=self.device.torch_device)
        torch.distributed.all_reduce(share, torch.distributed.ReduceOp.MAX)
        return float(share)

    def _meet(self) -> None:
        """All ranks reach this point."""
        if self.ranks.world_size > 1:
            import torch.distributed

            torch.distributed.barrier()

    def _gather(self, mine: RankWindow) -> list[RankWindow]:
        if self.ranks.world_size == 1:
            return [mine]
        import torch.distributed

        everyone: list[Any] = [None] * self.ranks.world_size
        torch.distributed.all_gather_object(everyone, mine)
        return everyone

    @contextmanager
    def _aside(self) -> Iterator[None]:
        started = time.time()
        try:
            yield
        finally:
            self._aside_s += time.time() - started


def compile_seconds() -> float | None:
    """Seconds torch.compile has spent in this process, as dynamo counts them; None on a torch that does not tell."""
    try:
        from torch._dynamo.utils import compilation_time_metrics

        spent = compilation_time_metrics.get("_compile.compile_inner") or compilation_time_metrics.get("compile_inner")
        return float(sum(spent)) if spent else None
    except (ImportError, TypeError):
        return None
