"""Spikes in the report: the table's counts, the figure with a panel for each cell, and reports without any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.analysis.trial_row import TrialRow
from tasks.report.figures.loss_spikes import spike_figure
from tasks.report.headline import headline_of
from tasks.report.list_line import list_line
from tasks.report.model import make_report
from tasks.report.sections.loss_spikes import ABOUT, ACCIDENT, spike_table, spikes_of, spikes_sentence
from tasks.report.write import write_report
from tests.tasks.cell_support import column, made, report_of, row, settings, watched_row
from tests.tasks.fake_sweep import Fake, make_sweep

STEPS = 400


def fake(rule: str, *, spiky: bool, **more: object) -> Fake:
    """RMS spikes at 200 and 300; the loss follows the first of them four steps later, for three steps."""
    return Fake(
        {"pool": "gpu", "update_rule": rule, "dataloader_workers": 0},
        steps=STEPS,
        loss=lambda step: 2.0 + (step in (204, 205, 206)) * 2.0 * spiky,
        rms=lambda step: 4.0 if spiky and step in (200, 201, 300) else 1.0,
        parameters={"spikes_after": 100},
        window={"spikes_after": 100},
        **more,  # type: ignore[arg-type]
    )


def test_the_report_counts_spikes_and_draws_them(tmp_path: Path) -> None:
    sweep_dir = make_sweep(tmp_path, [fake("adamw", spiky=True, repeats=2), fake("stable_adamw", spiky=False)])
    report = make_report(load_sweep(sweep_dir))
    spikes = report.section("loss_spikes").table
    by_cell = {row[0]: dict(zip(spikes.header, row, strict=True)) for row in spikes.rows}
    spiky, quiet = by_cell["adamw"], by_cell["stable_adamw"]
    assert (spiky["loss spikes"], spiky["RMS spikes of patch"], spiky["explained"], spiky["largest RMS"]) == ("2", "4", "2 of 2", "4.00")
    assert (spiky["outcome"], spiky["steps judged"], spiky["by chance"]) == ("ok, 2 repeats", "600", "5.3 %")
    assert 1.9 < float(spiky["largest rise"]) < 2.1 and quiet["largest rise"] == "–"
    assert (quiet["loss spikes"], quiet["RMS spikes of patch"], quiet["explained"]) == ("0", "0", "–")
    paths = write_report(sweep_dir)
    assert "## Spikes" in paths.markdown.read_text() and "<h2>Spikes</h2>" in paths.html.read_text()
    drawn = (sweep_dir / "figures" / "spikes.svg").read_text()
    assert "loss spike, explained by an RMS spike" in drawn and ">adamw<" in drawn and ">stable_adamw<" in drawn
    figure = spike_figure(report.cells)
    assert figure is not None and len({tuple(axes.get_ylim()) for axes in figure.axes[:2]}) == 1, "one scale for all losses"


def test_one_sentence_counts_the_loss_spikes_of_each_cell(tmp_path: Path) -> None:
    """Where a sweep's finding is told in a line, its table is of another metric, such as the loss at the end."""
    sweep_dir = make_sweep(tmp_path, [fake("adamw", spiky=True, repeats=2), fake("stable_adamw", spiky=False)])
    report = make_report(load_sweep(sweep_dir))
    told = "Loss spikes: 2 in 2 trials of adamw (1 each), 0 in 1 trial of stable_adamw"
    assert report.spikes == f"{told}."
    assert report.of_all == [told] and f"{told}; " in list_line(report)
    assert report.spikes in headline_of(report).details
    paths = write_report(sweep_dir)
    assert report.spikes in paths.markdown.read_text().replace("\\", "") and "Loss spikes: 2 in 2" in paths.html.read_text()
    assert spikes_sentence(made([watched_row("a"), quiet("a", 2), quiet("a", 3)])) == "Loss spikes: 2 in 3 trials of gpu · a (0 to 2 each)."
    assert spikes_sentence(made([row({"pool": "gpu"})])) == "", "none is looked for"
    few = watched_row("b")
    few.losses[:] = np.nan
    assert spikes_sentence(made([few])) == "Loss spikes: unknown in 1 trial of gpu · b."


@pytest.mark.parametrize(
    ("count", "begins"),
    [(8, "Loss spikes: 2 in 1 trial of "), (9, "Loss spikes in 8 of 9 cells, the most 4 in 2 trials of rule-3 (2 each).")],
)
def test_of_many_cells_the_one_with_the_most_spikes_is_told(count: int, begins: str) -> None:
    rows = [watched_row(f"rule-{number}") for number in range(1, count)]
    rows += [watched_row("rule-3", repeat=2), quiet("rule-none", 1)]
    told = spikes_sentence(made(rows, settings(columns="update_rule", baseline={})))
    assert told.startswith(begins) and told.count(" of rule-") == (count if count == 8 else 1)


@pytest.mark.parametrize(
    ("spiky", "calm", "few", "told"),
    [
        (7, 1, 1, "Loss spikes in 7 of 8 cells, the most 2 in 1 trial of spiky-0; unknown in 1 cell."),
        (0, 7, 2, "Loss spikes in 0 of 7 cells; unknown in 2 cells."),
        (0, 9, 0, "Loss spikes in 0 of 9 cells."),
        (0, 0, 9, "Loss spikes: unknown in 9 cells."),
    ],
)
def test_of_many_cells_those_of_which_nothing_is_known_are_not_counted_as_without_spikes(
    spiky: int, calm: int, few: int, told: str
) -> None:
    """Two trials of such a cell have more spikes than any other cell, and the third one too few losses to tell."""
    rows = [*(watched_row(f"spiky-{at}") for at in range(spiky)), *(quiet(f"calm-{at}", 1) for at in range(calm))]
    rows += [one for at in range(few) for one in (watched_row(f"few-{at}"), watched_row(f"few-{at}", repeat=2), short(f"few-{at}"))]
    assert spikes_sentence(made(rows, settings(columns="update_rule", baseline={}))) == told


def short(rule: str) -> TrialRow:
    one = watched_row(rule, repeat=3)
    one.losses[:] = np.nan
    return one


def quiet(rule: str, repeat: int) -> TrialRow:
    one = watched_row(rule, repeat=repeat)
    one.losses[:] = 2.0 + 0.001 * (-1.0) ** np.arange(one.losses.size)
    return one


def test_a_sweep_that_looks_for_no_spikes_has_none_of_this(tmp_path: Path) -> None:
    paths = write_report(make_sweep(tmp_path, [Fake({"pool": "gpu", "dataloader_workers": 0})]))
    assert "Spikes" not in paths.markdown.read_text() and not (paths.markdown.parent / "figures" / "spikes.svg").exists()


def lines(rows: list[TrialRow]) -> list[dict[str, str]]:
    table = spike_table(made(rows, settings(columns="update_rule", baseline={})))
    return [dict(zip(table.header, line, strict=True)) for line in table.rows]


def test_the_loss_at_the_end_is_a_mean_over_repeats_and_steps() -> None:
    """A tenth of 400 steps are 40; of 2000 at most 100. Means, not medians: one step of 10 counts. Over repeats the geometric one."""
    ends = []
    for repeat, extra in ((1, 0.0), (2, 240.0)):
        one = watched_row(repeat=repeat)
        one.losses[-1] += extra
        one.losses[-41] += 1000.0  # just before
        ends.append(one)
    [found, _] = lines(ends)
    assert found["loss at the end"] == "4.00"  # of 2 and 2 + 6
    long = watched_row(steps=2000)
    long.losses[-1] += 100.0
    long.losses[-101] += 5000.0
    assert lines([long])[0]["loss at the end"] == "3.00"
    short = watched_row(steps=5)
    short.losses[-2:] = 9.0, 7.0
    assert lines([short])[0]["loss at the end"] == "7.00", "of five steps the last"


def test_counts_are_summed_over_repeats_and_each_tensor_has_a_line() -> None:
    rows = [watched_row(repeat=1, summary={"eval_loss_after": 1.0}), watched_row(repeat=2, summary={"eval_loss_after": 4.0})]
    first, second = lines(rows)
    assert first == {
        "cell": "gpu · adamw",
        "loss spikes": "4",
        "largest rise": "1.50",
        "RMS spikes of patch": "4",
        "largest RMS": "4.00",
        "explained": "2 of 4",
        "by chance": "5.3 %",  # 16 of 300 steps
        "held-out loss": "2.000",  # the geometric mean, with the comparison's digits
        "loss at the end": "2.00",
        "steps judged": "600",
        "outcome": "ok, 2 repeats",
    }
    assert second == {
        "cell": "↳ text",
        "loss spikes": "",
        "largest rise": "",
        "RMS spikes of patch": "0",
        "largest RMS": "1.00",
        "explained": "0 of 4",
        "by chance": "0.0 %",
        "held-out loss": "",
        "loss at the end": "",
        "steps judged": "",
        "outcome": "",
    }


def test_of_one_trial_the_chance_of_an_accident_is_said() -> None:
    """Two spikes, one explained, each by chance with 16 / 300: 1 - (1 - 0.0533)^2."""
    first, second = lines([watched_row()])
    assert first["explained"] == "1 of 2" and first["by chance"] == f"5.3 %; {1 - (1 - 16 / 300) ** 2:.2f}"
    assert second["by chance"] == "0.0 %", "nothing was explained, by accident or not"
    assert first["outcome"] == "ok"


@pytest.mark.parametrize(
    ("trials", "told"),
    [
        ([watched_row()], True),
        ([watched_row(tensors=("text",))], False),  # explains nothing
        ([watched_row(repeat=1), watched_row(repeat=2)], False),
        ([watched_row(repeat=1), watched_row(repeat=2), watched_row("other")], True),
    ],
)
def test_the_legend_tells_of_the_chance_of_an_accident_where_a_cell_shows_it(trials: list[TrialRow], told: bool) -> None:
    section = report_of(trials).section("loss_spikes")
    assert any("; " in chance for chance in column(section.table, "by chance")) is told
    assert section.text == ABOUT.format(accident=ACCIDENT if told else "", provoked="")


def test_a_largest_rms_is_of_the_steps_that_are_judged() -> None:
    one = watched_row(tensors=("text",))
    one.rms["text"][99] = 2.2  # step 100 is the last that is not judged
    assert lines([one])[0]["largest RMS"] == "1.00"
    one.rms["text"][100] = 2.2
    assert lines([one])[0]["largest RMS"] == "2.20"
    one.rms["text"][200] = np.nan  # one step alone does not know it
    assert lines([one])[0]["largest RMS"] == "2.20"
    one.rms["text"][:] = np.nan
    assert lines([one])[0]["largest RMS"] == "–"


def test_cells_are_named_by_the_axes_in_which_they_differ() -> None:
    crashed = watched_row("other", outcome=Outcome.CRASHED, value=None)
    unwatched = row({"pool": "gpu", "update_rule": "none"}, losses=[2.0] * 50)
    found = lines([watched_row("adamw", tensors=()), crashed, unwatched])
    assert [line["cell"] for line in found] == ["adamw", "other", "↳ text"]
    assert found[0]["RMS spikes of patch"] == "–" and found[1]["outcome"] == "crashed"
    assert list(lines([watched_row(tensors=())])[0])[3] == "RMS spikes"
    assert spikes_of(unwatched) is None and lines([unwatched]) == []
    assert spikes_of(row({"pool": "gpu"}, parameters={"spikes_after": 100})) is None, "no steps"
    at_once = spikes_of(row({"pool": "gpu"}, losses=[1.0] * 9, parameters={"spikes_after": 0}))
    assert at_once is not None and at_once.rule.after == 0


def test_a_number_of_spikes_that_is_not_known_is_a_dash_and_infinite_losses_are_a_spike() -> None:
    """The first repeat's losses are unknown from step 340 on: the last ten steps have fewer than fifty known before them."""
    unknown, diverged = watched_row(repeat=1), watched_row("other")
    unknown.losses[339:] = np.nan
    found = lines([unknown, watched_row(repeat=2)])[0]
    assert (found["loss spikes"], found["explained"]) == ("–", "–")
    diverged.losses[339:] = np.inf
    found = lines([diverged])[0]
    assert (found["loss spikes"], found["largest rise"], found["explained"]) == ("2", "–", "1 of 2")
    figure = spike_figure(made([diverged], settings(columns="update_rule", baseline={})))
    assert figure is not None
    marks = [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_label() == "loss spike, not explained"]
    assert marks == [[[340.0, 3.5]]]
