"""What a sweep found, in one place: the same words in Markdown, on the page and for the terminal."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from experiments.trial import Outcome
from tasks.report import model
from tasks.report.group_answers import APART, ON_OTHERS
from tasks.report.headline import headline_of
from tasks.report.html import render_html
from tasks.report.markdown import code, headline_markdown, md, render_markdown
from tasks.report.model import Report
from tasks.report.next_step import NextStep
from tasks.sweep.store import DecideSettings
from tests.tasks.cell_support import repeats, report_of, row, settings, source_of, workers

ROUGH = (-0.2, 0.0, 0.2)


class Words(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.text += data


def undecided() -> Report:
    return report_of([*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 150.0, ROUGH[::-1])])


def test_no_winner_without_a_verdict_and_then_the_next_step_with_its_time() -> None:
    said = headline_of(undecided())
    assert said.said == "No clear winner: MP-1 and MP-0 are not shown to differ"
    assert said.step is not None and said.lines[-1] == said.step.text == "To decide more, in about 30 s: sweep resume made-up --budget 1m"
    assert said.lines[0].startswith(f"{said.said}. Best measured: MP-1, 150.0 samples/s, ") and len(said.lines) == 2
    assert said.line == f"made_up · smoke: {said.said}; best measured: MP-1, 150.0 samples/s, {said.line.split('samples/s, ')[1]}"
    assert said.line.endswith(" (sweep made-up)")


def test_a_page_says_what_its_reader_can_run_who_lacks_the_sweep() -> None:
    source = source_of([*repeats(workers(0), 100.0, ROUGH), *repeats(workers(1), 150.0, ROUGH[::-1])])
    published = model.report_of(replace(source, sweep=replace(source.sweep, published=True)))
    command = source.sweep.plan.command
    away = f"That goes on where runs/ has this sweep; without it `{command}` measures it from the beginning."
    step = headline_of(published).step
    assert step is not None and step.elsewhere == away and command.startswith("sweep run ")
    assert f"`sweep resume made-up --budget 1m`. {away}\n" in render_markdown(published)
    assert f"sweep resume made-up --budget 1m. {away.replace('`', '')}" in Words(render_html(published)).text
    own = headline_of(undecided()).step
    assert own is not None and own.elsewhere == "" and "from the beginning" not in render_markdown(undecided())
    assert replace(step, command=f"{command} --repeats 3").elsewhere == "", "a command that begins anew needs no sweep"


@pytest.mark.parametrize(("seconds", "budget"), [(None, "5m"), (0.0, "5m"), (100.0, "7m"), (360.0, "12m")])
def test_what_a_page_advises_without_its_sweep_has_the_time_of_both(seconds: float | None, budget: str) -> None:
    """Of a sweep of five minutes: a tenth more than what is expected of the next step, as for that step itself."""
    source = source_of([row(workers(0), 100.0)], decide=DecideSettings(budget_s=300.0), command="sweep run made_up --budget 5m")
    published = model.report_of(replace(source, sweep=replace(source.sweep, published=True)))
    step = NextStep("sweep resume made-up --budget 1m", seconds)
    told = headline_of(replace(published, standing=None, answers=[], left_out=step, unfinished=None)).step
    assert told == replace(step, anew=f"sweep run made_up --budget {budget}")


def test_a_winner_is_named_with_by_how_much_and_needs_no_next_step() -> None:
    said = headline_of(report_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)]))
    assert said.said == "MP-1 is fastest" and said.step is None
    assert len(said.lines) == 1 and said.lines[0].startswith("MP-1 is fastest. 150.0 samples/s, ±") and ". x1.500 (1." in said.lines[0]


def test_groups_of_work_have_a_line_each() -> None:
    rates = {("a", 0): 100.0, ("a", 1): 150.0, ("b", 0): 10.0}
    rows = [one for (model, count), rate in rates.items() for one in repeats(workers(count, model=model), rate)]
    said = headline_of(report_of(rows, {**settings(rows=("model",)), "same_work": ["model"]}))
    assert said.said == "a: MP-1 is fastest" and list(said.details) == [APART]
    assert [line.split(":")[0] for line in said.groups] == ["a", "MP-0 · b"], "one alone is compared with nothing"
    assert said.line == f"made_up · smoke: {'; '.join(said.groups)} (sweep made-up)"


def on_devices(rates: dict[tuple[str, int], float]) -> Report:
    """A report of rates by rung and number of devices."""
    rows = [one for (rung, n), rate in rates.items() for one in repeats({"pool": "cpu", "rung": rung, "devices": n}, rate)]
    return report_of(rows, settings(rows=("devices",), columns="rung", baseline={"rung": "old"}))


def test_cells_on_other_numbers_of_devices_are_not_ranked_against_each_other() -> None:
    """Four devices do more than one: that is no setting's gain, and the setting that wins on one is named for one."""
    report = on_devices({("old", 1): 100.0, ("new", 1): 150.0, ("old", 4): 380.0, ("new", 4): 540.0})
    said = headline_of(report)
    assert said.said == "new is fastest in each of 2 groups of cells" and said.details[0] == ON_OTHERS
    assert said.details[1].startswith("new: from 1 to 4 devices the rate of all together grows x3.600 (") and said.details[1].endswith(
        ", 90.0 % of linear."
    )
    one, four = said.groups
    assert one.startswith("devices 1: new is fastest: 150.0 samples/s, ") and "it beats the other, old, by x1.500 (" in one
    assert four.startswith("devices 4: new is fastest: 540.0 samples/s, ") and "it beats the other, old, by x1.421 (" in four
    assert [cell.axes["devices"] for cell in report.winners] == [1, 4]
    assert said.line == f"made_up · smoke: {said.found} (sweep made-up)" and said.found.startswith("new: from 1 to 4 devices ")
    rankings = report.section("ranking").blocks
    assert [[one.cell.short for one in ranking.cells] for ranking in rankings] == [  # type: ignore[union-attr]
        ["new · devices 1", "old · devices 1"],
        ["new · devices 4", "old · devices 4"],
    ]


def test_a_setting_measured_on_each_number_of_devices_alone_is_just_its_values() -> None:
    said = headline_of(on_devices({("new", 1): 150.0, ("new", 2): 285.0}))
    assert [line.split(",")[0] for line in said.groups] == ["devices 1: 150.0 samples/s", "devices 2: 285.0 samples/s"], "each named once"


def test_work_and_devices_may_both_differ() -> None:
    rows = [one for model, n in (("a", 1), ("b", 2)) for one in repeats({"pool": "cpu", "model": model, "devices": n}, 10.0)]
    said = headline_of(report_of(rows, {**settings(rows=("model",), columns="devices", baseline={}), "same_work": ["model"]}))
    assert said.said == "Cells that do not do the same work, or do it on different numbers of devices, are not ranked against each other."
    assert [line.split(",")[0] for line in said.groups] == ["a · devices 1: 10.00 samples/s", "b · devices 2: 10.00 samples/s"]


def test_a_sweep_without_a_value_says_what_runs_the_rest() -> None:
    said = headline_of(report_of([row(workers(0), None, outcome=None), row(workers(1), None, outcome=Outcome.CRASHED)]))
    assert said.lines == ["No cell has a value: 1 to do, 1 crashed.", "Once that is mended: sweep resume made-up"]
    said = headline_of(report_of([row(workers(0), None, outcome=None), row(workers(1), None, outcome=Outcome.CANCELLED)]))
    assert said.lines == ["No cell has a value: 1 to do, 1 cancelled.", "To run the rest: sweep resume made-up"], "no trial tells how long"


def test_a_sweep_that_all_crashed_says_at_which_line() -> None:
    where = "flowers.py:42 in loss: RuntimeError: 0 classes"
    alike = [row(workers(count), None, outcome=Outcome.CRASHED, reason=where) for count in (0, 1)]
    said = headline_of(report_of(alike))
    assert said.lines == [f"No cell has a value: 2 crashed ({where}).", "Once that is mended: sweep resume made-up"]
    assert said.line == f"made_up · smoke: No cell has a value: 2 crashed ({where}) (sweep made-up)"
    other = row(workers(2), None, outcome=Outcome.CRASHED, reason="flowers.py:50 in build: KeyError: 'x'")
    told = row(workers(3), None, outcome=Outcome.UNSUPPORTED, reason="no fp8")
    assert (
        headline_of(report_of([*alike, other, told])).said
        == f"No cell has a value: 3 crashed ({where}; and 1 other reason), 1 unsupported (no fp8)."
    )
    beside = report_of([*alike, row(workers(2)), row(workers(3), 150.0)])
    assert beside.next_step is None or "mended" not in beside.next_step.text


def test_the_same_words_everywhere() -> None:
    for report in (undecided(), report_of([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])):
        said = headline_of(report)
        markdown, page = render_markdown(report), " ".join(Words(render_html(report)).text.split())
        assert headline_markdown(said).strip() in markdown
        for words in (said.said, *said.details, *([said.step.lead] if said.step else [])):
            assert md(words) in markdown
        assert report.answer is not None and all(words in page for words in (said.said, *report.answer.certainty))
        if said.step:
            assert code(said.step.command) in markdown and said.step.lead in page and said.step.command in page
