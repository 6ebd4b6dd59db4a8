"""Which cells of a night are measured in pairs of two commits, how many pairs come next, and the verdicts that the pairs leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster.pools.pool import load_pools
from experiments.regression.decision import word
from experiments.regression.definition import NightFile, word_of
from experiments.regression.paired_test import PairedEffect, judge_pairs, pairs_to_plan, worth_more
from experiments.regression.screen import BETTER, UNSURE, WORSE
from experiments.regression.settle import Judge, Suspect, settle
from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import Pairs
from tasks.nightly.comparison import counts, log_metric
from tasks.nightly.good_commit import Partners, Refused, partners
from tasks.nightly.history import History
from tasks.nightly.pair_trials import PairMaker, results_of_pairs
from tasks.nightly.plan import templates
from tasks.nightly.store import CHANGED, CellVerdict, Where
from tasks.nightly.verdicts import NightVerdicts
from tasks.report.text_format import plural
from tasks.sweep.store import Plan, SweepStore

_SUSPECTS: dict[Suspect, Where] = {Suspect.ENVIRONMENT: "environment", Suspect.NODE: "node"}


@dataclass(frozen=True)
class _Measured:
    """A cell's pairs by one metric. `ratios`: tonight's commit over the good one, as logarithms, more is better.

    `ended`: pairs of which both trials ended ok on one host. `disturbed`: those of them that do not count, since other work disturbed a
    trial: left out for their state and never for their value, so that the looks over the others keep their levels.
    """

    ratios: list[float]
    ended: int
    disturbed: int

    @property
    def counted(self) -> int:
        """Pairs that count towards the next look."""
        return self.ended - self.disturbed


class Pairing:
    """The pairs of one night. Chooses for each cell once, by what the screen says of it; looks at the commits' files for that."""

    def __init__(self, definition: NightFile, sweep: SweepStore) -> None:
        self.definition, self.sweep = definition, sweep
        self._maker = PairMaker(load_pools())
        self.choices: dict[str, Partners | Refused] = {}
        self.out_of_time: set[str] = set()  # cells whose next pairs did not fit the budget

    def choose(self, verdicts: NightVerdicts, items: Sequence[CellVerdict], now: History, plan: Plan) -> None:
        """Find the partners of each cell that looks changed, or why it has none."""
        first = templates(plan)
        for item in items:
            if not self.definition.pairs or item.looked is None or item.cell in self.choices:
                continue
            template = first.get((item.cell, "history"))
            if template is not None:
                good = verdicts.good_night(item, now)
                self.choices[item.cell] = partners(self._maker, template, plan.git, good)

    def pairs(self, item: CellVerdict, plan: Plan) -> Pairs | None:
        """What the pairs of a cell's metric say so far; None for a cell without partners."""
        chosen = self.choices.get(item.cell)
        if not isinstance(chosen, Partners):
            return None
        measured = self._measured(chosen, item.metric, plan)
        effect = self._effect(measured, item)
        record = Pairs(
            good=str(chosen.good.commit),
            good_date=chosen.night.date,
            tonight=str(chosen.tonight.commit),
            count=len(measured.ratios),
            disturbed=measured.disturbed,
            verdict=Verdict.UNDECIDED,
        )
        if effect is None:
            return record.model_copy(update={"why": self._why_open(item, None, measured)})
        verdict, found = effect
        ratio = found.estimate()
        why = self._why_open(item, found, measured) if verdict is Verdict.UNDECIDED else None
        told = {"count": found.n, "verdict": verdict, "ratio": ratio.value, "low": ratio.low, "high": ratio.high, "why": why}
        return record.model_copy(update=told)

    def _effect(self, measured: _Measured, item: CellVerdict) -> tuple[Verdict, PairedEffect] | None:
        """The verdict of the pairs at their last look and what it rests on; None with fewer than two."""
        if len(measured.ratios) < 2:
            return None
        usual = item.within or math.nan
        code, found = judge_pairs(measured.ratios, usual, item.minimum, looks=self.definition.pairs, alpha=self.definition.alpha)
        return word(int(code)), found

    def _measured(self, chosen: Partners, metric: str, plan: Plan) -> _Measured:
        results = results_of_pairs(self.sweep, plan, chosen.good, chosen.tonight)
        kept = [(good, now) for good, now in results if counts(good.disturbed, metric) and counts(now.disturbed, metric)]
        ratios = [log_metric(now.summary.get(metric), metric) - log_metric(good.summary.get(metric), metric) for good, now in kept]
        return _Measured([ratio for ratio in ratios if math.isfinite(ratio)], len(results), len(results) - len(kept))

    def _why_open(self, item: CellVerdict, found: PairedEffect | None, measured: _Measured) -> str:
        disturbed = "" if measured.ratios or not measured.disturbed else f"other work disturbed {plural(measured.disturbed, 'pair')}"
        if item.cell in self.out_of_time:
            return f"{disturbed}, and there was no time for more" if disturbed else "there was no time for more"
        if len(measured.ratios) >= self.definition.pairs[-1]:
            return "that is the most"
        if found is not None and not _worth_more(found, item):
            return "more would hardly show what the screen saw"
        return disturbed or "of too few did both trials end ok, undisturbed, on one node"

    def wanted(self, items: Sequence[CellVerdict], plan: Plan) -> list[tuple[CellVerdict, Partners, int]]:
        """(verdict by the screen, partners, pairs to plan in all) of the cells whose pairs have not decided, what looks worst first."""
        found: dict[str, tuple[CellVerdict, Partners, int]] = {}
        for item in sorted(items, key=lambda item: min(item.ratio or 1.0, item.raw or 1.0)):
            chosen = self.choices.get(item.cell)
            if item.looked is None or not isinstance(chosen, Partners) or item.cell in found:
                continue
            measured = self._measured(chosen, item.metric, plan)
            effect = self._effect(measured, item)
            planned = sum(trial.cell == chosen.good.cell for trial in plan.trials)
            count = pairs_to_plan(planned, measured.counted, self.definition.pairs)
            open_ = effect is None or (effect[0] is Verdict.UNDECIDED and _worth_more(effect[1], item))
            if open_ and count is not None and (not planned or measured.ended):
                found[item.cell] = (item, chosen, count)
        return list(found.values())

    def settled(self, item: CellVerdict, plan: Plan, tonight: str) -> CellVerdict:
        """The verdict on a cell's metric with what its pairs say, or with why it has none. `tonight`: the date."""
        chosen = self.choices.get(item.cell)
        if item.looked is None or chosen is None or (item.crept and isinstance(chosen, Refused)):
            return item
        pairs = self.pairs(item, plan)
        not_paired = chosen.why if isinstance(chosen, Refused) else None
        if pairs is not None and pairs.ratio is None:  # fewer than two: they tell of no difference, so they settle nothing
            not_paired, pairs = pairs.why, None
        measured = pairs.verdict if pairs is not None else None
        night = chosen.night if isinstance(chosen, Partners) else chosen
        found = settle(item.verdict, measured, code_changed=night.code_changed, environment_changed=night.environment_changed)
        changed = found.verdict in CHANGED
        by_pairs: Where | None = "code" if found.judge is Judge.PAIRS and changed else None
        where = _SUSPECTS.get(found.suspect) or (by_pairs or item.where if changed else None)
        refuted = by_pairs is not None and item.verdict not in CHANGED and item.where is not None  # "the node, and the cell with it"
        return item.model_copy(
            update={
                "verdict": found.verdict,
                "word": word_of(found.verdict, item.metric),
                "where": where,
                "why": "; ".join(text for text in (None if refuted else item.why, found.why) if text) or None,
                "alarm_since": (item.alarm_since or tonight) if changed else (None if item.alarm_since == tonight else item.alarm_since),
                "causes": item.causes if changed else [],
                "pairs": pairs,
                "not_paired": not_paired,
            }
        )


def _worth_more(found: PairedEffect, item: CellVerdict) -> bool:
    """Whether more pairs may still show what the screen saw of a cell."""
    seen = {Verdict.SLOWER: WORSE, Verdict.FASTER: BETTER}.get(item.looked or Verdict.UNDECIDED, UNSURE)
    return bool(worth_more(found, seen, item.minimum))
