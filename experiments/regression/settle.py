"""What judges a cell tonight, pairs or history, and the verdict that both leave. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.stats.verdict import Verdict

_CHANGED = (Verdict.SLOWER, Verdict.FASTER)


class Judge(StrEnum):
    """What a verdict rests on."""

    SCREEN = "screen"  # nothing looked changed; the word is that of the past nights
    PAIRS = "pairs"  # tonight's commit against a good one, on one node
    HISTORY = "history"  # canary and past nights: there was nothing to pair


class Suspect(StrEnum):
    """What a change is put down to."""

    CODE = "code"
    ENVIRONMENT = "environment"  # driver, image, libraries: both commits of a pair have tonight's
    NODE = "node"  # both commits are changed alike tonight, and nothing known changed
    NONE = ""


@dataclass(frozen=True)
class Settled:
    """A cell's verdict tonight, what it rests on, and what is suspected. `why`: of what a reader would wonder about, else empty."""

    verdict: Verdict
    judge: Judge
    suspect: Suspect = Suspect.NONE
    why: str = ""


def can_pair(code_changed: bool | None) -> bool:
    """Whether pairs can tell anything: they compare code, so the code part of the key must differ from that of the good commit.

    None: no good commit is known, or one of both trees was not clean.
    """
    return bool(code_changed)


def settle(
    history: Verdict, looked_changed: bool, pairs: Verdict | None, *, code_changed: bool | None, environment_changed: bool
) -> Settled:
    """The verdict on a cell from those of its past nights (with the canary) and of its pairs (None: none were measured).

    `code_changed`: as in `can_pair`; `environment_changed`: whether tonight's driver, image or libraries are others than the good night's.
    Pairs decide about the code, and only they, where there are any. The environment is the same on both sides of a pair: where it changed,
    and pairs do not show the code to be the cause, history's verdict is put down to it. Where it did not, a change that both commits show
    alike is the node's, and no alarm. Without pairs history judges, and the suspect is what is known to have changed.
    """
    if not looked_changed:
        return Settled(Verdict.SAME if history is Verdict.SAME else Verdict.UNDECIDED, Judge.SCREEN)
    if pairs is not None:
        return _paired(history, pairs, environment_changed)
    if environment_changed:
        suspect, why = (
            Suspect.ENVIRONMENT,
            "its driver, image or libraries changed; pairs cannot tell these, so canary and past nights judge",
        )
    elif code_changed:
        suspect, why = Suspect.CODE, "it was not measured in pairs, so canary and past nights judge"
    elif code_changed is None:
        suspect, why = Suspect.CODE, "no good commit is known to pair with, so canary and past nights judge"
    else:
        suspect, why = Suspect.NODE, "neither its code nor its environment changed"
    return Settled(history, Judge.HISTORY, suspect if history in _CHANGED else Suspect.NONE, why)


def _paired(history: Verdict, pairs: Verdict, environment_changed: bool) -> Settled:
    if pairs in _CHANGED:
        return Settled(pairs, Judge.PAIRS, Suspect.CODE)
    if history in _CHANGED and environment_changed:
        why = "pairs in tonight's environment do not show it to be the code, so canary and past nights judge"
        return Settled(history, Judge.HISTORY, Suspect.ENVIRONMENT, why)
    if pairs is Verdict.UNDECIDED or history not in _CHANGED:
        return Settled(pairs, Judge.PAIRS)
    return Settled(Verdict.SAME, Judge.PAIRS, Suspect.NODE, "both commits are changed alike tonight: the node, not the code")
