"""What judges a cell that looked changed, pairs or history, and the verdict that both leave. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from experiments.stats.verdict import Verdict

_CHANGED = (Verdict.SLOWER, Verdict.FASTER)


class Judge(StrEnum):
    """What a verdict rests on."""

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


def settle(history: Verdict, pairs: Verdict | None, *, code_changed: bool | None, environment_changed: bool) -> Settled:
    """The verdict on a cell that looked changed, from those of its past nights (with the canary) and of its pairs (None: there are none).

    `code_changed`: as in `can_pair`; `environment_changed`: whether tonight's driver, image or libraries are others than the good night's.
    Pairs decide about the code, and only they, where there are any. The environment is the same on both sides of a pair: where it changed,
    and pairs do not show the code to be the cause, history's verdict is put down to it. Where it did not, a change that both commits show
    alike is the node's, and no alarm. Without pairs history judges, and the suspect is what is known to have changed.
    """
    if pairs is not None:
        return _paired(history, pairs, environment_changed)
    if history not in _CHANGED:
        return Settled(history, Judge.HISTORY)
    if environment_changed:
        return Settled(history, Judge.HISTORY, Suspect.ENVIRONMENT)
    return Settled(history, Judge.HISTORY, Suspect.NODE if code_changed is False else Suspect.CODE)


def _paired(history: Verdict, pairs: Verdict, environment_changed: bool) -> Settled:
    if pairs in _CHANGED:
        return Settled(pairs, Judge.PAIRS, Suspect.CODE)
    if history in _CHANGED and environment_changed:
        why = "pairs in tonight's environment do not show it to be the code, so canary and past nights judge"
        return Settled(history, Judge.HISTORY, Suspect.ENVIRONMENT, why)
    if pairs is Verdict.UNDECIDED or history not in _CHANGED:
        return Settled(pairs, Judge.PAIRS)
    return Settled(Verdict.SAME, Judge.PAIRS, Suspect.NODE, "both commits are changed alike tonight: the node, not the code")
