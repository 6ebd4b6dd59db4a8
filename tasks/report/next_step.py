"""What would decide what a sweep leaves open: the command, and how long it is expected to take.

`Report.next_step` chooses it. The report, `sweep run`, `show`, `report` and `resume` say that one and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.config import duration
from experiments.parameters import REFERENCE_SEEDS
from experiments.trial import Trial
from tasks.analysis.results import Sweep
from tasks.analysis.row_times import row_times
from tasks.report.commands import is_run, with_repeats
from tasks.report.largest_fit import PEAK_MEMORY, implied
from tasks.sweep.round_time import longest_trials

DECIDE = "To decide more"
MEASURE = "To measure what there was no time for"
MEASURE_AND_DECIDE = f"{MEASURE}, and decide more"
FINISH = "To run the rest"
MENDED = "Once that is mended"
_RESUME = "sweep resume "
MARGIN = 1.1  # of the time that is asked for, over what is expected


@dataclass(frozen=True)
class NextStep:
    """`seconds`: how long the command is expected to take; None where nothing is known of one of its trials. `searches`: whether it goes on
    with a search for the largest batch, or begins one, of which nobody knows how long it takes. `anew`: what measures the sweep from its
    beginning, where the reader may lack the sweep that the command goes on with; else empty."""

    command: str
    seconds: float | None = None
    purpose: str = DECIDE
    searches: bool = False
    anew: str = ""

    @property
    def elsewhere(self) -> str:
        """What works without the sweep that the command goes on with, with a command in backquotes; empty where nothing has to be said."""
        if not self.anew or not self.command.startswith(_RESUME):
            return ""
        return f"That goes on where runs/ has this sweep; without it `{self.anew}` measures it from the beginning."

    @property
    def lead(self) -> str:
        """What stands before the command: `To decide more, in about 12 min`."""
        if self.seconds is None:
            return self.purpose
        search = " and what the search for the largest batch takes" if self.searches else ""
        return f"{self.purpose}, in about {duration.about(self.seconds)}{search}"

    @property
    def text(self) -> str:
        """`To decide more, in about 12 min: sweep resume training-... --budget 14m`."""
        return f"{self.lead}: {self.command}"


@dataclass(frozen=True)
class Outlook:
    """What a next step is made of: the sweep's id and command, and what its trials took, pools side by side.

    `round_s`: one trial of each cell; `left_s`: the trials that have not ended for good. Both in s, None where it is not known. `cut_s`:
    the trials for which there was no time, which come first once there is, s. `searches`: whether one of these is to find the largest batch
    of its cell. `waiting`: whether a trial has not run, or was stopped.
    """

    sweep_id: str = ""
    command: str = ""
    round_s: float | None = None
    left_s: float | None = None
    cut_s: float = 0.0
    searches: bool = False
    waiting: bool = False

    def rest(self) -> NextStep:
        """The trials that have not ended for good."""
        return NextStep(f"sweep resume {self.sweep_id}", self.left_s or None, FINISH)

    def mended(self) -> NextStep:
        """Trials that crashed, whose code is another then, and those that did not run."""
        return NextStep(f"sweep resume {self.sweep_id}", purpose=MENDED)

    def rounds(self, count: int, *, all_cells: bool) -> NextStep | None:
        """So many more rounds; None for what is no `sweep run`, such as a night, and where nothing tells how long one takes."""
        return self.more(count * self.round_s, all_cells=all_cells) if self.round_s and is_run(self.command) else None

    def more(self, rounds_s: float, *, all_cells: bool = False) -> NextStep:
        """More rounds, with a budget somewhat over what they are expected to take, and before them what there was no time for: what was
        measured counts, and so does each look at it, as it would not in a sweep made anew. `all_cells`: also of those whose comparison with
        the baseline is decided."""
        needed_s = self.cut_s + rounds_s
        budget = duration.in_minutes(MARGIN * needed_s)
        purpose = DECIDE if not self.cut_s else MEASURE_AND_DECIDE if rounds_s else MEASURE
        command = f"sweep resume {self.sweep_id} --budget {budget}{' --no-until-decided' if all_cells else ''}"
        return NextStep(command, needed_s, purpose, self.searches)

    def proof(self) -> NextStep | None:
        """The whole sweep anew with references of loss parity, which the suite asks for; None for what is no `sweep run`."""
        command = with_repeats(self.command, REFERENCE_SEEDS)
        purpose = f"To show that it learns the same, with parity_reference: {REFERENCE_SEEDS} in the suite"
        return NextStep(command, purpose=purpose) if command else None


def outlook_of(sweep: Sweep) -> Outlook:
    """From what this sweep's trials took (`row_times`); a cell without one that ended ok takes as long as the last one did that ended for
    good. Nothing is told where a cell of the plan has none: of a trial that was stopped nobody knows how long it would have taken. A cell
    that was never begun, for want of time, is taken to need as long as the longest trial did, with what it compiled."""
    ended = [(row.trial, row.result) for row in sweep.rows if row.result is not None]
    expected = {trial.cell: result.finished_at - result.started_at for trial, result in ended if result.outcome.final}
    if ended:
        longest = max(longest_trials(ended).values(), default=0.0)
        expected = {**{trial.cell: longest for trial in sweep.plan.cut}, **expected}
    times = row_times(sweep.rows, expected)
    cut = worth_measuring(sweep)
    cells = {trial.cell: trial for trial in [*(row.trial for row in sweep.rows), *cut]}
    left = [row.trial for row in sweep.rows if row.result is None or not row.result.outcome.final]
    waiting = any(row.outcome in ("to do", "cancelled") for row in sweep.rows)
    cut_s = times.of_round(cut) or 0.0
    measured = {row.trial.cell for row in sweep.rows if row.outcome == "ok"}  # later trials of these try the size that was found
    searches = any(trial.parameters.get("batch_size") == "max" and trial.cell not in measured for trial in cut)
    return Outlook(sweep.sweep_id, sweep.plan.command, times.of_round(cells.values()), times.of_round(left), cut_s, searches, waiting)


def worth_measuring(sweep: Sweep) -> list[Trial]:
    """The trials for which there was no time; where the suite asks what fits, without those of which other sizes tell it."""
    asks_what_fits = sweep.plan.suite.report.metric == PEAK_MEMORY
    known = implied(sweep.plan.cut, sweep.rows) if asks_what_fits else []
    return [trial for trial in sweep.plan.cut if trial not in known]
