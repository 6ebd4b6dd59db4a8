"""README's tables and the index, from made-up sweeps that were published. Nothing here is a measurement."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.trial_layout import HELD_TIME, PLAN
from experiments.spec.load import SuiteInfo
from experiments.trial import Outcome
from tasks.analysis.results import ResultsError, write_results
from tasks.documents import first_table as first_table_module
from tasks.documents import write
from tasks.documents.finding import finding, head_of
from tasks.documents.first_table import first_table, measured
from tasks.documents.goals import GoalTables
from tasks.documents.in_short import InShort, in_short
from tasks.documents.index import index_of
from tasks.documents.suites_table import suites_table
from tasks.report.headline import Headline
from tasks.report.markdown import headline_markdown
from tasks.report.other_hosts import on_other_hosts
from tasks.report.publish import publish
from tasks.report.published_pages import Page, SweepOnPage, pages_in, sweep_on_page
from tasks.sweep.store import DecideSettings, SweepStore
from tests.tasks.cell_support import make_plan, row, settings, workers
from tests.tasks.fake_sweep import SUITE, Fake, as_suite, whole_sweep

REPEATED, ONCE, FITS = (f"made-up-2026010{day}-000000-0000" for day in (1, 2, 3))
INFO = SuiteInfo(name="made_up", file="made_up.yaml", workload="bridgetower", description="What | is asked", profiles=[])
LINK = "docs/results/page/README.md"


def kept(runs: Path, sweep_id: str, fakes: list[Fake], **report: str) -> SweepStore:
    return whole_sweep(runs, fakes, sweep_id=sweep_id, suite={**SUITE, "suite": "made_up", "report": {**SUITE["report"], **report}})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a published page of three sweeps, and a record that no command wrote."""
    root = tmp_path_factory.mktemp("repository")
    axes = {"pool": "cpu", "model": "base"}
    two = [Fake({**axes, "dataloader_workers": count}, rate, repeats=3) for count, rate in ((0, 100.0), (1, 150.0))]
    two[1].repeats = 2
    alone = [Fake({**axes, "dataloader_workers": count}, environment={"device_name": "Other"}) for count in (0, 1)]
    sizes = [
        Fake({"pool": "cpu", "model": "6b", "devices": 4}),
        Fake({"pool": "cpu", "model": "7b", "devices": 4}, outcome=Outcome.DOES_NOT_FIT, reason="out of memory"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPBENCH_RUNS", str(root / "runs"))
        stores = [kept(root / "runs", sweep_id, fakes) for sweep_id, fakes in ((ONCE, alone), (REPEATED, two), (FITS, sizes))]
        publish(stores, root / "docs" / "results" / "page")
        record = root / "docs" / "results" / "record"
        shutil.copytree(stores[0].dir, record / ONCE)
        write_results(record / ONCE)
    (record / "README.md").write_text("# A record\\_of old\n\nText.\n")
    return root


@pytest.fixture(scope="module")
def pages(root: Path) -> list[Page]:
    return pages_in(root / "docs" / "results")


@pytest.fixture(scope="module")
def short(pages: list[Page]) -> dict[Path, InShort]:
    return {sweep.folder: in_short(sweep, head_of(sweep)) for page in pages for sweep in page.sweeps}


@pytest.fixture(scope="module")
def found(pages: list[Page]) -> dict[Path, str]:
    return {sweep.folder: finding(sweep, head_of(sweep)) for page in pages for sweep in page.sweeps}


def test_what_a_sweep_found_is_what_the_contents_of_its_page_say(pages: list[Page]) -> None:
    once, repeated, fits = (finding(sweep, head_of(sweep)) for sweep in pages[0].sweeps)
    assert once == "", "each cell ran once"
    assert repeated == "MP-1 is fastest: 150.0 samples/s ±1.7 %, x1.50 (1.47–1.53) over MP-0."
    contents = (pages[0].folder / "README.md").read_text()
    assert f"(#{REPEATED}): {repeated}\n" in contents, "the same as in its page's contents"
    assert fits == "Largest that fits: 6b, and 7b, 16.7 % larger, does not."


def test_the_facts_of_a_sweep_are_its_plans_and_its_trials(pages: list[Page]) -> None:
    page, record = pages
    assert (page.name, [sweep.folder.name for sweep in page.sweeps]) == ("page", [ONCE, REPEATED, FITS]), "in the page's order"
    once, repeated, fits = page.sweeps
    assert (repeated.devices, repeated.date, repeated.commit, repeated.kind) == ("Made-up CPU", "2026-01-01", "0123456789ab", "")
    assert (repeated.trials, repeated.repeated) == ("2 to 3 trials for each of 2 cells", True)
    assert (once.trials, once.repeated, once.devices) == ("1 trial for each of 2 cells", False, "Other")
    assert (fits.trials, fits.repeated) == ("1 trial for each of 2 cells", False) and fits.devices == "4 Made-up CPU"
    assert [sweep.repeats for sweep in page.sweeps] == [1, 3, 1], "of the cell with the most that ended ok"
    assert (record.title, record.sweeps) == ("A record_of old", ())


def test_trials_that_did_not_end_ok_are_no_repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    fails = {"outcome": Outcome.DOES_NOT_FIT, "reason": "out of memory", "repeats": 3}
    fakes = [Fake({"pool": "cpu", "model": "base", "dataloader_workers": count}, **fails) for count in (0, 1)]
    publish([kept(tmp_path / "runs", FITS, fakes)], tmp_path / "page")
    [page] = pages_in(tmp_path)
    assert [(sweep.repeats, sweep.repeated) for sweep in page.sweeps] == [(0, False)]


def test_what_did_not_fit_is_no_discarded_attempt_though_an_early_record_calls_it_so(root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "docs" / "results" / "page" / FITS, tmp_path / FITS))
    fits, larger = (trial.key for trial in pages_in(root / "docs" / "results")[0].sweeps[2].plan.trials)
    parts = {fits: {"launch": 2.0, "measured": 6.0}, larger: {"discarded": 5.0}}
    trials = [{"trial": key, "pool": "cpu", "parts": each, "emulated": False} for key, each in parts.items()]
    (folder / HELD_TIME).write_text(json.dumps({"schema_version": 1, "slots": 1, "trials": trials}))
    held = sweep_on_page(folder).held
    assert held is not None and held.parts == {"launch": 2.0, "measured": 6.0, "no_rate": 5.0}


def test_a_page_that_lacks_a_file_is_named(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "docs" / "results" / "page", tmp_path / "page")
    (tmp_path / "page" / REPEATED / PLAN).unlink()
    with pytest.raises(ResultsError, match=rf"{REPEATED}/plan\.json does not exist"):
        pages_in(tmp_path)


def test_a_suites_row_has_its_latest_sweep_with_repeats_and_links_to_the_others(
    root: Path, pages: list[Page], short: dict[Path, InShort]
) -> None:
    other = INFO.model_copy(update={"name": "other_suite"})
    once, repeated, fits = pages[0].sweeps
    second = replace(pages[0], folder=pages[0].folder.with_name("page_two"), sweeps=[fits])
    third = replace(pages[0], folder=pages[0].folder.with_name("page_three"), sweeps=[once])
    lines = suites_table([INFO, other], [*pages, second, third], short, root, root / "elsewhere").splitlines()
    assert lines[:2] == ["| suite | what it asks | measured | best measured there |", "|---|---|---|---|"]
    assert lines[3] == "| other\\_suite | What \\| is asked | not measured with repeats yet | – |"
    name, (measured, best) = lines[2].split(" | ")[0], lines[2].split(" | ", 2)[2].split(" | ")
    assert name == "| made\\_up"
    assert measured.split("<br>") == [
        f"[page]({LINK}): Made-up numbers; Made-up CPU, fp32, 2 to 3 trials for each of 2 cells",
        "more: [page\\_two](docs/results/page_two/README.md)",
        "each cell once, so nothing is decided: [page\\_three](docs/results/page_three/README.md)",
    ]
    assert best == f"{'<br>'.join(short[repeated.folder].lines)} |" and best.startswith("**150.0 samples/s** ")


def test_of_two_sweeps_with_repeats_the_later_one_is_told(root: Path, pages: list[Page]) -> None:
    repeated = pages[0].sweeps[1]
    plan = repeated.plan.model_copy(update={"created_at": repeated.plan.created_at + 1.0})
    later = replace(repeated, folder=repeated.folder.with_name("later"), plan=plan)
    for sweeps in ([repeated, later], [later, repeated]):
        found = {repeated.folder: InShort(["old"]), later.folder: InShort(["new", "b"])}
        table = suites_table([INFO], [replace(pages[0], sweeps=sweeps)], found, root, root)
        assert table.endswith(" | new<br>b |") and "old" not in table


DAY = 86_400.0


@pytest.mark.parametrize(
    ("repeats", "won", "gained", "later_s", "told"),
    [
        ((3, 2), (0.0, 0.0), (0.0, 0.0), DAY, "old"),
        ((3, 3), (0.0, 0.0), (0.0, 0.0), DAY, "new"),
        ((5, 3), (0.0, 0.0), (0.0, 0.0), DAY, "new"),
        ((5, 3), (0.0, 0.0), (0.0, 0.0), 1.0, "old"),  # of one day the one with the most
        ((3, 5), (0.0, 0.0), (0.0, 0.0), 1.0, "new"),
        ((3, 3), (0.0, 0.0), (0.0, 0.0), 1.0, "new"),
        ((2, 2), (0.0, 0.0), (0.0, 0.0), DAY, "new"),
        ((2, 3), (0.0, 0.0), (0.0, 0.0), DAY, "new"),
        ((3, 3), (1.0, 0.5), (0.0, 0.0), DAY, "old"),  # what decided more, whatever its day
        ((3, 9), (1.0, 0.5), (0.0, 0.0), 1.0, "old"),
        ((3, 3), (0.5, 0.5), (0.0, 0.0), DAY, "new"),
        ((2, 3), (1.0, 0.0), (0.0, 0.0), DAY, "new"),  # two trials a cell are not enough
        ((3, 3), (1.0, 1.0), (1.0, 0.0), DAY, "old"),  # that a setting is no gain does not hide which is one
        ((3, 3), (1.0, 1.0), (0.0, 1.0), 1.0, "new"),
        ((3, 3), (1.0, 1.0), (0.5, 0.5), DAY, "new"),
        ((3, 3), (0.5, 1.0), (0.5, 0.0), DAY, "new"),  # more winners come first
        ((2, 3), (1.0, 1.0), (1.0, 0.0), DAY, "new"),
    ],
)
def test_the_sweep_that_is_told_has_three_trials_a_cell_then_most_winners_then_most_gains_then_is_the_latest(
    root: Path,
    pages: list[Page],
    repeats: tuple[int, int],
    won: tuple[float, float],
    gained: tuple[float, float],
    later_s: float,
    told: str,
) -> None:
    sweep = pages[0].sweeps[1]
    old, new = (
        replace(
            sweep,
            folder=sweep.folder.with_name(str(at)),
            repeats=count,
            plan=sweep.plan.model_copy(update={"created_at": sweep.plan.created_at + at * later_s}),
        )
        for at, count in enumerate(repeats)
    )
    found = {old.folder: InShort(["old"], won[0], gained[0]), new.folder: InShort(["new"], won[1], gained[1])}
    table = suites_table([INFO], [replace(pages[0], sweeps=[old, new])], found, root, root)
    assert table.endswith(f" | {told} |")


def test_a_suite_with_single_trials_alone_is_not_measured_with_repeats(root: Path, pages: list[Page], short: dict[Path, InShort]) -> None:
    alone = [Page(pages[0].folder, pages[0].title, pages[0].sweeps[:1])]
    row = suites_table([INFO], alone, short, root, root).splitlines()[2]
    assert row.endswith(f"| not measured with repeats yet<br>each cell once, so nothing is decided: [page]({LINK}) | – |")


def test_a_sweep_with_repeats_of_which_nothing_is_found_is_not_said_to_have_run_once(root: Path, pages: list[Page]) -> None:
    """Such as one whose cells are all struck."""
    repeated = pages[0].sweeps[1]
    row = suites_table([INFO], [replace(pages[0], sweeps=[repeated])], {repeated.folder: InShort()}, root, root).splitlines()[2]
    assert row == f"| made\\_up | What \\| is asked | more: [page]({LINK}) | – |"


def test_what_has_a_table_of_its_own_is_not_said_twice(root: Path, pages: list[Page], short: dict[Path, InShort]) -> None:
    shown, fits = pages[0].sweeps[1:]
    told = suites_table([INFO], pages, short, root, shown.folder)
    told_of = f"[page]({LINK}): Made-up numbers; "
    where = f"{told_of}Made-up CPU, fp32, 2 to 3 trials for each of 2 cells<br>{told_of}4 Made-up CPU, fp32, 1 trial for each of 2 cells"
    assert f"| {where} | the table above<br>{short[fits.folder].lines[0]} |" in told and "150.0" not in told


def test_the_first_table_has_verdicts_and_says_how_it_was_measured(root: Path, pages: list[Page]) -> None:
    text = first_table(pages[0].sweeps[1].folder, root)
    assert "| cpu | **100.0 samples/s** " in text and " baseline | **150" in text and ") faster |" in text
    reading = "± is half the 95 % interval; x is the speed-up over the baseline, with its interval in brackets: 95 %."
    assert f"\n\n{reading} It leaves out what rounds " in text
    command = (
        "`sweep run made_up --profile smoke`: 2 to 3 trials for each of 2 cells, 5 in all, Made-up CPU, 2026-01-01, commit `0123456789ab`."
    )
    assert f"\n\n{command} [The page]({LINK}) was written by `sweep publish`.\n\n" in text, "without held time, which nobody recorded"
    assert f"](docs/results/page/{REPEATED}/figures/throughput.png)" in text
    assert (root / "docs" / "results" / "page" / REPEATED / "figures" / "throughput.png").is_file()


def test_a_command_in_the_first_tables_sentences_is_code_as_in_the_report(
    root: Path, pages: list[Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Headline("A is faster", ["Undecided: `sweep resume a_b` goes on."], [], None, "", "")
    monkeypatch.setattr(first_table_module, "headline_of", lambda report: told)
    text = first_table(pages[0].sweeps[1].folder, root)
    assert "\n\nUndecided: `sweep resume a_b` goes on.\n\n" in text
    assert headline_markdown(told) == "**A is faster**. Undecided: `sweep resume a_b` goes on.\n"


TABLES = GoalTables("| goals |", "| peaks |")


def test_the_index_has_a_line_for_each_sweep_and_the_records(pages: list[Page], found: dict[Path, str]) -> None:
    text = index_of(pages, found, TABLES, "| ratios |")
    parts = ("# Results", "## All sweeps", "| [page]", "- [record]", "## How far", "| goals |", "## Where the peak", "| peaks |")
    places = [text.index(part) for part in (*parts, "## Others' ratios", "| ratios |")]
    assert places == sorted(places), "the index comes first"
    headings = {"#" + re.sub("[^a-z ]", "", line[3:].lower()).replace(" ", "-") for line in text.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\]\((#[^)]+)\)", text)) == headings
    lines = [line for line in text.splitlines() if line.startswith("| [page]")]
    assert len(lines) == 3
    assert lines[1] == (
        f"| [page](page/README.md#{REPEATED}) | made\\_up: Made-up numbers | {found[pages[0].sweeps[1].folder]} | Made-up CPU | "
        "2 to 3 trials for each of 2 cells | 2026-01-01 | made\\_up · smoke |"
    )
    assert " | – | Other | 1 trial for each of 2 cells | " in lines[0]
    assert "- [record](record/README.md): A record\\_of old\n" in text
    alone = index_of([replace(pages[0], sweeps=pages[0].sweeps[:1])], found, TABLES, "")
    assert "\n| [page](page/README.md) | " in alone, "its head is the page's"
    assert "Pages without a manifest" not in index_of(pages[:1], found, TABLES, "")


def test_lines_of_one_title_are_told_apart_by_what_each_sweep_set_and_chose(pages: list[Page], found: dict[Path, str]) -> None:
    """Two language models had the same line, and findings that contradicted each other. A sweep of another title tells nothing of them."""
    page = pages[0]
    asked: list[dict[str, Any]] = [
        {"set": {"measure_s": 3, "seed": 1}, "only": {"model": ["llama3-8b"]}},
        {"set": {"seed": 1}, "only": {"model": ["qwen3-0.6b"]}},
        {"set": {"seed": 2}},
    ]
    plans = [
        one.plan.model_copy(update={"request": one.plan.request.model_copy(update=more)})
        for one, more in zip(page.sweeps, asked, strict=True)
    ]
    titled = plans[2].suite.model_copy(update={"report": plans[2].suite.report.model_copy(update={"title": "Other"})})
    plans[2] = plans[2].model_copy(update={"suite": titled})
    changed = replace(page, sweeps=[replace(one, plan=plan) for one, plan in zip(page.sweeps, plans, strict=True)])
    lines = [line for line in index_of([changed], found, TABLES, "").splitlines() if line.startswith("| [page]")]
    assert [line.split(" | ")[1] for line in lines] == [
        "made\\_up: Made-up numbers; measure\\_s 3; model llama3-8b",
        "made\\_up: Made-up numbers; model qwen3-0.6b",
        "Other",
    ]


def test_sweeps_that_ask_the_same_on_other_hosts_name_each_other(pages: list[Page]) -> None:
    repeated, fits = pages[0].sweeps[1:]
    here = replace(repeated, hosts=frozenset({"a"}))
    there = replace(repeated, folder=repeated.folder.with_name("there"), hosts=frozenset({"b", "c"}))
    again = replace(repeated, folder=repeated.folder.with_name("again"), hosts=frozenset({"c"}))  # shares one with `there`
    card = replace(there, folder=repeated.folder.with_name("card"), ran_on=dict.fromkeys(repeated.ran_on, ("Other", 1)))
    silent = replace(there, folder=repeated.folder.with_name("silent"), hosts=frozenset())
    mute = [replace(one, ran_on={}) for one in (here, there)]
    beside = [Page(pages[0].folder.with_name(f"mute_{at}"), "", [one]) for at, one in enumerate(mute)]
    assert on_other_hosts(beside) == {}, "which devices they had is not known"
    request = repeated.plan.request.model_copy(update={"set": {"batch_size": 7}})
    other = replace(there, folder=repeated.folder.with_name("other"), plan=repeated.plan.model_copy(update={"request": request}))
    first = replace(pages[0], sweeps=[here, replace(fits, hosts=frozenset({"a"}))])
    others = [Page(pages[0].folder.with_name(f"page_{one.folder.name}"), "", [one]) for one in (there, again, card, silent, other)]
    names = {found_of.folder: "" for found_of in (here, fits, there, again, card, silent, other)}
    lines = index_of([first, *others], names, TABLES, "").splitlines()
    told = {line.split("](")[0].removeprefix("| ["): line.split(" | ")[1] for line in lines if line.startswith("| [page") and "-" in line}
    link = "[page\\_{}](page_{}/README.md)"
    back = f"Made-up numbers; the same on another host: [page](page/README.md#{REPEATED})"
    assert sum("the same on another host" in line for line in lines) == 3
    assert next(one for one in lines if one.startswith(f"| [page](page/README.md#{REPEATED})")).split(" | ")[1] == (
        f"made\\_up: Made-up numbers; the same on another host: {link.format('there', 'there')} and {link.format('again', 'again')}"
    )
    assert told["page\\_there"].endswith(back) and told["page\\_again"].endswith(back)
    assert {told[f"page\\_{name}"] for name in ("card", "silent", "other")} == {"made\\_up: Made-up numbers"}


def test_the_hosts_of_a_sweep_are_those_of_its_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    fakes = [Fake({"pool": "cpu", "dataloader_workers": count}, environment={"host_id": host}) for count, host in ((0, "a"), (1, "b"))]
    publish([kept(tmp_path / "runs", FITS, fakes)], tmp_path / "page")
    assert [sweep.hosts for page in pages_in(tmp_path) for sweep in page.sweeps] == [frozenset({"a", "b"})]


def test_the_command_is_told_with_the_resume_that_gave_it_more_time(pages: list[Page]) -> None:
    """Else the command would give fewer trials than stand beside it."""
    once = pages[0].sweeps[0]
    longer = replace(once, plan=once.plan.model_copy(update={"decide": DecideSettings(budget_s=327.0)}))
    said = "`sweep run made_up --profile smoke`, continued by `sweep resume --budget ...`, up to 5 min of trials in all"
    assert measured(longer).startswith(f"{said}: 1 trial for each of 2 cells, 2 in all, ")


def test_only_what_is_stale_is_written(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same, other, new = tmp_path / "same", tmp_path / "other", tmp_path / "new"
    same.write_text("a")
    other.write_text("b")
    monkeypatch.setattr(write, "documents_of", lambda root: {same: "a", other: "c", new: "d"})
    assert write.write_documents(root) == [other, new]
    assert (same.read_text(), other.read_text(), new.read_text()) == ("a", "c", "d")
    assert write.write_documents(root) == []


def test_a_row_leaves_out_groups_of_one_cell_where_all_groups_share_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cells on one device, one on two: how the rate grows is said, what the cell alone has is not."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "runs"))
    cells = [(1, 0, 100.0), (1, 1, 150.0), (2, 0, 190.0)]
    fakes = [Fake({"pool": "cpu", "model": "a", "devices": n, "dataloader_workers": w}, rate, repeats=3) for n, w, rate in cells]
    publish([kept(tmp_path / "runs", REPEATED, fakes)], tmp_path / "page")
    [page] = pages_in(tmp_path)
    said = finding(page.sweeps[0], head_of(page.sweeps[0]))
    assert said.startswith("MP-0: from 1 to 2 devices the rate of all together grows x1.902 (")
    assert "; devices 1: MP-1 is fastest, x1.50" in said
    assert "devices 2: " not in said and said.endswith(".") and not said.endswith("..")


def test_a_precision_is_named_where_all_cells_have_it() -> None:
    """References of loss parity are no cells."""
    half, single = (row(workers(0), parameters={"precision": name}).trial for name in ("fp16", "fp32"))
    for other, said in ((single, ""), (single.model_copy(update={"reference": True}), "fp16"), (half, "fp16")):
        plan = make_plan([half, other], suite=as_suite(settings()))
        assert SweepOnPage(Path("sweep"), plan, "", "", "", 1).precision == said
