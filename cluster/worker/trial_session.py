"""One rank of a trial, from its parameters to its last journal record. Ray Train calls `run_rank` on every worker."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from cluster.disk_errors import name_lost_folder
from cluster.journal.after_window import TO_COME
from cluster.journal.earlier_attempt import NO_LOCKS, await_end
from cluster.journal.journal import JournalWriter
from cluster.trial_layout import JOURNAL
from cluster.worker import beside_window, device_sampler, hold, leftovers, max_batch, trial_files
from cluster.worker.attainable import add_rates
from cluster.worker.compile_cache import CompileCache
from cluster.worker.cores import hold_to_cores
from cluster.worker.measure.recorder import NullSink, Recorder
from cluster.worker.measured_window import Steps, measure
from cluster.worker.memory_summary import explaining_memory
from cluster.worker.outcome import Termination, causes, classify
from cluster.worker.rank_group import Ranks
from cluster.worker.set_up import SessionContext, set_up
from cluster.worker.try_sizes import try_sizes
from experiments.components.workload import trains
from experiments.trial import Outcome, Trial

_STAT = Path("/proc/self/stat")


def run_rank(config: dict[str, Any]) -> None:
    """Ray Train's train_loop_per_worker. `config`: trial (JSON), out, attempt, notes, probe (see TrialSession), store, not_before.

    `not_before` (Unix time, s) is the earliest time from which the time to the first step counts. Raises what ended the trial early.
    """
    trial = Trial.model_validate_json(config["trial"])
    ranks = Ranks.from_ray()
    cleanup_notes = list[str]()
    if ranks.local_rank == 0:
        cleanup_notes = leftovers.end()
        trial_files.remove_half_traces(config)
    out = trial_files.folder_of_rank(config)
    earlier_notes, waited_s = await_end(out / JOURNAL) if ranks.rank == 0 else ([], 0.0)
    sink = JournalWriter(out / JOURNAL, config["attempt"], trial=trial.key) if ranks.rank == 0 else NullSink()
    mirror = trial_files.mirror_of_rank(out / JOURNAL, config, ranks.rank)
    probing = config["probe"] is not None
    sampler = nullcontext(device_sampler.Sampling()) if probing else device_sampler.sampling(trial, ranks, out, config["attempt"])
    with mirror as send, sampler as found, Recorder(sink, ranks.world_size, send) as recorder:
        recorder.phase("imports", process_started_at())  # before there was a journal
        unlocked = [] if sink.locked else [NO_LOCKS]
        for note in (*cleanup_notes, *earlier_notes, *unlocked, *config["notes"], *found.notes):
            recorder.note(note)
        try:
            local_trial = trial_files.with_local_data(trial, config["store"])
            hold_to_cores(trial.parameters.get("cores_per_device"), ranks.local_rank)
            held_s = hold.wait(out, recorder)
            started_at = max(process_started_at(), config["not_before"]) + held_s + waited_s
            TrialSession(local_trial, ranks, recorder, out, config["probe"], started_at, found.facts).run()
        except BaseException as error:
            for cause in causes(error):
                name_lost_folder(cause, out)
            with suppress(OSError):  # the disk may be what ended the trial
                recorder.end(classify(error, trial_files.own_folders(out)))
            raise
        recorder.phase("done")
        recorder.end(Termination(Outcome.OK))


def process_started_at() -> float:
    """When this process started: Unix time, s.

    From the time since boot, of the process in ticks (10 ms) as in proc(5): the time of the boot itself, which psutil adds to it, is
    known to a second alone.
    """
    if not _STAT.exists():
        return psutil.Process().create_time()
    ticks = int(_STAT.read_text().rpartition(")")[2].split()[19])  # field 22, starttime
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


@dataclass(frozen=True)
class TrialSession:
    """The phases of one trial on one rank."""

    trial: Trial
    ranks: Ranks
    recorder: Recorder
    out: Path
    probe: str | None = None  # earlier answers of the batch search (max_batch.encode); None: measure
    started_at: float = field(default_factory=process_started_at)  # Unix time, s: start of the time to the first step
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the trial's environment, beside what set_up finds out

    def run(self) -> SessionContext:
        """Run all phases and return their context. Raises Unsupported, DataError, Diverged, and whatever workload and libraries raise."""
        with CompileCache(self.trial.pool, fresh=self.trial.parameters.get("compile_cache") == "fresh") as cache:
            context = set_up(self.trial, self.ranks, self.recorder, self.out, self.facts, cache)
            with explaining_memory(context.train_step, context.device):
                if self.probe is not None:
                    self._probe(context, max_batch.decode(self.probe))
                else:
                    self._measure(context)
        return context

    def _measure(self, context: SessionContext) -> None:
        evaluation_s = beside_window.evaluate(context, "before")
        steps = Steps(context)
        window = measure(context, steps, self.started_at + evaluation_s + context.aside_s)
        if trains(context.workload):  # without training it would repeat "before"
            beside_window.evaluate(context, "after")
            beside_window.measure_communication(context, steps, window)
        window |= {"batch_search_seconds": max_batch.seconds_searched(), "trace_seconds": None}
        beside_window.add_flops(context, window)
        if context.parameters.profile_steps:
            beside_window.record_window(context, window | TO_COME)
            context.recorder.flush()
            self._trace(context, steps, window)
        beside_window.record_window(context, window)

    def _trace(self, context: SessionContext, steps: Steps, window: dict[str, Any]) -> None:
        """Traces come last: where one fails within a step, no other step can follow. Then the window counts as it was recorded before."""
        began = time.monotonic()
        products = beside_window.profile(context, steps, window)
        products = beside_window.launched_products(context, steps, window, products)
        add_rates(context, products, window, self.facts.get("locked_clocks_mhz"))  # last: it disturbs nothing that is measured
        window["trace_seconds"] = time.monotonic() - began

    def _probe(self, context: SessionContext, known: dict[int, max_batch.Answer] | None) -> None:
        steps = Steps(context)
        window = measure(context, steps, self.started_at)
        try_sizes(context, steps, window, known)
