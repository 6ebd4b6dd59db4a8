"""The report on sweeps with made-up numbers: what it claims, what it refuses to claim, what it escapes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.trial_layout import PLAN
from experiments.json_file import sealed_text
from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.report.model import Report, make_report
from tasks.report.next_step import NextStep
from tasks.report.section import Bullets, TrialTable
from tasks.report.write import write_report
from tasks.sweep.store import read_plan
from tests.figure_support import drawn_anew
from tests.tasks.cell_support import comparison_in, table_in
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep, trial_dirs

EVIL = "<script>alert('x')</script>|`$\\frac{$`"


def fake(workers: int = 0, precision: str = "fp32", model: str = "base", **more: object) -> Fake:
    axes = {"pool": "gpu", "model": model, "precision": precision, "dataloader_workers": workers}
    return Fake(axes, **{"steps": 120, **more})  # type: ignore[arg-type]


def report_of(sweep_dir: Path, **options: bool) -> Report:
    return make_report(load_sweep(sweep_dir), **options)  # type: ignore[arg-type]


def without_code(markdown: str) -> str:
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown)


class Page(HTMLParser):
    """Tags that were opened and never closed, addresses that would be fetched, and all text."""

    VOID = frozenset({"meta", "br", "link", "img", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href") and tag != "a"]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One sweep with something of everything."""
    left = fake(2, "bf16", rate=240, repeats=3)
    left.loss = lambda step: 2 + 3 * 0.97**step + (0.6 if step > 30 else 0)
    sweep_dir = make_sweep(
        tmp_path_factory.mktemp("report"),
        [
            fake(0, rate=100, repeats=3, waits=0.25),
            fake(1, rate=117, repeats=3, waits=0.01),
            fake(2, rate=117, repeats=3, waits=0.01),
            fake(0, "bf16", rate=180, repeats=3),
            fake(1, "bf16", rate=210, repeats=3, environment={"torch": "2.12.1"}),
            left,
            fake(0, model="large", outcome=Outcome.DOES_NOT_FIT, reason=f"out of memory {EVIL}"),
            fake(1, model="large", outcome=None),
            Fake({"pool": "hpu", "model": "base", "precision": "bf16", "dataloader_workers": 0}, rate=9999, emulated=True),
        ],
    )
    first = trial_dirs(sweep_dir)[0].name
    second = trial_dirs(sweep_dir)[1].name
    links = {first: "http://127.0.0.1:5000/#/runs/1", second: "javascript:alert(1)"}
    write_report(sweep_dir, mlflow_links=links)
    before = {name: (sweep_dir / name).read_bytes() for name in ("figures/loss.svg", "report.md", "report.html")}
    with drawn_anew():
        write_report(sweep_dir, mlflow_links=links)
    assert before == {name: (sweep_dir / name).read_bytes() for name in before}  # written again, it is the same
    return sweep_dir


def test_a_report_with_the_figures_of_the_one_before_draws_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_dir = make_sweep(tmp_path, [fake(0), fake(1)])
    first = write_report(sweep_dir)
    before = [path.read_bytes() for path in (first.markdown, first.html)]
    monkeypatch.setattr("tasks.report.write.draw_figures", lambda *_, **__: pytest.fail("it drew"))
    again = write_report(sweep_dir, drawn=first.drawn)
    assert [path.read_bytes() for path in (again.markdown, again.html)] == before
    assert (again.figures, again.all) == (first.figures, first.all) and len(first.figures) >= 3


def test_references_and_trials_that_were_cut_are_named_as_the_others_where_slots_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both may have held a slot: such a trial was begun as the time ended."""
    sweep_dir = make_sweep(tmp_path, [fake(0), fake(1)])
    plan = read_plan(sweep_dir / PLAN)
    assert plan is not None
    cut = plan.trials[1].model_copy(update={"key": "cut", "repeat": 3})
    reference = cut.model_copy(update={"key": "reference", "reference": True})
    (sweep_dir / PLAN).write_text(sealed_text(plan.model_copy(update={"cut": [cut, reference]})))
    told: list[dict[str, str]] = []
    monkeypatch.setattr("tasks.report.write.draw_figures", lambda *_, names, **__: told.append(names) or [])
    write_report(sweep_dir)
    precision = cut.parameters["precision"]
    assert list(told[0].values()) == ["MP-0 · #1", "MP-1 · #1", "MP-1 · #3", f"MP-1 · reference {precision} · #3"]


def test_the_table_is_laid_out_like_the_published_ones(written: Path) -> None:
    table = table_in(written)
    assert table.header == ["pool", "model", "precision", "MP-0", "MP-1", "MP-2"]  # precision varies and is named nowhere: a row
    rows = {tuple(names): [cell.shown().plain for cell in cells] for names, cells in table.rows}
    assert rows["gpu", "base", "fp32"][0].split()[1] == "samples/s"
    assert re.search(r"  x1\.171 \(1\.1\d+–1\.1\d+\)$", rows["gpu", "base", "fp32"][1])
    assert re.search(r"  x1\.333 \(.*\) ✗$", rows["gpu", "base", "bf16"][2])
    assert rows["gpu", "large", "fp32"] == ["does not fit", "to do", ""]
    assert len(rows) == 3  # the emulated pool is not compared


def test_who_wins_is_never_a_cell_that_left_the_loss_band(written: Path) -> None:
    report = report_of(written)
    answer = report.answer
    assert answer is not None and report.winners == [answer.winner]
    assert answer.best.short == "base · bf16 · MP-1"  # MP-2 is faster and learns something else
    assert answer.figures[1][0] == "x1.166"
    assert answer.certainty[0].startswith("It beats every other cell; the next, base · bf16 · MP-0, by x1.166 (")
    struck = "base · bf16 · MP-2 was measured faster (240.0 samples/s) and is struck: the loss differs by +2"
    assert answer.certainty[1].startswith(struck)
    judged = {cell.short: str(cell.parity.status) for cell in report.cells if cell.parity}
    assert judged == {"base · bf16 · MP-0": "proven", "base · bf16 · MP-1": "proven", "base · bf16 · MP-2": "struck"}
    [left] = [caution for caution in report.cautions if "struck" in caution]
    assert re.match(r"base · bf16 · MP-2: struck: the loss differs by \+2\d\.\d+ % from step 31, against fp32 over 120 steps, 3 of 3", left)
    table = report.section("loss_parity").table
    assert [line[:2] for line in table.rows] == [list(pair) for pair in judged.items()]


def test_saturation_in_words(written: Path) -> None:
    sentence = report_of(written).section("data_loading").block(Bullets).lines[0]
    words = r"base · fp32: MP-1 is enough: x1\.171 \(1\.\d+–1\.\d+\) over MP-0; MP-2 adds nothing; "
    assert re.fullmatch(words + r"at MP-1 the device waits for the host 1\.0 % of the step\.", sentence)


def test_confounders_stand_beside_the_speed_up(written: Path) -> None:
    report = report_of(written)
    assert [row[:2] for row in report.section("confounders").table.rows] == [["torch", "2.13.0"], ["torch", "2.12.1"]]
    assert report.section("confounders").table.rows[1][2] == "base · bf16 · MP-1"
    notes = {cell.cell.name: cell.notes for _, cells in comparison_in(report).rows for cell in cells if cell.cell}
    assert "also differs from its baseline: torch" in notes["gpu · base · bf16 · MP-1"]
    assert notes["gpu · base · fp32 · MP-1"] == []


def test_what_did_not_run_is_said_with_its_reason(written: Path) -> None:
    report = report_of(written)
    assert [missing.outcome for missing in report.missing] == ["does_not_fit", "to do"]
    assert report.missing[0].sentence.startswith("1 cell does not fit in device memory (large · fp32 · MP-0): out of memory")
    assert ["gpu · large · fp32 · MP-1 · #1", "to do", "has not run"] in [list(row) for row in report.section("outcomes").table.rows]


def test_published_numbers_stand_beside_the_same_model_alone(written: Path, tmp_path: Path) -> None:
    assert "nearest_literature" not in report_of(written).section_names, "no published model"
    same = {"model": "large", "devices": 8}
    trial = Fake({"pool": "gpu", "dataloader_workers": 0}, parameters={**same, "model": "base"})
    assert "nearest_literature" not in report_of(make_sweep(tmp_path / "model", [trial])).section_names
    trial = Fake({"pool": "gpu", "dataloader_workers": 0}, parameters=same)
    rows = report_of(make_sweep(tmp_path, [trial])).section("nearest_literature").table.rows
    assert rows and all(" 8 devices, " in row[1] and row[6] for row in rows)
    assert all("device gaudi2, ours Made-up CPU" in row[5] and "devices" not in row[5] for row in rows if row[0] == "gaudi2")


def test_each_row_has_a_command_that_runs_it_again(written: Path) -> None:
    trial = report_of(written).section("trials").block(TrialTable).lines[1]
    assert trial.command == (
        "sweep run made_up --profile smoke --only pool=gpu --only model=base --only precision=fp32 --only dataloader_workers=1"
    )


def test_the_page_is_whole_self_contained_and_safe(written: Path) -> None:
    html = (written / "report.html").read_text()
    page = Page(html)
    assert page.open == []
    assert page.tags.count("script") == 1, "its own: tests/tasks/report/test_page.py"
    assert all(address.startswith("#") for address in page.fetched)
    assert len(page.ids) == len(set(page.ids))
    assert "alert('x')" in page.words  # shown as text
    assert "javascript:" not in html
    assert 'href="http://127.0.0.1:5000/#/runs/1"' in html
    assert page.tags.count("svg") == 3 + 6, "figures, and a bar for each cell with a value"
    assert "url(http" not in html
    assert "@import" not in html
    found = ("What did not run, and why", "5 cells compared", "struck: the loss differs from its reference's", "Confounders")
    for words in (*found, "Before and after training", "Cells from the best down"):
        assert words in page.words
    assert "NaN" not in page.words
    assert "None" not in page.words


def test_markdown_escapes_and_keeps_its_columns(written: Path) -> None:
    text = (written / "report.md").read_text()
    assert "<script>" not in without_code(text)
    assert "\\<script\\>" in text
    assert "~~x1.333 (" in text
    assert "**base · bf16 · MP-1 is fastest**" in text
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1
    figures = [line.split("](")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(figures) == 4
    assert all((written / figure).stat().st_size > 1000 for figure in figures)
    assert all((written / figure).with_suffix(".png").exists() for figure in figures)


def test_emulated_trials_are_watermarked_and_only_shown_when_asked(tmp_path: Path) -> None:
    sweep_dir = make_sweep(tmp_path, [fake(0, emulated=True), fake(1, emulated=True, rate=150)])
    hidden = write_report(sweep_dir)
    assert "Every trial is emulated" in hidden.html.read_text()
    assert hidden.figures == []
    shown = write_report(sweep_dir, emulated=True)
    assert 'class="watermark"' in shown.html.read_text()
    assert "EMULATED: NOT A MEASUREMENT" in shown.markdown.read_text()
    assert all("EMULATED" in figure.read_text() for figure in shown.figures)


def test_what_the_device_says_counts_more_than_the_pools_name(tmp_path: Path) -> None:
    """A pool that was not declared emulated, whose device says it is: never beside a measured one."""
    told = fake(1, rate=5000, environment={"emulated": True, "media_pipe": "fallback: no files"})
    sweep_dir = make_sweep(tmp_path, [fake(0, environment={"emulated": False}), told])
    page = write_report(sweep_dir).markdown.read_text()
    trials = make_report(load_sweep(sweep_dir)).section("trials").block(TrialTable).lines
    assert [(line.emulated, line.value == "–") for line in trials] == [(False, False), (True, True)]
    assert "1 trial ran on an emulated device" in page and "media pipe" not in page
    assert [row["emulated"] for row in pq.read_table(sweep_dir / "results.parquet").to_pylist()] == [False, True]
    alone = write_report(sweep_dir, emulated=True)
    text = alone.markdown.read_text()
    assert "EMULATED: NOT A MEASUREMENT" in text
    assert table_in(sweep_dir).columns == ["MP-0"] and table_in(sweep_dir, emulated=True).columns == ["MP-1"]
    assert "The media pipe could not be used" in text
    assert {path.name for path in (alone.markdown, alone.html, alone.figures[0].parent)} == {
        *("report-emulated.md", "report-emulated.html", "figures-emulated")
    }
    assert write_report(sweep_dir).markdown.read_text() == page


def test_a_sweep_that_has_not_started_has_a_report(tmp_path: Path) -> None:
    paths = write_report(make_sweep(tmp_path, [fake(0, outcome=None)]))
    assert "No trial has ended yet." in paths.html.read_text()
    assert paths.figures == []
    assert all(path.exists() for path in paths.all)


def test_names_from_outside_cannot_break_page_or_figures(tmp_path: Path) -> None:
    made = Fake({"pool": EVIL, "dataloader_workers": 0}, environment={"device_name": EVIL, EVIL: "a", "cpu": EVIL})
    paths = write_report(make_sweep(tmp_path, [made]))
    page = Page(paths.html.read_text())
    assert page.open == []
    assert page.tags.count("script") == 1
    assert "<script>" not in without_code(paths.markdown.read_text())


def test_one_unreadable_trial_does_not_stop_the_report(tmp_path: Path) -> None:
    sweep_dir = make_sweep(tmp_path, [fake(0), fake(1)])
    journal = trial_dirs(sweep_dir)[1] / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"samples":8', '"samples":9', 1))
    report = report_of(sweep_dir)
    assert report.missing[0].outcome == "unreadable"
    assert "checksum" in report.section("outcomes").table.rows[0][2]
    assert report.answer is not None and report.answer.compared == 1


def test_single_runs_close_together_are_not_called_apart(tmp_path: Path) -> None:
    sweep_dir = make_sweep(tmp_path, [fake(0, rate=100, noise=0.2), fake(1, rate=101, noise=0.2)])
    report = report_of(sweep_dir)
    assert report.winners == [] and report.headline == "Each cell ran once: no setting is called faster"
    assert report.next_step == NextStep(f"sweep resume {sweep_dir.name} --budget 1m", 4.0), "two trials of a second, twice more"
    assert any("ran once" in caution for caution in report.cautions)
    assert comparison_in(report).rows[0][1][1].words == "undecided"
    paths = write_report(sweep_dir)
    assert "**Each cell ran once: no setting is called faster**. Best measured: " in paths.markdown.read_text()
    assert f"\n\nTo decide more, in about 4 s: `sweep resume {sweep_dir.name} --budget 1m`\n\n" in paths.markdown.read_text()
    page = Page(paths.html.read_text()).words
    assert "2 cells compared" in page and "undecided: not shown to differ from its baseline at the level that a verdict needs" in page


def test_without_a_baseline_the_first_of_each_row_is_it(tmp_path: Path) -> None:
    suite = {**SUITE, "baseline": {}}
    sweep_dir = make_sweep(tmp_path, [fake(w, p, rate=100 + 30 * w) for p in ("fp32", "bf16") for w in (0, 1)], suite=suite)
    for _, cells in table_in(sweep_dir).rows:
        assert cells[1].shown().plain.endswith("x1.30 (interval unknown) ?")
        assert " x" not in cells[0].shown().plain


def test_a_metric_where_less_is_better(tmp_path: Path) -> None:
    suite = {**SUITE, "report": {**SUITE["report"], "metric": "step_time_median_s"}}
    sweep_dir = make_sweep(tmp_path, [fake(0, rate=100, repeats=3), fake(1, rate=200, repeats=3)], suite=suite)
    report = report_of(sweep_dir)
    [winner] = report.winners
    assert winner.axes["dataloader_workers"] == 1
    cell = comparison_in(report).rows[0][1][1]
    assert cell.value.endswith(" ms")
    assert cell.change.split()[0] == "x2.001"


def test_the_suites_own_figures_show_absent_cells_with_their_outcome(tmp_path: Path) -> None:
    suite = {
        **SUITE,
        "report": {**SUITE["report"], "figures": [{"title": "Asked for", "metric": "throughput", "x": "model", "series": ["pool"]}]},
    }
    trials = [
        Fake({"pool": "gpu", "model": "base"}),
        Fake({"pool": "gpu", "model": "large"}, outcome=Outcome.DOES_NOT_FIT, reason="too large"),
    ]
    paths = write_report(make_sweep(tmp_path, trials, suite=suite))
    drawn = next(path for path in paths.figures if path.name == "suite-1.svg").read_text()
    assert "does not fit" in drawn and "large" in drawn
    assert "![Asked for](figures/suite-1.svg)" in paths.markdown.read_text()


def test_a_metric_with_a_number_in_its_name_is_a_line_over_that_number(tmp_path: Path) -> None:
    wanted = {"title": "By block", "metric": "eval_magnitude_*_before", "x": "block", "series": ["model"]}
    suite = {**SUITE, "report": {**SUITE["report"], "figures": [wanted, {**wanted, "metric": "eval_nothing_*_before"}]}}
    trials = [Fake({"pool": "gpu", "model": name}, metrics={"magnitude_1": 1.0, "magnitude_12": 40.0}) for name in ("base", "large")]
    paths = write_report(make_sweep(tmp_path, trials, suite=suite))
    drawn = next(path for path in paths.figures if path.name == "suite-1.svg").read_text()
    assert "mathdefault" not in drawn, "numbers, on a logarithmic axis too"
    assert ">block<" in drawn and ">magnitude before<" in drawn
    assert {">base<", ">large<"} <= set(re.findall(r">[a-z]+<", drawn))
    assert not any(path.name == "suite-2.svg" for path in paths.figures), "no cell has such a metric"


def test_what_does_not_do_the_same_work_is_not_compared_in_the_headline(tmp_path: Path) -> None:
    trials = [
        fake(workers, model=model, rate=rate * (1 + workers), repeats=3)
        for model, rate in (("small", 900), ("large", 90))
        for workers in (0, 1)
    ]
    for trial in trials:
        trial.parameters["model"] = trial.axes["model"]
    sweep_dir = make_sweep(tmp_path, trials)
    report = report_of(sweep_dir)
    assert report.answer is None and "not compared" in report.why_apart
    lines = [answer.line for answer in report.answers]
    assert [line.split(":")[:2] for line in lines] == [[name, " MP-1 is fastest"] for name in ("small", "large")]
    assert all("it beats the other, " in line for line in lines)
    assert lines[0] in Page(write_report(sweep_dir).html.read_text()).words


def test_what_does_not_train_has_no_loss_curve_and_a_smaller_metric_no_speed_up(tmp_path: Path) -> None:
    trials = [fake(workers, window={"trains": False}) for workers in (0, 1)]
    suite = {**SUITE, "report": {**SUITE["report"], "metric": "latency_p50_s"}}
    sweep_dir = make_sweep(tmp_path, trials, suite=suite)
    assert not any(path.name == "loss.svg" for path in write_report(sweep_dir).figures)
    assert table_in(sweep_dir).ratio == "x is how many times lower it is than"


def test_published_values_of_another_suite_with_the_same_workload_are_left_out(tmp_path: Path) -> None:
    suite = {**SUITE, "baseline": {"precision": "bf16"}, "report": {**SUITE["report"], "columns": "precision"}}

    def names(precision: str) -> list[str]:
        axes = {"pool": "gpu", "model": "h14"}
        parameters = {"devices": 4, "kernels": "fused"}
        trials = [Fake({**axes, "precision": name}, workload="clip", parameters=parameters) for name in ("bf16", precision)]
        return report_of(make_sweep(tmp_path / precision, trials, suite=suite)).section_names

    assert "nearest_literature" in names("int8_switchback") and "nearest_literature" not in names("tf32")
