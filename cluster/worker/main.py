"""The trial's entry point. It reads trial.json and writes journal.jsonl and result.json, in a folder or on storage.

With storage it works in a scratch folder on this node. Exit status 0: result.json was written, whatever the outcome. Any other status: it
was not written; 75 if the storage was unreachable for too long, 74 if this node's disk is full, 73 if it can no longer be written. Of
several ranks each has 1 where it did not end ok, so that their supervisor ends the others, which may wait for it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from cluster.attempt_result import attempt_result
from cluster.disk_errors import disk_error
from cluster.journal import earlier_attempt
from cluster.journal.after_window import complete_measured
from cluster.journal.errors import JournalError
from cluster.journal.object_store import StorageError
from cluster.journal.replication import STORAGE_LOST
from cluster.journal.writer_lock import writer_ended
from cluster.trial_layout import JOURNAL, RESULT
from cluster.worker import trial_files
from cluster.worker.outcome import Cancelled, Termination, classify
from experiments.atomic_file import atomic_write
from experiments.json_file import sealed_text
from experiments.parameters import lazy_mode
from experiments.trial import Outcome, Trial


def main(arguments: list[str] | None = None) -> int:
    """Run one attempt of one trial. Returns the exit status."""
    started_at = time.time()
    options = _parse(arguments)
    try:
        return _attempt(options, started_at)
    except OSError as error:  # neither the journal nor the result could be written, and perhaps nor can this
        if (disk := disk_error(error)) is None:
            raise
        _say(f"{disk.kind}: {error}")
        return disk.exit_status


def _attempt(options: argparse.Namespace, started_at: float) -> int:
    out: Path = options.out or trial_files.scratch(options.store, options.attempt)
    options.out = out
    out.mkdir(parents=True, exist_ok=True)
    if trial_files.is_withdrawn(options):
        print("this attempt was stopped before it began", file=sys.stderr)
        return 0
    trial = trial_files.read_trial(options)
    _set_defaults(trial)
    signal.signal(signal.SIGTERM, _cancel)
    rank = int(os.environ.get("RANK", "0"))
    try:
        ending = _run(trial, options)
    except BaseException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not cut off the result
        if options.placement and isinstance(error, SystemExit):  # Ray's driver replaces _cancel by its own handler
            error = Cancelled("told to end (SIGTERM)")
        ending = classify(error, trial_files.own_folders(out))
        _say(str(ending.detail))
    if rank != 0:
        return _write_rank_failure(out, options.attempt, rank, ending)
    try:
        trial_files.collect(options, out / JOURNAL)
        if not (options.store or options.probe or "RANK" in os.environ):  # on storage the flow does it, in its own copy of the journal
            ending = _counted(ending, out / JOURNAL, options.attempt, trial)
        write_result(trial, out, options.attempt, started_at, ending)
        trial_files.send_result(options, out / RESULT)
    except StorageError as error:
        print(f"{error}; what the trial wrote is kept in {out} on {os.uname().nodename}", file=sys.stderr, flush=True)
        return STORAGE_LOST
    return 1 if "RANK" in os.environ and ending.outcome is not Outcome.OK else 0


def _counted(ending: Termination, journal: Path, attempt: int, trial: Trial) -> Termination:
    """Ok where all that is compared had been measured (`complete_measured`); else, or where the journal cannot be completed, `ending`."""
    try:
        if complete_measured(journal, attempt, trial.key, ending.outcome, ending.reason):
            return Termination(Outcome.OK)
    except (JournalError, OSError) as error:
        _say(f"what was measured before the trial failed cannot be kept: {error}")
    return ending


def _say(text: str) -> None:
    """Into the log, if the disk has room for it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def write_result(trial: Trial, out: Path, attempt: int, started_at: float, ending: Termination) -> None:
    """Write result.json. Its environment and summary come from the journal and the device's state, as in any later report."""
    result = attempt_result(trial, out, attempt, started_at, ending.outcome, ending.reason, ending.detail)
    atomic_write(out / RESULT, sealed_text(result))


def _run(trial: Trial, options: argparse.Namespace) -> Termination:
    from cluster.worker import max_batch, ranks, ray_train
    from cluster.worker.forked_ranks import RankEntry

    notes: list[str] = json.loads(os.environ.get("SWEEPBENCH_NOTES", "[]"))  # from the supervisor of several ranks
    parameters = trial.parameters
    if "RANK" not in os.environ:
        max_batch.tell_ranks(None)
        notes += _await_earlier(options)
    if parameters.get("batch_size") == "max":
        if "RANK" in os.environ:
            raise ValueError("batch_size max: start the trial without torchrun; it starts its own ranks")
        search = max_batch.find(trial, options)
        notes.append(search.note)
        max_batch.tell_ranks(search)
        trial = max_batch.with_batch_size(trial, search.size)
    if not options.placement and "RANK" not in os.environ and int(parameters.get("devices", 1)) > 1:
        return ranks.supervise(trial, options, notes, RankEntry(main, leave))
    ray_train.fit(trial, options, notes)
    return Termination(Outcome.OK)


def _await_earlier(options: argparse.Namespace) -> list[str]:
    """Wait until no earlier attempt writes into this folder. Returns notes of that. Raises JournalInUse.

    On storage attempts share no file; on a cluster rank 0 waits, since it can end what was left on its node.
    """
    from cluster.worker import leftovers

    journal: Path = options.out / JOURNAL
    if options.store or options.placement or writer_ended(journal, 0.0) is not False:
        return []
    return [*leftovers.end(), *earlier_attempt.await_end(journal)[0]]


def _write_rank_failure(out: Path, attempt: int, rank: int, ending: Termination) -> int:
    """Tell the supervisor how a rank other than 0 ended. Returns the exit status."""
    from cluster.worker.ranks import write_rank_failure

    if ending.outcome is Outcome.OK:
        return 0
    write_rank_failure(out, attempt, rank, ending)
    return 1


def _cancel(number: int, frame: object) -> None:
    raise Cancelled(f"told to end ({signal.Signals(number).name})")


def _set_defaults(trial: Trial) -> None:
    """Set environment variables that torch and ray read on import: no telemetry, and only the parts of Ray Train that a benchmark needs."""
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "DO_NOT_TRACK": "true",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
    }.items():
        os.environ.setdefault(name, value)
    if trial.device == "hpu":
        os.environ["PT_HPU_LAZY_MODE"] = "1" if lazy_mode(trial.parameters) else "0"  # the bridge reads it once, on import
    if trial.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray's local mode would choose NCCL where it sees a GPU


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cluster.worker.main", description=__doc__)
    parser.add_argument("--trial", type=Path, help="trial.json")
    parser.add_argument("--out", type=Path, help="folder of the journal and the result")
    parser.add_argument("--store", help="URI of the trial's folder on storage, instead of --trial and --out")
    parser.add_argument("--attempt", type=int, required=True, help="1 for the first")
    parser.add_argument("--placement", help="inside a Ray job: the resources for its TorchTrainer (cluster/pools/placement.py, JSON)")
    parser.add_argument("--probe", help="test whether the batch fits, without measuring; the value: earlier answers (max_batch.encode)")
    options = parser.parse_args(arguments)
    if not options.store and not (options.trial and options.out):
        parser.error("--store, or --trial and --out")
    return options


def leave(status: int) -> NoReturn:
    """End the process at once. A regular interpreter shutdown of torch and ray takes two seconds and writes nothing more."""
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        sys.modules["ray"].shutdown()
    for child in multiprocessing.active_children():  # DataLoader processes kept alive by an exception's traceback
        child.terminate()
        child.join()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the log's disk is full
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main())
