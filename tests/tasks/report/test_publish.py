"""`sweep publish`: what is written, that it is read as the sweep was, and which page is replaced."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cluster.journal.journal import JournalWriter
from experiments.config.paths import runs_root
from experiments.json_file import sealed_text
from experiments.trial import DataSource
from flows.cli.commands import app
from tasks.analysis.results import ResultsError, load_sweep
from tasks.documents.finding import finding, head_of
from tasks.report.comparison_table import TextTable
from tasks.report.manifest import check_published
from tasks.report.model import make_report
from tasks.report.page_folder import PublishError
from tasks.report.publish import publish
from tasks.report.published_pages import pages_in
from tasks.report.republish import republish
from tasks.sweep.store import AaSettings, SweepStore
from tests.tasks.aa_support import SETTINGS
from tests.tasks.cell_support import column
from tests.tasks.fake_sweep import SUITE, SWEEP_ID, TREE, Fake, make_sweep, trial_dirs, whole_sweep
from tests.tasks.held_support import write_slots
from tests.tasks.report.publish_support import OTHER_ID, edit, fakes, whole
from tests.tasks.spread_support import write_history


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published page, which is made once."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPBENCH_RUNS", str(folder / "runs"))
        publish([whole()], folder / "page")
    return folder / "page"


@pytest.fixture
def page(written: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(written, tmp_path / "page"))


def test_a_whole_sweep_is_published_and_read_as_it_was(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "docs" / "page"
    assert publish([store], page) == page / "README.md"
    before, after = load_sweep(store.dir), load_sweep(page / SWEEP_ID)
    assert after.plan == before.plan and (page / SWEEP_ID / "plan.json").read_bytes() == (store.dir / "plan.json").read_bytes()
    for old, new in zip(before.rows, after.rows, strict=True):
        assert (new.trial, new.outcome, dict(new.summary)) == (old.trial, old.outcome, dict(old.summary))
        assert new.steps.tolist() == old.steps.tolist() and new.losses.tolist() == old.losses.tolist()
        assert new.rms.keys() == old.rms.keys(), "no other trial's tensors"
        assert new.environment == {name: value for name, value in old.environment.items() if name != "host"}
    names = {path.relative_to(page).as_posix() for path in page.rglob("*") if path.is_file()}
    files = {"plan.json", "results.parquet", "steps.parquet", "report.md", "report.html", "known_spread.json", "certificates.json"}
    assert {name for name in names if "/figures/" not in name} == {"README.md", "manifest.json", *(f"{SWEEP_ID}/{name}" for name in files)}
    assert check_published(page) == []


def test_the_page_says_how_many_loader_processes_are_enough(page: Path) -> None:
    lines = [line for line in (page / "README.md").read_text().splitlines() if line.startswith("- MP-")]
    report = (page / SWEEP_ID / "report.md").read_text()
    assert len(lines) == 1 and lines[0].startswith("- MP-1 is the fastest measured (x1.50") and lines[0] in report


def test_the_page_says_how_rates_scale_and_what_communication_costs(tmp_path: Path) -> None:
    cost = {"alone_s": 0.018, "with_s": 0.27, "without_s": 0.257, "step_s": 0.26}
    axes = [
        Fake({"pool": "cpu", "devices": 1}, 100.0, repeats=2),
        Fake({"pool": "cpu", "devices": 4}, 380.0, repeats=2, window={"communication": cost}),
    ]
    make_sweep(runs_root(), axes, suite={**SUITE, "baseline": {"devices": 1}})
    text = publish([SweepStore(SWEEP_ID)], tmp_path / "page").read_text()
    [header] = [line for line in text.splitlines() if line.startswith("| cell |")]
    assert [part.strip() for part in header.split("|")[2:9]] == [
        *("devices", "rate", "speed-up", "efficiency", "all-reduce alone", "exposed", "communication share"),
    ]
    [four] = [line for line in text.splitlines() if line.startswith("| devices 4 | 4 |")]
    assert "| 95.0 % | 18.0 ms | 13.0 ms | 5.0 % |" in four
    assert f"\n![Each cell, with its 95 % interval where that is known]({SWEEP_ID}/figures/throughput.svg)\n" in text


def test_the_page_counts_the_spikes_that_a_suite_asks_for(tmp_path: Path) -> None:
    looked = {"steps": 400, "rms": lambda step: 1.0, "parameters": {"spikes_after": 100}, "window": {"spikes_after": 100}}
    spiky = Fake({"pool": "cpu", "update_rule": "adamw"}, loss=lambda step: 2.0 + 2.0 * (step in (204, 205)), **looked)  # type: ignore[arg-type]
    quiet = Fake({"pool": "cpu", "update_rule": "stable_adamw"}, **looked)  # type: ignore[arg-type]
    make_sweep(runs_root(), [spiky, quiet])
    text = publish([SweepStore(SWEEP_ID)], tmp_path / "page").read_text()
    lines = [line.split(" | ") for line in text.partition("\nSpikes. ")[2].splitlines() if line.startswith("| ")]
    cells = {line[0].removeprefix("| "): line[1] for line in lines}
    assert (cells["adamw"], cells["stable\\_adamw"]) == ("1", "0")
    assert f"]({SWEEP_ID}/figures/spikes.svg)\n" in text and (tmp_path / "page" / SWEEP_ID / "figures" / "spikes.svg").exists()


def test_the_page_leads_to_the_outcomes_where_a_trial_did_not_end_ok(page: Path, tmp_path: Path) -> None:
    text, report = (page / "README.md").read_text(), (page / SWEEP_ID / "report.md").read_text()
    assert "; 1 of 5 crashed\n" in text and f"among them [Outcomes]({SWEEP_ID}/report.md#outcomes)" in text and "\n## Outcomes\n" in report
    publish([whole(made=fakes()[:2])], tmp_path / "all-ok")
    assert "#outcomes" not in (tmp_path / "all-ok" / "README.md").read_text()


def test_a_drawn_data_set_is_named_without_the_place_of_runs(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    plan = store.load_plan()
    drawn = DataSource(
        uri="/home/somebody/runs/data/scenes-12ab", fingerprint="12ab", tokenizer="/home/somebody/runs/data/scenes-12ab/tokenizer"
    )
    trials = [trial.model_copy(update={"data": drawn, "parameters": {**trial.parameters, "dataset": "drawn"}}) for trial in plan.trials]
    for trial in trials:
        (store.trial_dir(trial.key) / "trial.json").write_text(sealed_text(trial))
    cut = trials[0].model_copy(update={"key": "c" * 16, "index": len(trials)})  # there was no time for it
    store.save_plan(plan.model_copy(update={"trials": trials, "cut": [cut]}))
    publish([store], page)
    assert not [path for path in page.rglob("*") if path.is_file() and b"somebody" in path.read_bytes()]
    kept = SweepStore(SWEEP_ID, page).load_plan()
    assert len(kept.cut) == 1
    published = [*kept.trials, *kept.cut]
    told = {"uri": "runs/data/scenes-12ab", "fingerprint": "12ab", "tokenizer": "runs/data/scenes-12ab/tokenizer"}
    assert [trial.data.model_dump() if trial.data else None for trial in published] == [told] * (len(trials) + 1)


def test_the_home_of_whoever_publishes_is_on_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    store, page = whole(), tmp_path / "page"
    plan = store.load_plan()
    suite = plan.suite.model_copy(update={"file": "/home/somebody/mine/sine.yaml"})
    request = plan.request.model_copy(update={"set": {"dataset": "/home/somebody/data", "other": "/home/somebody-else/x"}})
    store.save_plan(plan.model_copy(update={"suite": suite, "request": request, "command": "sweep campaign /home/somebody/mine.yaml"}))
    publish([store], page)
    assert not [path for path in page.rglob("*") if path.is_file() and b"/home/somebody/" in path.read_bytes()]
    kept = SweepStore(SWEEP_ID, page).load_plan()
    assert (kept.command, kept.suite.file) == ("sweep campaign ~/mine.yaml", "~/mine/sine.yaml")
    assert kept.request.set == {"dataset": "~/data", "other": "/home/somebody-else/x"}
    assert check_published(page) == [] and "`sweep campaign ~/mine.yaml`" in (page / "README.md").read_text()


def test_the_readme_says_what_the_data_say_and_no_file_names_a_host(page: Path) -> None:
    text = (page / "README.md").read_text()
    for line in (
        "- **Suite:** made\\_up, profile smoke\n",
        "- **Device:** Made-up CPU",
        "- **Settings:** precision fp32, batch\\_size 8\n",
        "- **Hosts:** 0123456789ab",
        "- **Software:** torch 2.13.0",
        f"- **Code:** commit 0123456789ab with uncommitted changes, tree {TREE} in every trial",
        "- **Date:** 2026-01-01 (UTC)",
        "- **Trials:** 1 to 2 for each of 3 cells",
        "- **Command:** `sweep run made_up --profile smoke`",
        f"- **Sweep:** `{SWEEP_ID}`",
        "| cpu |",
    ):
        assert line in text, line
    assert text.startswith("# made\\_up, Made-up CPU\n"), "a suite without a title is called by its name"
    assert text.count("2026-01-01") == 1
    places = [text.index(part) for part in ("In every cell: cpu · base.", "**MP-1", "| cpu |", "![", "How it was measured:", "- **Date")]
    assert places == sorted(places), "what was found comes before how"
    assert "host 0123456789ab: lost" in (page / SWEEP_ID / "report.md").read_text(), "the reason, without the host's name"
    steps = load_sweep(page / SWEEP_ID)
    assert "box" not in " ".join(str(row) for row in steps.rows)
    for path in page.rglob("*"):
        if path.suffix in (".md", ".json", ".html"):
            assert "box:" not in path.read_text() and '"box"' not in path.read_text(), path


def test_the_page_of_several_sweeps_is_called_by_what_they_measure_and_leads_to_each(tmp_path: Path) -> None:
    stores, page = [whole(), whole(OTHER_ID)], tmp_path / "page"
    plan = stores[1].load_plan()
    other = plan.suite.model_copy(
        update={"title": "BERT inference", "report": plan.suite.report.model_copy(update={"title": "Of batches"})}
    )
    stores[1].save_plan(plan.model_copy(update={"suite": other, "profile": "cuda"}))
    text = publish(stores, page).read_text()
    assert text.startswith("# made\\_up and BERT inference, Made-up CPU\n")
    contents = [line for line in text.splitlines() if line.startswith("- [")]
    assert [line.partition(":")[0] for line in contents] == [
        f"- [made\\_up · smoke](#{SWEEP_ID})",
        f"- [Of batches](#{OTHER_ID}), made\\_up · cuda",
    ]
    assert all("MP-1" in line for line in contents), "with what was found"
    assert text.index(f'<a id="{SWEEP_ID}"></a>') < text.index(f'<a id="{OTHER_ID}"></a>\n\n## Of batches\n')


def test_sweeps_of_one_heading_are_told_apart_by_what_each_set_itself(tmp_path: Path) -> None:
    stores, page = [whole(), whole(OTHER_ID)], tmp_path / "page"
    settings = {SWEEP_ID: {"steps": 40, "batch_size": 32}, OTHER_ID: {"steps": 40, "evaluate": False}}
    for store in stores:
        plan = store.load_plan()
        store.save_plan(plan.model_copy(update={"request": plan.request.model_copy(update={"set": settings[store.sweep_id]})}))
    text = publish(stores, page).read_text()
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == [
        "made\\_up · smoke; batch\\_size 32",
        "made\\_up · smoke; evaluate false",
    ], "not what both set, nor what the other one did"


def test_the_contents_of_an_aa_page_have_no_intervals_which_each_sweeps_section_has_once(tmp_path: Path) -> None:
    stores = []
    for sweep_id in (SWEEP_ID, OTHER_ID):
        arms = [Fake({"pool": "gpu", "twin": twin}, repeats=9, between=0.02) for twin in "AB"]
        store = whole_sweep(runs_root(), arms, sweep_id=sweep_id, suite=SETTINGS)
        store.save_plan(store.load_plan().model_copy(update={"aa": AaSettings(pairs=9)}))
        for path in store.dir.glob("trials/*/result.json"):  # as if a sampler had been beside them
            path.write_text(path.read_text().replace('"summary":{}', '"summary":{"state_coverage":1.0}'))
        stores.append(store)
    text = publish(stores, tmp_path / "page").read_text()
    contents, sections = text.partition("<a id=")[::2]
    for store in stores:
        [line] = [line for line in contents.splitlines() if f"(#{store.sweep_id})" in line]
        assert ": 9 A/A pairs: intervals of three repeats covered 3 of 3, 0 false verdicts." in line
    assert sections.count("; single pairs, with the spread of the other pairs: ") == 2 and contents.count("; single pairs") == 1, "together"
    [page] = pages_in(tmp_path)
    assert [finding(sweep, head_of(sweep)) for sweep in page.sweeps] == [
        "9 A/A pairs: intervals of three repeats covered 3 of 3, 0 false verdicts."
    ] * 2, "in the index too"


def test_what_was_known_from_other_sweeps_is_published_and_the_stores_are_not(tmp_path: Path) -> None:
    """A cell that ran once has the interval that past sweeps gave it, although they are not there."""
    single = [Fake({"pool": "cpu", "model": "base", "dataloader_workers": count}) for count in (0, 1)]
    store, page = whole(made=single), tmp_path / "page"
    write_history(runs_root(), trial_sd=0.01)
    before = sorted(path.name for path in runs_root().rglob("*") if path.parent.name in ("spread", "certificates"))
    publish([store], page)
    assert sorted(path.name for path in runs_root().rglob("*") if path.parent.name in ("spread", "certificates")) == before
    for name in ("known_spread.json", "certificates.json"):
        assert (page / SWEEP_ID / name).read_bytes() == (store.dir / name).read_bytes()
        assert f"{SWEEP_ID}/{name}" in json.loads((page / "manifest.json").read_text())["files"]
    text = (page / SWEEP_ID / "known_spread.json").read_text() + (page / SWEEP_ID / "certificates.json").read_text()
    assert not any(private in text for private in ("box", "0123456789ab", str(tmp_path), str(runs_root())))
    first, again = (make_report(load_sweep(folder)).cells[0].estimate for folder in (store.dir, page / SWEEP_ID))
    assert first == again and first is not None and first.relative == pytest.approx(0.0196, rel=0.2)


def test_where_the_held_time_went_is_published_though_the_journals_are_not(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    trials = store.load_plan().trials
    for trial in trials[:2]:
        write_slots(store, trial.key)
    publish([store], page)
    here, there = (make_report(load_sweep(folder)).section("held_time") for folder in (store.dir, page / SWEEP_ID))
    assert here == there and there.table.rows and "/report.md#where-the-held-time-went)" in (page / "README.md").read_text()
    assert f"{SWEEP_ID}/held_time.json" in json.loads((page / "manifest.json").read_text())["files"]
    assert any(path.name == "held-time.svg" for path in (page / SWEEP_ID / "figures").iterdir())


def test_what_disturbed_a_trial_is_published_without_whose_it_was(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    others = "another process (pid 7, user ada) was on the device; 38.1 % x (limit 5 %): run.py pid 8 2 s, cc1 pid 9 1 s; y (limit 1 %)"
    edit(trial_dirs(store.dir)[0] / "result.json", disturbed=others)
    publish([store], page)
    row = load_sweep(page / SWEEP_ID).rows[0]
    assert row.disturbed == "another process (pid 7) was on the device; 38.1 % x (limit 5 %); y (limit 1 %)"
    assert not any(b"user ada" in path.read_bytes() for path in page.rglob("*.md"))


def sampled(store: SweepStore, trial: Path, words: list[str]) -> None:
    """The sampler's records of a trial, and in its result what a worker derives from them."""
    with JournalWriter(trial / "device_state.jsonl", 1, interval=600) as records:
        records.append("sampler", attempt=1, device="cuda", hz=10.0, user="ada")
        for tick in range(620):
            device = {"index": 0, "sm_mhz": 1800, "capped_by": words, "others": []}
            records.append("state", t=1_767_225_600 + tick / 10, devices=[device], cpu={})
    state = next(row.state for row in load_sweep(store.dir).rows if row.trial.key == trial.name)
    assert state is not None and state.capped_share == float(bool(words)), "the records are of the measured window"
    result = json.loads((trial / "result.json").read_text())
    edit(trial / "result.json", summary={**result["summary"], **state.metrics()})


def test_what_capped_a_clock_is_published_and_the_samples_are_not(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    for trial, words in zip(trial_dirs(store.dir)[:2], (["power"], []), strict=True):
        sampled(store, trial, words)
    publish([store], page)
    assert not list(page.rglob("device_state.jsonl"))
    published = load_sweep(page / SWEEP_ID)
    assert sorted((row.state, row.capped_by) for row in published.rows)[-1] == (None, ("power",))
    told = [line["capped_by"] for line in pq.read_table(page / SWEEP_ID / "results.parquet").to_pylist()]
    assert sorted(word or "" for word in told) == ["", "", "", "", "power"]
    table = next(block for block in make_report(published).section("device_state").blocks if isinstance(block, TextTable))
    assert sorted(zip(column(table, "by"), column(table, "capped"), strict=True)) == [("power", "100 %"), ("–", "0.0 %")]


def test_several_sweeps_are_one_page(tmp_path: Path) -> None:
    page = tmp_path / "page"
    publish([whole(), whole(OTHER_ID)], page)
    assert {path.name for path in page.iterdir()} == {SWEEP_ID, OTHER_ID, "README.md", "manifest.json"}
    assert (page / "README.md").read_text().count("- **Sweep:**") == 2 and check_published(page) == []
    with pytest.raises(PublishError, match=f"sweep {SWEEP_ID} is named twice; name each once"):
        publish([SweepStore(SWEEP_ID), SweepStore(SWEEP_ID)], page)


def test_only_a_page_of_this_command_is_replaced(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    page.mkdir()
    publish([store], page)  # an empty folder
    publish([store], page)
    assert check_published(page) == []
    (page / "notes.md").write_text("by hand")
    with pytest.raises(PublishError, match=r"notes\.md is not of the page that is there"):
        publish([store], page)
    assert (page / "notes.md").read_text() == "by hand"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "README.md").write_text("by hand")
    with pytest.raises(PublishError, match="foreign holds what `sweep publish` did not write"):
        publish([store], foreign)
    assert [path.name for path in foreign.iterdir()] == ["README.md"]


@pytest.mark.parametrize("how", ["changed", "missing", "added", "figure"])
def test_a_page_that_was_changed_is_found(page: Path, how: str) -> None:
    assert check_published(page) == []
    if how == "changed":
        (page / "README.md").write_text((page / "README.md").read_text() + "x1.88\n")
    elif how == "missing":
        (page / SWEEP_ID / "report.md").unlink()
    elif how == "added":
        (page / SWEEP_ID / "more.md").write_text("")
    else:
        (page / SWEEP_ID / "figures" / "throughput.svg").write_text("<svg/>")
    file = {"changed": "README.md was changed", "missing": "report.md is missing", "added": "more.md is not in the manifest"}
    (problem,) = check_published(page)
    assert problem.endswith(file.get(how, "throughput.svg was changed"))


def test_a_plan_that_was_changed_with_its_checksum_is_found_by_its_seal(page: Path) -> None:
    path = page / SWEEP_ID / "plan.json"
    edit(path, command="x")
    manifest = json.loads((page / "manifest.json").read_text())
    manifest["files"][f"{SWEEP_ID}/plan.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (page / "manifest.json").write_text(json.dumps(manifest))
    assert check_published(page) == [
        f"{path} was changed after it was written: its seal does not hold; put back what the sweep wrote, or start another sweep"
    ]
    (page / "manifest.json").write_text("[]")
    with pytest.raises(ResultsError, match=r"manifest\.json is no manifest"):
        check_published(page)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/proc/x", "nothing was written: /proc/x cannot be made (No such file or directory); {right}"),
        (
            "file/x",
            "nothing was written: {root}/file/x cannot be made ({root}/file is no folder); name a folder in one where you may write",
        ),
        ("file", "nothing was published:\n- {root}/file is a file; choose a folder"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PublishError) as raised:
        publish([whole()], tmp_path / name)
    assert str(raised.value) == said.format(root=tmp_path, right="name a folder in one where you may write")


def test_the_command_writes_checks_and_refuses(tmp_path: Path) -> None:
    store, page = whole(), tmp_path / "page"
    done = CliRunner().invoke(app, ["publish", "last", "--to", str(page)])
    assert done.exit_code == 0 and f"published: {page / 'README.md'}" in done.output
    assert "not on the page any more" not in done.output
    other = whole("made-up-20260102-000000-0000").sweep_id
    done = CliRunner().invoke(app, ["publish", other, "--to", str(page)])
    assert done.exit_code == 0 and f"not on the page any more: {SWEEP_ID}" in done.output
    done = CliRunner().invoke(app, ["publish", SWEEP_ID, "--to", str(page)])
    assert done.exit_code == 0 and f"not on the page any more: {other}" in done.output
    done = CliRunner().invoke(app, ["publish", "--check", str(page)])
    assert done.exit_code == 0 and f"{page} is as it was written" in done.output
    (page / "README.md").write_text("x")
    done = CliRunner().invoke(app, ["publish", "--check", str(page)])
    assert done.exit_code == 1 and "README.md was changed" in done.output
    edit(store.dir / "plan.json", command="x")
    done = CliRunner().invoke(app, ["publish", SWEEP_ID, "--to", str(page)])
    assert done.exit_code == 1 and "plan.json was changed after it was written" in done.output
    assert (page / "README.md").read_text() == "x", "the page that is there stays"
    for wrong in ([], ["last"], ["--to", "x"], ["last", "--check", "x"], ["last", "--to", "x", "--check", "x"], ["last", "--again", "x"]):
        assert CliRunner().invoke(app, ["publish", *wrong]).exit_code != 0


@pytest.mark.parametrize("given", [".", "../page/../page", "../link"])
def test_a_page_is_replaced_by_whatever_path_it_is_named(tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page that is moved away must not be on the way to the new one; of a link the page is replaced that it leads to."""
    store, page = whole(), tmp_path / "page"
    publish([store], page)
    (tmp_path / "link").symlink_to(page)
    for again in (lambda: publish([store], Path(given)), lambda: republish(Path(given))):
        monkeypatch.chdir(page)
        assert again() == Path(given) / "README.md"
        assert {path.name for path in tmp_path.iterdir() if "page" in path.name or "link" in path.name} == {"page", "link"}
        assert check_published(page) == [] and (tmp_path / "link").is_symlink() and not page.is_symlink()
