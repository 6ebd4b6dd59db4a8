"""Every file name of a trial and of a sweep. Tests keep them as literals: they are what users and earlier sweeps rely on.

A sweep's folder is runs/<sweep_id>/, a trial's trials/<key>/ in it. On a pool's storage a trial's folder has the same names.
"""

from __future__ import annotations

# A sweep's folder
PLAN = "plan.json"  # the flow, before the first trial
TRIALS = "trials"  # a folder for each trial, by its key
RESULTS = "results.parquet"  # the report: one row per trial
REPORT = "report.md"  # the report
REPORT_PAGE = "report.html"  # the report
FIGURES = "figures"  # the report: a folder
STATUS = "status.json"  # the flow, when it ends: exit status and a line for people
FLOW_RUNS = "flow_runs.txt"  # each flow run that worked on the sweep adds its Prefect id
LEASE = ".lease"  # the lock of whoever works on the sweep
HOLDER = ".holder.json"  # who holds the lease, while it is held
STOP = ".stop"  # `sweep stop`, with the reason; whoever takes the lease next removes it

# A trial's folder
TRIAL = "trial.json"  # the flow, when it plans
LAUNCH = "launch.json"  # the flow, right after each start: how to find the attempt again
JOURNAL = "journal.jsonl"  # rank 0, while it runs; on a pool with storage the flow writes a copy
RESULT = "result.json"  # the trial's process at its end; the flow for a trial that could not write it
STEPS = "steps.parquet"  # the flow, from the journal
LOG = "log.txt"  # what the trial's processes printed: the processes themselves, or the flow at the end
TRACE = "trace.json.gz"  # rank 0, with profile_steps
RANKS = "ranks"  # the supervisor of several ranks on one machine: a folder
PROBES = "probes"  # the search for the largest batch: a folder with a trial's folder for each process
RAY = "ray"  # Ray Train's own files
RANK_ZERO = "rank0"  # on a node with a scratch folder: where rank 0 writes until the storage has it


def for_emulated(name: str) -> str:
    """The name under which the report of emulated trials has a file or folder of its own: report-emulated.md."""
    stem, dot, suffix = name.partition(".")
    return f"{stem}-emulated{dot}{suffix}"


def withdrawn(attempt: int) -> str:
    """The flow, for an attempt that it stops before Ray has started it."""
    return f"withdrawn-a{attempt}"


def attempt_result(attempt: int) -> str:
    """RESULT on storage, where an earlier attempt's must not be taken for this one's."""
    return f"result-a{attempt}.json"


def journal_segment(attempt: int, part: int, number: int) -> str:
    """Whole lines of JOURNAL on storage; see cluster/journal/replication.py."""
    return f"journal-a{attempt}/{part}-{number:08d}.jsonl"


def rank_failure(rank: int | str) -> str:
    """In RANKS, by a rank other than 0: how it ended. `*` for all of them."""
    return f"rank-{rank}.json"


def probe(size: int, attempt: int) -> str:
    """In PROBES: the process that begins with this batch size."""
    return f"batch-{size}-a{attempt}"
