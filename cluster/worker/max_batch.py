"""batch_size max: search for the largest batch that fits the device. Probe processes run real steps with the candidate sizes.

The next candidate follows from the answers so far (`next_size`), by a linear model of the memory in use. A probe process tries further
sizes, with all of its ranks, as long as they fit. That a size does not fit only a process that tries it first can tell: what earlier sizes
left in the allocator may be why (FLAVA 2.7b, sharded and checkpointed, on two H200s: 342 samples after 336 did not fit, and in another
search 461 did, after 552, 536, 436 and 486). So such a size ends its process, and the next one begins with it. It gets all earlier answers
on its command line. Where an earlier trial of the cell has searched, the size that it found is tried alone, and a search that was cut off
goes on from the answers that it had (kept_sizes.py). On which device that was is known once a process has answered. The flow cuts a search
off where its sweep's time is over (tasks/sweep/batch_search.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cluster import trial_layout
from cluster.journal.errors import JournalError
from cluster.journal.journal import JournalWriter, read_journal
from cluster.trial_layout import JOURNAL, PROBES, RESULT, TRIAL
from cluster.worker.kept_sizes import KeptSizes, about_of, keep_sizes, read_sizes
from cluster.worker.outcome import TrialEnded
from experiments.atomic_file import atomic_write
from experiments.json_file import read_model
from experiments.parameters import MOST_SAMPLES
from experiments.trial import Outcome, Trial, TrialResult

RESOLUTION = 0.02  # the search ends once the gap is below this share of the size
SECOND = 8  # the second size, if the device reports its memory use
LEAP = 64  # largest ratio of the next size to the largest one that fits
FAR = 2  # ratio of a size that ran out of memory to the largest that fits, beyond which no line is trusted
MISSES = 3  # predictions that may miss before the search bisects
PROBE_STEPS, PROBE_WARMUP = 2, 2
PROBE_HEADROOM = 0.03  # share of device memory that a fitting batch must leave unreserved
PROBE_TIMEOUT_S = 900  # longest time without an answer
PROBE_POLL_S = 0.5
_SECONDS = "SWEEPBENCH_BATCH_SEARCH_S"  # for the ranks, as SearchResult.seconds


@dataclass(frozen=True)
class SearchResult:
    """The largest size that fits, and the sentence about it for the journal. `seconds`: what the search took beyond one of its processes,
    which a repeat on the same node has too; None where nothing was searched."""

    size: int
    note: str
    seconds: float | None = field(default=None, compare=False)


class Answer(NamedTuple):
    """Whether one size fits. `used`: share of the device's memory in use at its peak, 0 to 1; None if unknown."""

    fits: bool
    used: float | None = None
    reason: str | None = None


def search(probe: Callable[[int], Answer], limit: int = MOST_SAMPLES, room: float = 1.0) -> tuple[int, int | None]:
    """(largest size that fits, smallest size that does not). 0: not even one sample fits. None: no size up to `limit` was too large.

    A step's memory grows linearly with the batch size, so two sizes predict the size that uses `room`, the share of memory allowed. The
    search tries sizes 1 and SECOND, then the prediction, then its neighbours with the line refitted. It ends once the gap between the two
    returned sizes is 1, or below RESOLUTION of the size. Only sizes that were tried count. If the device does not report its memory use,
    the size doubles instead. After MISSES predictions that missed, the search bisects the rest. A size that ran out of memory says nothing
    of the line: where it is far from the largest that fits, the geometric mean of both is next, since the line through small sizes may be
    flat (the peak is then where the optimiser's states come to be) and would be as wrong again.
    """
    good, bad, size, misses = 0, None, 1, 0
    points: list[tuple[int, float]] = []
    while True:
        answer = probe(size)
        if answer.used is not None:
            points.append((size, answer.used))
        if answer.fits:
            good = size
        else:
            bad = size
        gap = max(1, int(good * RESOLUTION))
        if good >= limit or (bad is not None and bad - good <= gap):
            return good, bad
        guess = predict(points, room)
        if bad is None:
            ahead = good * (SECOND if len(points) == 1 else 2) if guess is None else max(good + gap, int(guess))
            size = min(ahead, good * LEAP, limit)
        elif guess is None or misses >= MISSES:
            size = (good + bad) // 2
        elif not answer.fits and answer.used is None and bad > FAR * good:
            size = max(good + gap, math.isqrt(good * bad))
        else:
            below = max(1, int(bad * RESOLUTION / (1 + RESOLUTION)))  # fitting this far below `bad` ends the search
            times = 1 if answer.fits or answer.used is not None else 4**misses  # out of memory: the line did not improve
            size = max(good + gap, min(int(guess), bad - below * times))
            misses += 1


class _AnswerNeeded(Exception):
    """The search needs the answer for this size."""

    def __init__(self, size: int) -> None:
        self.size = size


def next_size(known: Mapping[int, Answer]) -> int | None:
    """The size to try next, given the answers so far (`known`: size -> answer); None once the search is over."""

    def recall(size: int) -> Answer:
        if size not in known:
            raise _AnswerNeeded(size)
        return known[size]

    try:
        search(recall, room=1 - PROBE_HEADROOM)
    except _AnswerNeeded as needed:
        return needed.size
    return None


def answer_for(used: float | None) -> Answer:
    """The answer for a size that ran and used the share `used` (0 to 1) of the device's memory."""
    if used is None or used <= 1 - PROBE_HEADROOM:
        return Answer(True, used)
    return Answer(False, used, f"it ran, but only {1 - used:.1%} of the device's memory stayed free, less than {PROBE_HEADROOM:.0%}")


def predict(points: Sequence[tuple[int, float]], room: float) -> float | None:
    """The size that uses the share `room` of memory, by linear extrapolation; None with fewer than two points or without a slope.

    `points`: (size, share used). The line runs through the largest size and the next one that is at most half of it, or else the smallest:
    between neighbouring sizes the allocator's rounding would hide the slope.
    """
    if len(points) < 2:
        return None
    ordered = sorted(points)
    size, used = ordered[-1]
    other, least = max((point for point in ordered if point[0] <= size / 2), default=ordered[0])
    slope = (used - least) / (size - other)
    return size + (room - used) / slope if slope > 0 else None


def find(trial: Trial, options: argparse.Namespace) -> SearchResult:
    """Search with real probes and note each answer in the journal. Raises TrialEnded on a CPU, and if a probe fails for another reason."""
    from cluster.worker import trial_files

    if trial.device == "cpu" and not trial.emulated:
        raise TrialEnded(Outcome.UNSUPPORTED, "batch_size max: a CPU has no memory of its own that could be the limit")
    path = options.out / JOURNAL
    with JournalWriter(path, options.attempt, trial=trial.key) as journal, trial_files.mirror(path, options, part=0):
        journal.append("phase", name="max_batch")
        return _Search(trial, options, lambda text, **figures: journal.append("note", text=text, **figures)).run()


def tell_ranks(search: SearchResult | None) -> None:
    """Leave what the search took in the environment, for this trial's ranks (`seconds_searched`). None: there was none."""
    os.environ.pop(_SECONDS, None)
    if search is not None and search.seconds is not None:
        os.environ[_SECONDS] = str(search.seconds)


def seconds_searched() -> float | None:
    """Of the search before this trial, as SearchResult.seconds."""
    told = os.environ.get(_SECONDS)
    return None if told is None else float(told)


class _Search:
    """One trial's search. `say`: writes a note into its journal, with figures beside the text."""

    def __init__(self, trial: Trial, options: argparse.Namespace, say: Callable[..., None]) -> None:
        self._trial, self._options, self._say = trial, options, say
        self._known: dict[int, Answer] = {}
        self._about: dict[str, Any] = {}  # what the latest answer holds for
        self._code = trial.key_parts.get("code")  # without it nothing tells whether what was found still holds
        self._searches = False  # more than one size is tried
        self._unkept = False  # it was said that nothing can be kept
        self._kept: list[KeptSizes] = []  # what earlier trials found with this code, on whatever device, the latest last
        self._begun: KeptSizes | None = None  # what is gone on with, until the first answer says whether it holds here
        self._refuted: KeptSizes | None = None  # what was kept, and is searched anew

    def run(self) -> SearchResult:
        kept = read_sizes(self._trial.cell, self._say) if self._code else []
        self._kept = [one for one in kept if one.about.get("code") == self._code]
        if kept and not self._kept:
            self._say(f"batch_size max: an earlier trial of this cell found {kept[-1].largest}, with other code: the search starts anew")
        earlier = self._kept[-1] if self._kept else None
        while earlier is not None:
            if next_size(_of_earlier(earlier)) is not None:
                return self._searched(earlier)
            if found := self._tried_again(earlier):
                return found
            earlier = self._found_here() if self._about and earlier.about != self._about else None
        return self._searched()

    def _found_here(self) -> KeptSizes | None:
        """What earlier trials found on this very device."""
        return next((one for one in self._kept if one.about == self._about), None)

    def _tried_again(self, earlier: KeptSizes) -> SearchResult | None:
        """The size that an earlier trial found, if it fits here too and was found in the same circumstances."""
        if not (size := earlier.largest):
            return None
        if size not in self._known:
            self._probe(size, None)
        here = self._about == earlier.about
        if self._known[size].fits and here:
            edge = "" if earlier.too_large is None else f" and {earlier.too_large} did not"
            found = f"{size} samples fit{edge}, as an earlier trial of this cell found"
            return SearchResult(size, f"batch_size max: {found}; tried again: {size} fits")
        self._refuted = None if self._known[size].fits else earlier
        why = "on another device or with other libraries" if self._known[size].fits else "which does not fit now"
        then = "what one found here counts" if not here and self._found_here() else "the search starts anew"
        self._say(f"batch_size max: an earlier trial of this cell found {size}, {why}: {then}")
        return None

    def _searched(self, begun: KeptSizes | None = None) -> SearchResult:
        """A whole search, or the rest of one that was cut off, if what it found out holds here."""
        known, processes, began = self._known, 0, time.monotonic()
        self._searches, self._begun = True, begun
        if begun:
            sizes = ", ".join(str(size) for size in sorted(begun.answers))
            self._say(f"batch_size max: an earlier search had tried {sizes} when it was cut off: this one goes on from there")
            known.update(_of_earlier(begun))
        while (size := next_size(known)) is not None:
            processes += 1
            self._probe(size, known)
        good, bad = search(lambda size: known[size], room=1 - PROBE_HEADROOM)
        if good == 0:
            raise TrialEnded(Outcome.DOES_NOT_FIT, f"batch_size max: not even one sample fits: {known[1].reason}")
        edge = f"the most that the search tries ({MOST_SAMPLES})" if bad is None else f"{bad} does not"
        tried = ", ".join(f"{size} {'fits' if answer.fits else 'does not'}" for size, answer in known.items())
        return SearchResult(
            good,
            f"batch_size max: {good} samples fit, {edge}; a size counts as fitting if its steps, {PROBE_STEPS + PROBE_WARMUP} at a time, "
            f"leave {PROBE_HEADROOM:.0%} of the device's memory free ({tried}; {processes} processes)",
            (time.monotonic() - began) * (1 - 1 / max(1, processes)),  # none, where the size that was tried alone ends the search of before
        )

    def _probe(self, size: int, known: Mapping[int, Answer] | None) -> None:
        probe(self._trial, size, known, self._options, self._report)

    def _report(self, size: int, answer: Answer, about: dict[str, Any]) -> None:
        self._about = about
        if self._begun and about != self._begun.about:
            for other in self._begun.answers:
                del self._known[other]
            then = "this one starts anew"
            if here := self._found_here():
                then = "what one here found counts"
                self._known.update(_of_earlier(here))
                self._known.pop(here.largest, None)  # it is tried again
            self._say(f"batch_size max: the earlier search was on another device or with other libraries: {then}")
        self._begun = None
        self._known[size] = answer
        if self._searches and self._code:  # each answer: the search may be cut off before the next one
            answers = {size: answer[:2] for size, answer in self._known.items()}
            kept, over = KeptSizes(about=about, answers=answers), next_size(self._known) is None
            keep_sizes(self._trial.cell, kept, self._say_unkept, over=over, refuted=self._refuted)
        self._note(size, answer)

    def _say_unkept(self, text: str) -> None:
        """Once: it fails for each answer, and the error names a temporary file, so the text differs."""
        if not self._unkept:
            self._unkept = True
            self._say(text)

    def _note(self, size: int, answer: Answer) -> None:
        """Of a search also what it knows by now: whoever follows the journal tells by that whether there is one."""
        used = "" if answer.used is None else f" with {answer.used:.1%} of the device's memory"
        edges = {
            "fits": max((size for size, answer in self._known.items() if answer.fits), default=None),
            "too_large": min((size for size, answer in self._known.items() if not answer.fits), default=None),
        }
        text = f"batch size {size} {f'fits{used}' if answer.fits else f'does not fit: {answer.reason}'}"
        self._say(text, **({"batch_search": edges} if self._searches else {}))


def _of_earlier(kept: KeptSizes) -> dict[int, Answer]:
    return {size: Answer(fits, used) for size, (fits, used) in kept.answers.items()}


def probe(
    trial: Trial,
    size: int,
    known: Mapping[int, Answer] | None,
    options: argparse.Namespace,
    report_answer: Callable[[int, Answer, dict[str, Any]], None],
) -> None:
    """Try `size` in a new process, which tries further sizes until one does not fit. Passes each answer to `report_answer` as soon as it is
    there, with what it holds for (kept_sizes.py).

    `known`: earlier answers, which say what is to be tried next; None: `size` alone. That `size` does not fit is an answer, that one after
    it does not is none. Raises TrialEnded if the process ends without an answer.
    """
    folder: Path = options.out / PROBES / trial_layout.probe(size, options.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    small = with_batch_size(
        trial, size, steps=PROBE_STEPS, warmup_steps=PROBE_WARMUP, measure_s=None, warmup_s=None, evaluate=False, profile_steps=0
    )
    atomic_write(folder / TRIAL, small.model_dump_json())
    command = [sys.executable, "-m", "cluster.worker.main", "--trial", str(folder / TRIAL), "--out", str(folder)]
    command += ["--attempt", str(options.attempt), "--probe", encode(known)]
    command += ["--placement", options.placement] if options.placement else []
    received = dict(known or {})

    def report(size: int, answer: Answer) -> None:
        report_answer(size, answer, about_of(read_journal(folder / JOURNAL).environment, trial.key_parts.get("code")))

    def listen() -> None:
        for other, answer in answers(folder).items():
            if other not in received:
                received[other] = answer
                report(other, answer)

    with subprocess.Popen(command) as child:
        try:
            code = _wait(child, received, listen)
        except BaseException:  # it hangs, or this trial was cancelled: leave no process behind
            child.terminate()
            raise
    listen()
    result = read_model(folder / RESULT, TrialResult, "the probe wrote it a moment ago")
    if result is None:
        raise TrialEnded(Outcome.INFRA, f"worker_lost: the probe of batch size {size} ended with status {code} and no result")
    if result.outcome is Outcome.DOES_NOT_FIT and size not in received:
        report(size, Answer(False, None, result.reason))
    elif result.outcome not in (Outcome.OK, Outcome.DOES_NOT_FIT):
        failed = size if known is None or size not in received else next_size(received) or size
        raise TrialEnded(str(result.outcome), f"the probe of batch size {failed}: {result.reason}")
    elif size not in received:  # the device does not report its memory use
        report(size, answer_for(None))


def _wait(child: subprocess.Popen[bytes], received: Mapping[int, Answer], listen: Callable[[], None]) -> int:
    """The child's exit status. Raises TimeoutExpired after PROBE_TIMEOUT_S seconds without a new answer."""
    count, deadline = len(received), time.monotonic() + PROBE_TIMEOUT_S
    while True:
        try:
            return child.wait(PROBE_POLL_S)
        except subprocess.TimeoutExpired:
            listen()
            if len(received) > count:
                count, deadline = len(received), time.monotonic() + PROBE_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise


def answers(folder: Path) -> dict[int, Answer]:
    """The answers in a probe's journal, by size; empty while there is no journal."""
    try:
        window = read_journal(folder / JOURNAL).window or {}
    except (OSError, JournalError):
        return {}
    return decode(json.dumps(window.get("probes") or {})) or {}


def encode(known: Mapping[int, Answer] | None) -> str:
    """Answers as JSON, for a probe's command line and journal: size -> [whether it fits, share of memory used or null]; `null` of None."""
    return json.dumps(None if known is None else {str(size): [answer.fits, answer.used] for size, answer in known.items()})


def decode(text: str) -> dict[int, Answer] | None:
    """The answers in `text`, as `encode` writes them."""
    values: dict[str, tuple[bool, float | None]] | None = json.loads(text)
    if values is None:
        return None
    return {int(size): answer_for(used) if fits or used is not None else Answer(False) for size, (fits, used) in values.items()}


def with_batch_size(trial: Trial, size: int, **others: int | bool | None) -> Trial:
    """The trial with `size` instead of max, and with `others` among its parameters. Its key stays, since it is the same trial."""
    return trial.model_copy(update={"parameters": {**trial.parameters, "batch_size": size, **others}})
