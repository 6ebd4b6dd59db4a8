"""Classify an exception, raised here or on another rank, as a typed outcome with a one-line reason."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.devices import _hpu_tools
from cluster.disk_errors import disk_failure
from cluster.journal.errors import JournalInUse
from cluster.worker.user_frame import crash_reason
from experiments.components.workload import Unsupported
from experiments.trial import Outcome

REASON_LIMIT = 500  # characters


class Cancelled(BaseException):
    """The process was asked to end. A BaseException, so that no workload swallows it."""


class Diverged(Exception):
    """The loss is no longer finite."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(step, loss)
        self.step, self.loss = step, loss

    def __str__(self) -> str:
        return f"the loss was {self.loss} at step {self.step}"


class TrialEnded(Exception):
    """An outcome that a rank or a probe has already classified, passed on."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(outcome, reason)
        self.outcome, self.reason = outcome, reason


@dataclass(frozen=True)
class Termination:
    """How a trial ended. `reason` is None only for ok. The reason of infra starts with the kind of failure, as in `disk_full: ...`."""

    outcome: Outcome
    reason: str | None = None
    detail: str | None = None  # traceback


# Ray's exceptions by name, so that this module needs no ray
_RAY_LOST = frozenset(
    {
        "ActorDiedError",
        "ActorUnavailableError",
        "LocalRayletDiedError",
        "NodeDiedError",
        "PreemptionError",
        "RayActorError",
        "RaySystemError",
        "WorkerCrashedError",
        "WorkerGroupStartupFailedError",
        "WorkerGroupStartupTimeoutError",
        "WorkerHealthCheckFailedError",
        "WorkerHealthCheckTimeoutError",
    }
)
_LOADER_KILLED = re.compile(r"DataLoader worker \(pid.*\) (is killed by signal|exited unexpectedly)")
# What a healthy rank reports when another one has died. It explains nothing if any rank reports more.
_PEER_GONE = re.compile(
    r"Connection (closed by|reset by|refused)|ncclRemoteError|ncclSystemError|gloo/transport.*(closed|reset|peer)", re.I
)
# Of it, what says that another rank, or the network to it, has gone. That is all that is known where Ray, or the supervisor of ranks, hears
# of the survivor first.
_RANK_GONE = re.compile(
    r"gloo/transport.*(Connection (closed|reset)|Broken pipe)|ncclRemoteError|remote process exited|Did the remote server shut",
    re.I | re.S,
)
_CONNECTION_LOST = "worker_lost: a rank lost its connection to another: "
_OUT_OF_MEMORY = re.compile(rf"CUDA out of memory|CUDA error: out of memory|{_hpu_tools.OUT_OF_MEMORY.pattern}", re.I)

# If the parts of a trial ended differently, the outcome that comes first here explains the others.
_RANKING = (
    Outcome.CANCELLED,
    Outcome.DOES_NOT_FIT,
    Outcome.UNSUPPORTED,
    Outcome.DIVERGED,
    Outcome.HANG,
    Outcome.INFRA,
    Outcome.CRASHED,
    Outcome.OK,
)


def explaining(terminations: Sequence[Termination]) -> Termination:
    """The termination that explains the others of one trial; the first one among equals.

    A preemption explains any other failure of the infrastructure. That a rank lost its connection to another explains nothing else.
    Raises ValueError for an empty sequence.
    """
    return min(terminations, key=_place)


def _place(one: Termination) -> tuple[int, bool]:
    reason = one.reason or ""
    if _CONNECTION_LOST in reason:  # behind `rank 1: ` too
        return _RANKING.index(Outcome.CRASHED), True
    return _RANKING.index(one.outcome), one.outcome is Outcome.INFRA and not reason.startswith("preempted")


def classify(error: BaseException, own: Sequence[Path] = ()) -> Termination:
    """The termination that explains `error`, among its causes and its workers' failures. `detail` is the traceback.

    The reason of a crash says where in the user's code it began (`crash_reason`). `own`: folders that are ours and not the workload's, the
    trial's own first: which disk has failed goes by which file did.
    """
    chain = list(causes(error))
    endings = [ending for cause in chain if (ending := _known(cause, own)) is not None]
    innermost = [str(cause) for cause in chain if not _inner(cause)]
    if not endings and innermost and all(map(_RANK_GONE.search, innermost)):
        endings = [Termination(Outcome.INFRA, line(_CONNECTION_LOST + str(chain[-1])))]
    if not endings:
        first = next((cause for cause in reversed(chain) if not _PEER_GONE.search(str(cause))), chain[-1])
        endings = [Termination(Outcome.CRASHED, line(crash_reason(first, _wrappers(first, chain))))]
    return replace(explaining(endings), detail="".join(traceback.format_exception(error)))


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, the exceptions it was raised from and those that Ray Train wrapped in it, outermost first."""
    pending, visited = [error], set[int]()
    while pending:
        one = pending.pop(0)
        if id(one) in visited:
            continue
        visited.add(id(one))
        yield one
        pending.extend(_inner(one))


def _inner(error: BaseException) -> list[BaseException]:
    """The exceptions that this one was raised from or carries."""
    failures = getattr(error, "worker_failures", None)  # WorkerGroupError: rank -> exception
    found = [failures[rank] for rank in sorted(failures)] if isinstance(failures, dict) else []
    names = ("controller_failure", "health_check_failure", "_base_exc", "cause", "__cause__")
    found += [getattr(error, name, None) for name in names]
    return [one for one in found if isinstance(one, BaseException)]


def _wrappers(error: BaseException, chain: Sequence[BaseException]) -> list[BaseException]:
    """What of the chain was raised from the error or carries it, innermost first."""
    found = [error]
    while outer := next((one for one in chain if one not in found and any(found[-1] is inner for inner in _inner(one))), None):
        found.append(outer)
    return found[1:]


def line(text: str) -> str:
    """`text` as one line of at most REASON_LIMIT characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= REASON_LIMIT else flat[: REASON_LIMIT - 1] + "…"


def _known(error: BaseException, own: Sequence[Path]) -> Termination | None:
    """The termination that this exception means by itself; None if no rule applies to it."""
    if isinstance(error, TrialEnded):
        return Termination(Outcome(error.outcome), error.reason)
    if disk := disk_failure(error, own):
        return Termination(Outcome.INFRA, f"{disk.kind}: {line(disk.text)}; {disk.remedy}")
    text = line(str(error) or type(error).__name__)
    for outcome, kind, applies in _RULES:
        if applies(error):
            return Termination(outcome, f"{kind}: {text}" if kind else text)
    return None


def _ray(error: BaseException, names: Collection[str]) -> bool:
    return type(error).__module__.startswith("ray") and type(error).__name__ in names


def _device_memory(error: BaseException) -> bool:
    if type(error).__name__ == "OutOfMemoryError":
        return type(error).__module__.startswith("torch")
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY.search(str(error)))


# (outcome, kind of infrastructure failure, whether it applies to an exception); the first that applies counts
_RULES: list[tuple[Outcome, str | None, Callable[[BaseException], bool]]] = [
    (Outcome.CANCELLED, None, lambda error: isinstance(error, Cancelled | KeyboardInterrupt)),
    (Outcome.DIVERGED, None, lambda error: isinstance(error, Diverged)),
    (Outcome.UNSUPPORTED, None, lambda error: isinstance(error, Unsupported)),
    (Outcome.DOES_NOT_FIT, None, _device_memory),
    (Outcome.INFRA, "earlier_attempt", lambda error: isinstance(error, JournalInUse)),
    (Outcome.INFRA, "host_oom", lambda error: isinstance(error, MemoryError) or _ray(error, {"OutOfMemoryError"})),
    (Outcome.INFRA, "disk_full", lambda error: _ray(error, {"OutOfDiskError"})),
    (Outcome.INFRA, "preempted", lambda error: _ray(error, {"PreemptionError"}) or getattr(error, "preempted", False) is True),
    (Outcome.INFRA, "storage_lost", lambda error: type(error).__name__ == "StorageError"),
    (Outcome.INFRA, "worker_lost", lambda error: _ray(error, _RAY_LOST)),
    (Outcome.INFRA, "worker_lost", lambda error: isinstance(error, RuntimeError) and bool(_LOADER_KILLED.search(str(error)))),
]
