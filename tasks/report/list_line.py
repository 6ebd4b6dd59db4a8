"""What a sweep found, short enough for a line of a list, such as a page's contents. Reasons stand in the sweep's own section."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.metric import Kind
from tasks.analysis.cell import Cell
from tasks.report.answer import MOST_NAMES, NOT_CLAIMED, Answer, over_baseline, superlative
from tasks.report.cell_names import names_among
from tasks.report.group_answers import is_any_compared, of_groups
from tasks.report.model import Report
from tasks.report.text_format import change_text, listed, quantity, spread

_OPENINGS = ("Undecided", "No ", "Not ", "A winner", "Each cell")  # of what is found, where no cell's name begins it
_ROOM = 60  # characters of the names of several others; of longer ones the number is told


def list_line(report: Report) -> str:
    """One sentence with its stop. Of a sweep without an answer its headline; of one over several devices how its rate grows, and of one
    that asked what fits what does; of several groups of work what is decided in each."""
    if report.no_answer:
        return _stopped(report.headline)
    answers = report.answers
    if is_any_compared(answers):
        once = all(answer.early and answer.best.ran_once for answer in answers)  # of all groups the same is to be said then
        found = [_of_one(answers[0]) if once or len(answers) == 1 else of_groups(answers)]
    else:
        found = [] if report.of_all else [_compared_with_nothing(answers)]
    if report.of_all:
        found = [f"{one[:1].lower()}{one[1:]}" if one.startswith(_OPENINGS) else one for one in found]
    return _stopped("; ".join([*report.of_all, *found, *_by_batch(answers)]))


def _stopped(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _of_one(answer: Answer) -> str:
    best = answer.best
    if answer.ahead_of is not None:
        claim = "" if answer.winner else f"; {NOT_CLAIMED}"
        measured = f"{best.short} {'is' if answer.winner else 'was measured'} {superlative(best.metric)}: {_value(answer)}"
        return (
            f"{measured}, {answer.lead} over {'the next, ' if answer.compared > 2 else ''}{_others(best, [answer.ahead_of.other])}{claim}"
        )
    if answer.early:
        return answer.headline if best.ran_once else f"{answer.headline}; best measured: {best.short}, {_value(answer)}"
    if not answer.level:  # a race's, or a cell alone
        return f"{answer.headline}: {_value(answer)}" if answer.winner else answer.headline
    if answer.same_within:
        return (
            f"No clear winner: {best.short}, {_value(answer)}, is the same to within {answer.same_within} as {_others(best, answer.level)}"
        )
    over = f"; {change_text(best.speedup, best.metric)} over the baseline" if best.speedup and over_baseline(best) else ""
    return f"No clear winner: {best.short}, {_value(answer)}, is not shown to differ from {_others(best, answer.level)}{over}"


def _others(best: Cell, others: Sequence[Cell]) -> str:
    """`MP-0`, `the same with MP-0 and MP-2` where they have more in common with the best cell; where that is long how many they are."""
    common, (_, *names) = names_among([best, *others])
    if len(names) > 1 and (len(names) > MOST_NAMES or sum(map(len, names)) > _ROOM):
        return f"{len(names)} others"
    return f"{'the same with ' if common else ''}{listed(names, MOST_NAMES)}"


def _compared_with_nothing(answers: Sequence[Answer]) -> str:
    told = [f"{answer.work or answer.best.short}: {_value(answer)}" for answer in answers[:MOST_NAMES]]
    more = [f"and {len(answers) - MOST_NAMES} more"] if len(answers) > MOST_NAMES else []
    once = ", each of one trial" if all(answer.best.ran_once for answer in answers) else ""
    return f"Compared with nothing{once}: {'; '.join([*told, *more])}"


def _value(answer: Answer) -> str:
    """With its interval: a ratio's beside it is of the difference between cells."""
    best = answer.best
    assert best.estimate is not None
    return f"{quantity(best.estimate.value, best.metric)} {spread(best.estimate, best.metric)}".rstrip()


def _by_batch(answers: Sequence[Answer]) -> list[str]:
    """That a time by sample is no sample's own, where batches have several; a title may call it `seconds a summary`."""
    metric = answers[0].best.metric
    several = any(answer.best.trial.parameters.get("batch_size") not in (None, 1) for answer in answers)
    return [f"{metric.label} is {metric.meaning}"] if several and metric.kind is Kind.SECONDS and metric.meaning else []
