"""Where a sweep's held time went, in words: the parts put together in groups that a line and a bar can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.analysis.held_time import DISCARDED, FAILED, MEASURED, NO_RATE, PARTS, UNKNOWN, WAITING, HeldTime
from tasks.report.text_format import number, plural

# group -> its parts, in the order of a trial
GROUPS: Mapping[str, tuple[str, ...]] = {
    PARTS[WAITING]: (WAITING,),
    "between trials": ("between",),
    PARTS[NO_RATE]: (NO_RATE,),
    PARTS[FAILED]: (FAILED,),
    PARTS[DISCARDED]: (DISCARDED,),
    "start": ("launch", "imports", "hold", "set_up"),
    "batch search": ("batch_search",),
    "data and build": ("data", "build", "keep_weights"),
    "evaluation": ("evaluation",),
    "first step": ("first_step",),
    "warm-up": ("warmup",),
    "measured": (MEASURED,),
    "beside the window": ("beside",),
    "teardown": ("teardown",),
    "not recorded": (UNKNOWN,),
}
NOT_KNOWN = "how long the pools were held was not recorded: an earlier version ran this sweep, or none of its trials has begun"
EMULATED = "on an emulated device, so nothing of it is a measurement"
_SMALL = 0.01  # shares below it are put together


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """Slot-seconds by group, in the order of GROUPS, without those that are 0."""
    sums = {group: sum(parts.get(part, 0.0) for part in of_group) for group, of_group in GROUPS.items()}
    return {group: seconds for group, seconds in sums.items() if seconds}


def held_sentence(held: HeldTime) -> str:
    """measured 61 % of the 96 s that the pool was held; the rest: 14 % start, 9 % warm-up, 2 % other."""
    shares = {group: seconds / held.seconds for group, seconds in grouped(held.parts).items()}
    measured = shares.pop("measured", 0.0)
    named = sorted(((share, group) for group, share in shares.items() if share >= _SMALL), reverse=True)
    other = sum(share for share in shares.values() if share < _SMALL)
    rest = [f"{share_told(share)} {group}" for share, group in [*named, *([(other, "other")] if other else [])]]
    emulated = f" ({EMULATED})" if all(trial.emulated for trial in held.trials) else ""
    what = f"{number(held.seconds, 3)} s that the pool was held"
    if held.slots > 1:
        what = f"{number(held.seconds, 3)} slot-seconds that {plural(held.slots, 'slot')} were held"
    return f"measured {share_told(measured)} of the {what}{emulated}" + (f"; the rest: {', '.join(rest)}" if rest else "")


def held_json(held: HeldTime) -> dict[str, Any]:
    """What `sweep show --json` says: seconds of slots, all of them and by part."""
    return {
        "seconds": held.seconds,
        "slots": held.slots,
        "measured_share": held.measured_share,
        "parts": dict(held.parts),
        "trials": [{"key": one.trial, "pool": one.pool, "emulated": one.emulated, "parts": dict(one.parts)} for one in held.trials],
    }


def share_told(share: float) -> str:
    """`61 %`, `<1 %`."""
    return "<1 %" if 0 < share < 0.005 else f"{share:.0%}".replace("%", " %")
