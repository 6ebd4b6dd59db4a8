"""One run of a night: what its steps share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from cluster.git_state import git_branch
from experiments.regression.definition import NightFile
from tasks.nightly.history import History, tonight
from tasks.nightly.pairing import Pairing
from tasks.nightly.plan import plan_night
from tasks.nightly.store import CellVerdict, Night, NightCode, NightStore, NodeState
from tasks.nightly.verdicts import NightVerdicts
from tasks.rounds.growth import seconds_run
from tasks.sweep.plan import renew
from tasks.sweep.slot_waits import SlotWaits
from tasks.sweep.store import Plan, SweepStore

# Beginnings of remarks on what a flow could not do. The next one tries it again, and says so where it still cannot
_NOT_MEASURED = "No time for more repeats"
_NOT_TOLD = ("The verdicts are not in MLflow", "Not told")


class NightRun:
    """A night's definition, record and sweep. A plain class: Prefect searches data classes in a task's arguments, trial by trial."""

    def __init__(self, definition: NightFile, nights: NightStore, night: Night, sweep: SweepStore, plan: Plan) -> None:
        self.definition, self.nights, self.night, self.sweep, self.plan = definition, nights, night, sweep, plan
        self.pairing = Pairing(definition, sweep)
        self._began, self._before_s = time.monotonic(), seconds_run(sweep, plan)
        self.waits = SlotWaits()  # of its trials, for slots that others hold: no time of the night's
        self._past: History | None = None

    @property
    def past(self) -> History:
        """The nights before this one. Raises RuntimeError before they were read."""
        if self._past is None:
            raise RuntimeError("the past nights were not read yet")
        return self._past

    @past.setter
    def past(self, history: History) -> None:
        self._past = history

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left, without what the trials of an interrupted flow took, and with what it waited for
        slots that others hold; negative once it is used up."""
        return self.night.budget_s - self._before_s - (time.monotonic() - self._began) + self.waits.seconds

    def tonight(self) -> History:
        """What the sweep has measured so far."""
        return tonight(self.sweep, self.plan)

    def verdicts(self) -> NightVerdicts:
        """Raises RuntimeError before the past nights were read."""
        return NightVerdicts(self.definition, self.night, self.past, self.nights.all(), self.nights.changes())

    def judged(self) -> tuple[list[CellVerdict], list[NodeState]]:
        """The verdicts on all cells and controls, in the night's order, with what pairs say of them; and those on the nodes.

        Raises RuntimeError before the past nights were read.
        """
        verdicts, now = self.verdicts(), self.tonight()
        items, nodes = verdicts.judgements(now)
        self.pairing.choose(verdicts, items, now, self.plan)
        return [self.pairing.settled(item, self.plan, self.night.date) for item in items], nodes

    def trial_seconds(self) -> dict[tuple[str, str], float]:
        """(identity, role) -> what the last trial of the cell took tonight, s. Pairs count as role `paired`."""
        took: dict[tuple[str, str], float] = {}
        for trial in self.plan.trials:
            result = self.sweep.result(trial.key)
            if result is not None:
                took[trial.labels["night.cell"], trial.labels["night.role"]] = result.finished_at - result.started_at
        return took

    def save(self, **changes: Any) -> None:
        """Change fields of night.json."""
        self.night = self.night.model_copy(update=changes)
        self.nights.save(self.night)

    def remark(self, *sentences: str) -> None:
        """Add sentences to what the report says beside the verdicts, each once."""
        self.save(remarks=list(dict.fromkeys([*self.night.remarks, *sentences])))

    def retract(self, beginnings: tuple[str, ...]) -> None:
        """Remove the remarks that begin so."""
        self.save(remarks=[remark for remark in self.night.remarks if not remark.startswith(beginnings)])


def start_or_resume(
    definition: NightFile, nights: NightStore, night: Night, sweep: SweepStore, pools: Sequence[str], budget_s: float | None = None
) -> NightRun:
    """The run of a claimed night: with its plan under today's code and data, or a new one. Starts no trial; raises as `plan_night`.

    `budget_s`: of a night without a plan, since the start that claimed it may have failed on its budget; null is the one that it has.
    A closed night, which is only to be told, keeps plan and code as they were.
    """
    if night.closed:
        run = NightRun(definition, nights, night, sweep, sweep.load_plan())
        run.retract(_NOT_TOLD)
        return run
    if sweep.exists():
        plan = renew(sweep.load_plan())
    else:
        night = night.model_copy(update={"budget_s": night.budget_s if budget_s is None else budget_s})
        plan, night = plan_night(definition, night, pools)
    code = NightCode(commit=plan.git.get("commit"), dirty=plan.git.get("dirty"), branch=git_branch() if plan.git else None)
    remarks = [remark for remark in night.remarks if not remark.startswith(_NOT_MEASURED)]
    night = night.model_copy(update={"code": code, "remarks": remarks})
    nights.save(night)  # first: without its cells, a plan could not get verdicts
    sweep.save_plan(plan)
    return NightRun(definition, nights, night, sweep, plan)
