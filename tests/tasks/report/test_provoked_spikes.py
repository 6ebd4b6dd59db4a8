"""Which provocations a loss spike followed: in the table, in its legend and in the sentence of a sweep's finding."""

from __future__ import annotations

import pytest

from tasks.analysis.trial_row import TrialRow
from tasks.report.provoked_spikes import ABOUT, COLUMN
from tasks.report.sections.loss_spikes import spike_table, spikes_sentence
from tests.tasks.cell_support import column, made, report_of, settings, watched_row

SUITE = settings(columns="update_rule", baseline={})


def provoked(rule: str = "adamw", every: int = 200, factor: float = 10.0, **more: object) -> TrialRow:
    """Of 400 steps, 300 are judged; its loss spikes begin at 204 and 350."""
    one = watched_row(rule, **more)  # type: ignore[arg-type]
    one.trial.parameters.update(signal_every=every, signal_factor=factor)
    return one


@pytest.mark.parametrize(
    ("every", "found"),
    [
        (195, "1 of 2"),  # steps 196 and 391: the spike at 204 begins 8 later
        (194, "0 of 2"),  # 195: nine before it
        (202, "1 of 1"),  # 203: one before it; 405 is beyond the trial
        (203, "0 of 1"),  # the step of the spike itself: its loss is of before the update
        (196, "1 of 1"),  # 393: the trial ends before a spike that begins 8 steps later
        (99, "1 of 2"),  # 100 is not judged; 199, 298; 397 is too late
        (100, "1 of 3"),  # 101, 201, 301
    ],
)
def test_a_provocation_is_followed_by_a_spike_that_begins_1_to_8_steps_later(every: int, found: str) -> None:
    assert column(spike_table(made([provoked(every=every)], SUITE)), COLUMN) == [found, ""]


def test_repeats_are_summed_and_cells_without_a_provocation_have_a_dash() -> None:
    rows = [provoked(repeat=1), provoked(repeat=2, every=150), provoked("plain", factor=1.0), watched_row("none")]
    section = report_of(rows).section("loss_spikes")
    # 201 of the first repeat, 151 and 301 of the second
    assert column(section.table, COLUMN) == ["1 of 3", "", "–", "", "–", ""]
    assert section.text.endswith(f"in the table of the comparison. {ABOUT.format(1, 8)}")
    told = spikes_sentence(made(rows, SUITE))
    assert told.startswith("Loss spikes: 4 in 2 trials of adamw (2 each, after 1 of 3 provocations), 2 in 1 trial of plain, ")


def test_of_one_trial_the_sentence_tells_its_provocations_alone() -> None:
    assert spikes_sentence(made([provoked()], SUITE)) == "Loss spikes: 2 in 1 trial of gpu · adamw (after 1 of 1 provocation)."


@pytest.mark.parametrize("more", [{"factor": 1.0}, {"every": 0}, {"every": 399}])
def test_where_nothing_is_provoked_there_is_no_column(more: dict[str, float]) -> None:
    """Also where the only one comes too late to be judged."""
    rows = [provoked(**more)]  # type: ignore[arg-type]
    assert COLUMN not in spike_table(made(rows, SUITE)).header
    assert "provocation" not in spikes_sentence(made(rows, SUITE)) + report_of(rows).section("loss_spikes").text


def test_steps_of_several_batches_are_not_told() -> None:
    one = provoked()
    one.trial.parameters["accumulation_steps"] = 2
    assert COLUMN not in spike_table(made([one], SUITE)).header


def test_of_spikes_that_are_not_known_neither_is_what_they_follow() -> None:
    one = provoked()
    one.losses[:] = float("nan")
    assert column(spike_table(made([one], SUITE)), COLUMN) == ["–", ""]
    assert spikes_sentence(made([one], SUITE)) == "Loss spikes: unknown in 1 trial of gpu · adamw."
