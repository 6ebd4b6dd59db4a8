"""Stop a sweep whose first trials all fail for the same reason: what is wrong with the data or the code is wrong for the rest, too."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection

from cluster import disk_errors
from experiments.trial import Outcome, Trial, TrialResult

ENOUGH = 3  # trials that fail alike, each of another cell where there are so many, before any has ended in another way
_DIGITS = re.compile(r"\b[0-9a-f]{8,}\b|\d+")  # keys, addresses, counts: what differs between trials that fail alike
_DISK = tuple(f"{kind}: " for kind in (*(one.kind for one in disk_errors.KINDS), disk_errors.DATA_LOST))


class FirstFailures:
    """Watches the first ends of a flow's trials. Its methods may be called from several threads. `why`: once it has seen enough."""

    def __init__(self, pools: Collection[str] = (), cells: int = ENOUGH) -> None:
        """`pools`: of the sweep. Each of them must have shown the failure: one bad pool says nothing of the others. `cells`: how many it
        has: of fewer than ENOUGH all must have failed, and their repeats count too."""
        self._pools, self._cells, self._lock = set(pools), min(ENOUGH, cells), threading.Lock()
        self._alike: list[Trial] | None = []  # None: a trial has ended in another way
        self._what: tuple[Outcome, str] | None = None
        self.why: str | None = None

    def note(self, trial: Trial, result: TrialResult) -> str | None:
        """Take a trial's end. Gives why the sweep should stop, to the call that completes the picture; else None."""
        if result.outcome is Outcome.CANCELLED:
            return None
        with self._lock:
            if self._alike is None or self.why is not None:
                return None
            what = result.outcome, _DIGITS.sub("#", result.reason or "")
            if not _is_of_the_user(result) or self._what not in (None, what):
                self._alike = None
                return None
            self._what = what
            self._alike.append(trial)
            cells = {one.cell for one in self._alike}
            if len(self._alike) < ENOUGH or len(cells) < self._cells or not {one.pool for one in self._alike} >= self._pools:
                return None
            of = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
            self.why = (
                f"stopped: the first {len(self._alike)} trials, of {of}, all ended as {result.outcome} ({result.reason}); "
                "mend that and resume the sweep"
            )
            return self.why


def _is_of_the_user(result: TrialResult) -> bool:
    """Whether a person can mend it: an error of code or data, or a disk; not a lost node, and no finding about the hardware."""
    return result.outcome is Outcome.CRASHED or (result.outcome is Outcome.INFRA and (result.reason or "").startswith(_DISK))
