"""What share of the time that a sweep held its pools was measured, and where the rest went.

Held time: of each slot, from when the sweep's first trial took it to when its last gave it back, summed over slots (slot-seconds), without
the time between two flows over the sweep. It is cut at the marks that slots.jsonl and the journals hold; each piece goes to exactly one
part, so the parts add up to it. A piece that no mark tells about is `not_recorded`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.journal.lines import Record
from experiments.trial import Outcome
from tasks.sweep.slot_log import Hold

MEASURED, NO_RATE, FAILED, DISCARDED, UNKNOWN = "measured", "no_rate", "failed", "discarded", "not_recorded"
WAITING = "waiting"  # while another sweep holds the slots
# part -> what it is called, in the order in which a trial goes through them
PARTS: Mapping[str, str] = {
    WAITING: "waiting for a slot",
    "between": "between trials",
    "launch": "launch of the process",
    "imports": "imports",
    "hold": "waiting for the flow",
    "batch_search": "search for the largest batch",
    "set_up": "device set-up",
    "data": "data",
    "build": "model build",
    "keep_weights": "writing weights for later trials",
    "evaluation": "evaluation",
    "first_step": "first step",
    "warmup": "warm-up",
    MEASURED: "measured",
    "beside": "beside the window",
    "teardown": "teardown",
    NO_RATE: "trials that did not fit or are unsupported",
    FAILED: "trials that failed or were stopped",
    DISCARDED: "discarded attempts",
    UNKNOWN: "not recorded",
}
# a phase of the journal -> the part that begins with it
_BEGINS = {
    "imports": "imports",
    "max_batch": "batch_search",
    "hold": "hold",
    "start": "set_up",
    "data": "data",
    "build": "build",
    "keep_weights": "keep_weights",
    "evaluate": "evaluation",
    "first_step": "first_step",
    "warmup": "warmup",
    "measure": "beside",
    "profile": "beside",
    "rates": "beside",
    "communication": "beside",
    "window": "beside",
    "done": "teardown",
}


@dataclass(frozen=True)
class AttemptMarks:
    """When an attempt went from part to part: (Unix time, s; part), in order. Empty where its journal told nothing."""

    marks: Sequence[tuple[float, str]] = ()
    last: float | None = None  # its last record, Unix time, s


@dataclass(frozen=True)
class Ended:
    """How a trial ended: the attempt that its result is of, and the part that all of this attempt is; None where it was measured."""

    attempt: int
    whole: str | None = None


@dataclass(frozen=True)
class HeldTrial:
    """The slot-seconds of one hold, by part, and of the time before it in which its slots stood idle. In the order of the run."""

    trial: str
    pool: str
    parts: Mapping[str, float]
    emulated: bool = False

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class HeldTime:
    """The held time of a sweep. `slots`: how many different slots it held."""

    trials: Sequence[HeldTrial]
    slots: int = 1
    parts: Mapping[str, float] = field(init=False)  # slot-seconds, in the order of PARTS, without those that are 0

    def __post_init__(self) -> None:
        sums = dict.fromkeys(PARTS, 0.0)
        for trial in self.trials:
            for part in trial.parts.keys() & PARTS.keys():
                sums[part] += trial.parts[part]
        object.__setattr__(self, "parts", {part: seconds for part, seconds in sums.items() if seconds})

    @property
    def seconds(self) -> float:
        """All of it, slot-seconds."""
        return sum(self.parts.values())

    @property
    def runs(self) -> int | None:
        """How often trials of the sweep were begun: by its command, by that again or by `sweep resume`. None where it held several slots.

        The first hold of each of these follows none of its own, so that no time between two holds is recorded with it.
        """
        if self.slots != 1:
            return None
        return sum(not {"waiting", "between"} & trial.parts.keys() for trial in self.trials)

    @property
    def measured_share(self) -> float | None:
        """The share that was measured, 0 to 1; None where nothing was held."""
        return self.parts.get(MEASURED, 0.0) / self.seconds if self.seconds else None


def ended_with(attempt: int, outcome: Outcome) -> Ended:
    """How a trial ended whose result is of this attempt."""
    return Ended(attempt, None if outcome is Outcome.OK else NO_RATE if outcome.expected else FAILED)


def attempt_marks(records: Sequence[Record]) -> AttemptMarks:
    """The marks of one attempt's journal records. The measured part ends with its last measured step and lasts as long as its window.

    Steps of the window that no rate has, since torch compiled in them, are no part of it: they count as warm-up.
    """
    marks: list[tuple[float, str]] = []
    window_s = math.inf
    measure_at, measured_until = 0.0, None
    steps: dict[int, tuple[float, float]] = {}  # measured ones: from when to when
    left_out: Sequence[int] = ()
    for record in records:
        kind, at = record["kind"], float(record["t"])
        if kind == "phase" and (part := _BEGINS.get(record["name"])):
            marks.append((at, part))
            measure_at = at if record["name"] == "measure" else measure_at
        elif kind == "step" and record["measured"]:
            measured_until = at
            steps[int(record["step"])] = at - float(record.get("total_s", 0.0)), at
        elif kind == "window":
            window_s = float(record["wall_s"])
            marks.append((at, "beside"))
            left_out = record.get("left_out_steps", ())
        elif kind == "evaluation":  # at its end: what follows is no phase of its own, such as counting FLOPs
            marks.append((at, "beside"))
        elif kind == "end":
            marks.append((at, "teardown"))
    if measured_until is not None:  # its window is recorded later, after the evaluation
        begin = max(measured_until - window_s, measure_at)
        marks.append((begin, MEASURED))
        for since, until in sorted(steps[step] for step in left_out if step in steps):
            marks += [(max(since, begin), "warmup"), (until, MEASURED)]
            begin = until  # the next one's time may begin a little before this one's end
        marks.append((measured_until, "beside"))
    return AttemptMarks(sorted(marks, key=lambda mark: mark[0]), max((float(record["t"]) for record in records), default=None))


def marks_of(records: Iterable[Record]) -> dict[int, AttemptMarks]:
    """The marks of each attempt in the records of a journal, by number.

    An attempt that looked for the largest batch begins twice: before the search and after it.
    """
    attempts: dict[int, list[Record]] = {}
    number = 0
    for record in records:
        number = int(record["attempt"]) if record["kind"] == "attempt" else number
        attempts.setdefault(number, []).append(record)
    return {number: attempt_marks(of_attempt) for number, of_attempt in attempts.items()}


def account(
    holds: Sequence[Hold],
    attempts: Callable[[str], Mapping[int, AttemptMarks]],
    ended: Mapping[str, Ended | None],
    emulated: frozenset[str] = frozenset(),
) -> HeldTime:
    """The held time of a sweep from its holds (`read_holds`).

    `attempts(key)`: the marks of a trial's attempts, by number. `ended`: by a trial's key; None where it was run again under another key,
    so that no attempt of it counts. A trial that is not in it has not ended: its last attempt is counted for now. `emulated`: keys.
    A hold that nobody ended lasts until the last record of the attempts that its trial began before the slot was next taken, and at most
    until then.
    """
    free_since: dict[tuple[str, str], float] = {}  # (flow, slot) -> when it was last given back
    ends = _ends(holds, attempts)
    trials = []
    for hold, end in zip(holds, ends, strict=True):
        parts: dict[str, float] = defaultdict(float)
        for slot in hold.slots:
            since = free_since.get((hold.flow, slot))
            if since is not None:
                since = min(since, hold.taken)  # a clock that was set back makes no part negative
                asked = min(max(hold.asked, since), hold.taken)
                parts["between"] += asked - since
                parts["waiting"] += hold.taken - asked
            free_since[hold.flow, slot] = end
        for part, seconds in _parts_of_hold(hold, end, attempts(hold.trial), ended).items():
            parts[part] += seconds * len(hold.slots)
        trials.append(HeldTrial(hold.trial, hold.pool, {part: parts[part] for part in PARTS if parts.get(part)}, hold.trial in emulated))
    return HeldTime(trials, len({slot for hold in holds for slot in hold.slots}))


def _ends(holds: Sequence[Hold], attempts: Callable[[str], Mapping[int, AttemptMarks]]) -> list[float]:
    ends = []
    for number, hold in enumerate(holds):
        if hold.given_back is not None:
            ends.append(max(hold.given_back, hold.taken))
            continue
        following = min((other.taken for other in holds[number + 1 :] if set(other.slots) & set(hold.slots)), default=math.inf)
        begun = [marks for marks in attempts(hold.trial).values() if not marks.marks or marks.marks[0][0] < following]
        signs = [at for at, _ in hold.starts] + [marks.last for marks in begun if marks.last is not None]
        ends.append(max(hold.taken, min(max(signs, default=hold.taken), following)))
    return ends


def _parts_of_hold(hold: Hold, end: float, attempts: Mapping[int, AttemptMarks], ended: Mapping[str, Ended | None]) -> dict[str, float]:
    """Seconds by part. The time from one attempt's start to the next one's is the former's. All of one that is not the result is
    `discarded`: there is another, or the trial was run again."""
    first = hold.starts[0][1] if hold.starts else max(attempts, default=1)  # without one, another flow had started it, or nobody did
    starts = [(hold.taken, first), *hold.starts[1:]]
    last = Ended(max([*attempts, *(number for _, number in starts)]))
    counts = ended.get(hold.trial, last)
    cuts = [*(min(at, end) for at, _ in starts), end]
    parts: dict[str, float] = defaultdict(float)
    for (_, number), begin, until in zip(starts, cuts, cuts[1:], strict=False):
        whole = counts.whole if counts and number == counts.attempt else DISCARDED
        if whole:
            parts[whole] += until - begin
            continue
        marks = attempts.get(number, AttemptMarks()).marks
        told = not marks or any(part == "imports" for _, part in marks)  # early journals do not tell when the process began
        for part, seconds in _cut(begin, until, "launch" if told else UNKNOWN, marks):
            parts[part] += seconds
    return parts


def _cut(begin: float, end: float, part: str, marks: Sequence[tuple[float, str]]) -> list[tuple[str, float]]:
    """The pieces of [begin, end], which starts in `part`. Marks outside of it are moved to its nearest end."""
    pieces, at = [], begin
    for mark, following in marks:
        cut = min(max(mark, at), end)
        pieces.append((part, cut - at))
        at, part = cut, following
    return [*pieces, (part, end - at)]
