"""Every file name of a trial and of a sweep. Tests repeat them as literals, because users and earlier sweeps rely on them.

A sweep's folder is runs/<sweep_id>/; a trial's is trials/<key>/ in it. A trial's folder on a pool's storage uses the same names. The
comment beside a name says who writes the file.
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
SLOTS = "slots.jsonl"  # the flow: when each trial took its pool's slots and gave them back
FLOW_RUNS = "flow_runs.txt"  # each flow run that worked on the sweep adds its Prefect id
LEASE = ".lease"  # the lock of whoever works on the sweep
HOLDER = ".holder.json"  # who holds the lease, while it is held
WHOLE = ".whole.json"  # whoever has read trials' records in full: which bytes were whole; see tasks/sweep/whole_records.py
ROWS = ".rows.parquet"  # whoever has read them: what was derived from these bytes; see tasks/analysis/row_cache.py
LOOKS = ".looks.json"  # whoever has judged a sweep's looks: what they found; see tasks/analysis/kept_looks.py
SHOWN = ".shown.json"  # the report, or whoever has shown the sweep: what is shown of it; see tasks/report/kept_shown.py
STOP = ".stop"  # `sweep stop`, with the reason; whoever takes the lease next removes it

CERTIFICATES = "certificates.json"  # the report of a sweep that has ended: what A/A pairs had shown of its devices until then
KNOWN_SPREAD = "known_spread.json"  # the report of a sweep that has ended: the spread between trials, sweeps and hosts that it uses
HELD_TIME = "held_time.json"  # the report: what share of the time that the pools were held was measured, and where the rest went

# The folder of results that others measured, beside those of sweeps; it has no PLAN
IMPORTED = "imported.json"  # `sweep import`, last: what it read; see tasks/imports
ORIGINALS = "originals"  # `sweep import`: a folder with the files that were read, as they were

# Beside the sweeps' folders
AA_CERTIFICATES = "certificates"  # the report: a folder with a file for each A/A sweep, what its pairs show
COMPILE_CACHE = ".compile-cache"  # trials on embedded pools: a folder for each pool, what torch.compile made; see worker/compile_cache.py
RATES = ".matrix-rates"  # trials on embedded pools: how long matrix products take on a device; see worker/rate_file.py
WEIGHTS = ".weights"  # trials on embedded pools: initial weights that later trials read; see worker/staged_weights.py
RAY_TOKEN = ".stack/ray_token"  # noqa: S105 - a file that `make up` writes: the token of the Ray head that it starts
SPREAD = "spread"  # the report: a folder with a file for each sweep, what its repeats say of the spread

# A trial's folder
TRIAL = "trial.json"  # the flow, when it plans
TOLD = "trial-of-commit.json"  # the flow, of a trial that runs another commit, when it starts: TRIAL as that commit's code reads it
LAUNCH = "launch.json"  # the flow, right before each start and right after it: how to find the attempt again
HOLD = ".hold"  # the flow, before it starts a trial that is to wait: a lock that the trial takes before it begins
JOURNAL = "journal.jsonl"  # rank 0, while it runs; on a pool with storage the flow writes a copy here
RESULT = "result.json"  # the trial's process at its end; the flow for a trial that could not write it
STEPS = "steps.parquet"  # the flow, from the journal
LOG = "log.txt"  # what the trial's processes printed: the processes themselves, or the flow at the end
DEVICE_STATE = "device_state.jsonl"  # the sampler beside rank 0, while it runs; see experiments/device_state.py
TRACE = "trace.json.gz"  # rank 0, with profile_steps
RANKS = "ranks"  # the supervisor of several ranks on one machine: a folder
LESSON = "lesson.json"  # in RANKS: what rank 0 had to import and count, for the template
PROBES = "probes"  # the search for the largest batch: a folder with a trial's folder for each process
RAY = "ray"  # Ray Train's own files
RANK_ZERO = "rank0"  # in the scratch folder of a node: rank 0's files until the storage has them


def for_emulated(name: str) -> str:
    """The name of the same file or folder in the report of emulated trials: report-emulated.md for report.md."""
    stem, dot, suffix = name.partition(".")
    return f"{stem}-emulated{dot}{suffix}"


DAMAGED, CRASHED = ASIDE = ("damaged", "crashed")  # why a record is kept aside


def kept_aside(attempt: int | str, why: str = DAMAGED) -> str:
    """In a trial's folder: a folder with a record that was found damaged, or of a crash after which the trial was run again. Written by the
    flow. `*` matches all of them."""
    return f"{why}-a{attempt}"


def withdrawal(attempt: int) -> str:
    """Marks an attempt that the flow stopped before Ray started it. Written by the flow."""
    return f"withdrawn-a{attempt}"


def attempt_result(attempt: int) -> str:
    """RESULT on storage. The name holds the attempt, so that an earlier attempt's result is not mistaken for this one's."""
    return f"result-a{attempt}.json"


def attempt_trace(attempt: int) -> str:
    """TRACE on storage, for the same reason: a later attempt may have none."""
    return f"trace-a{attempt}.json.gz"


def journal_segment(attempt: int, part: int, number: int) -> str:
    """Complete lines of JOURNAL on storage; see cluster/journal/replication.py."""
    return f"journal-a{attempt}/{part}-{number:08d}.jsonl"


def rank_failure(rank: int | str) -> str:
    """In RANKS: how a rank other than 0 ended, written by that rank. `*` matches all ranks."""
    return f"rank-{rank}.json"


def probe(size: int, attempt: int) -> str:
    """In PROBES: the folder of the process that starts with batch size `size`."""
    return f"batch-{size}-a{attempt}"
