"""What the documents show is true: the examples of docs/extending.md run, and every command they name exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cluster.journal.journal import read_journal
from cluster.launchers import for_pool
from cluster.pools.device_kinds import device_kinds
from cluster.pools.pool import load_pools
from experiments.atomic_file import atomic_write
from experiments.json_file import parse_model
from experiments.trial import Outcome, TrialResult
from flows.cli.commands import app
from tasks.analysis.results import load_sweep
from tasks.documents import finding, first_table
from tasks.documents.write import documents_of, stale
from tasks.report import manifest, same_code
from tasks.report.manifest import check_published
from tasks.report.model import make_report
from tasks.sweep.plan import make_plan
from tasks.sweep.store import Request
from tests.contracts import make_trial, result_of, wait

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^`(?P<path>[\w./-]+)`:\n\n```(?:python|yaml)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> dict[str, str]:
    """Path -> content of the files that docs/extending.md shows."""
    return {found["path"]: found["text"] for found in _BLOCK.finditer((ROOT / "docs" / "extending.md").read_text())}


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder my-bench of the document, named by SWEEPBENCH_EXTRA."""
    folder = tmp_path / "my-bench"
    for name, text in examples().items():
        if name.startswith("my-bench/"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(folder))
    return folder


def test_the_document_shows_a_workload_a_suite_a_pool_and_a_device() -> None:
    assert set(examples()) == {
        "my-bench/workloads/sine.py",
        "my-bench/suites/sine.yaml",
        "my-bench/workloads/gpt2.py",
        "my-bench/suites/gpt2.yaml",
        "my-bench/pools.yaml",
        "cluster/devices/onecore.py",
    }


def test_the_suite_of_the_document_can_be_planned(extra: Path) -> None:
    done = CliRunner().invoke(app, ["plan", "sine", "--profile", "full", "--json"])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.output)
    values = [(trial["values"]["precision"], trial["values"]["width"], trial["repeat"]) for trial in plan["trials"]]
    one_round = [("fp32", 64), ("fp32", 1024), ("bf16", 1024)]
    rounds = (one_round, one_round[::-1], one_round)
    assert values == [(*cell, repeat) for repeat, cells in enumerate(rounds, 1) for cell in cells]
    rates = {trial["values"]["width"]: trial["parameters"]["learning_rate"] for trial in plan["trials"]}
    assert rates == {64: 1e-2, 1024: 1e-3}
    smoke, _ = make_plan(Request(suite="sine", profile="smoke"))
    assert [trial.parameters["steps"] for trial in smoke.trials] == [10, 10, 10]


def test_the_pools_of_the_document_are_there(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_ADDRESS", "http://127.0.0.1:1")
    pools = load_pools()
    assert pools["one_core"].embedded
    assert (pools["lab"].address, pools["lab"].capacity) == ("http://127.0.0.1:1", 16)
    assert "cpu" in pools


@pytest.mark.integration
def test_a_trial_of_the_document_runs_and_learns(extra: Path, tmp_path: Path) -> None:
    plan, _ = make_plan(Request(suite="sine", profile="full"))
    trial = plan.trials[0]
    folder = tmp_path / "trial"
    folder.mkdir()
    atomic_write(folder / "trial.json", trial.model_dump_json())
    launcher = for_pool(load_pools()[trial.pool])
    launch = launcher.start(trial, folder, 1)
    wait(launcher, launch)
    result = result_of(folder)
    assert result.outcome is Outcome.OK, launcher.log(launch, folder)
    assert len(read_journal(folder / "journal.jsonl").steps) == 35
    assert result.summary["eval_loss_after"] < result.summary["eval_chance_loss_after"] / 2  # type: ignore[operator]


@pytest.mark.integration
def test_the_real_model_of_the_document_learns_sharded_over_two_ranks(extra: Path, tmp_path: Path) -> None:
    plan, _ = make_plan(Request(suite="gpt2", profile="smoke"))
    assert [(trial.parameters["parallel"], trial.parameters["activation_checkpointing"]) for trial in plan.trials] == [
        *(("ddp", False), ("fsdp2", False), ("fsdp2", True))
    ]
    trial = plan.trials[2]
    folder = tmp_path / "trial"
    folder.mkdir()
    atomic_write(folder / "trial.json", trial.model_dump_json())
    launcher = for_pool(load_pools()[trial.pool])
    launch = launcher.start(trial, folder, 1)
    wait(launcher, launch)
    result = result_of(folder)
    assert result.outcome is Outcome.OK, launcher.log(launch, folder)
    summary = result.summary
    assert summary["eval_loss_after"] < 0.7 * summary["eval_loss_before"] < summary["eval_chance_loss_after"]  # type: ignore[operator]
    assert summary["tflops_per_device"] > 0  # type: ignore[operator]


def test_the_real_model_of_the_document_is_gpt2(extra: Path) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from experiments import workloads
    from experiments.components.workload import Context

    module = workloads.load("gpt2")
    with torch.device("meta"):
        small = module.build(Context(module.Parameters(model="small"), None, "cpu", 0, 1, 1)).model()
    assert sum(parameter.numel() for parameter in small.parameters()) == 124_439_808  # as published (openai-community/gpt2)
    one = module.build(Context(module.Parameters(sequence_length=32), None, "cpu", 0, 1, 2))
    with FlopCounterMode(display=False) as counter:
        one.loss(one.model(), next(one.batches())).backward()
    assert one.flops_per_sample() == pytest.approx(counter.get_total_flops() / 2, rel=0.02)


@pytest.mark.integration
def test_the_device_of_the_document_is_one_new_file(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    for package in ("cluster", "experiments"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    kind = "onecore"
    (root / "cluster" / "devices" / f"{kind}.py").write_text(examples()[f"cluster/devices/{kind}.py"])
    folder = tmp_path / "trial"
    trial = make_trial(folder, "aaaa00000000000d", threads=4)
    atomic_write(folder / "trial.json", trial.model_copy(update={"device": kind}).model_dump_json())
    command = [sys.executable, "-m", "cluster.worker.main", "--trial", str(folder / "trial.json"), "--out", str(folder), "--attempt", "1"]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = parse_model((folder / "result.json").read_bytes(), TrialResult, folder, "")
    assert result.outcome is Outcome.OK, result.detail
    assert (result.environment["device_kind"], result.environment["threads"]) == (kind, 1)
    assert kind not in device_kinds()
    look = [sys.executable, "-c", "from cluster.pools.probe import device_kinds; print(device_kinds())"]
    found = subprocess.run(look, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, check=True)
    assert kind in found.stdout


def anchors(text: str) -> set[str]:
    """Targets of links into a page: its headings, as GitHub names them, and those written by hand."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, *sorted((ROOT / "docs" / "results").rglob("README.md"))], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"^(```.*?^```$|    .*?$)", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            page = (document.parent / path).resolve() if path else document
            assert page.exists(), f"{document}: {target}"
            assert not anchor or anchor in anchors(page.read_text()), f"{document}: {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_and_file_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    for name in re.findall(r"(?:^ {4,}|`)sweep ([a-z]+)\b", text, re.MULTILINE):
        assert name in commands, f"{document.name}: there is no `sweep {name}`"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in re.findall(r"(?:^ {4}|`)make ([a-z-]+)", text, re.MULTILINE):
        assert name in targets, f"{document.name}: there is no `make {name}`"
    for name in re.findall(r"\b((?:experiments|cluster|tasks|flows|tests|benchmarks|docs)/[\w./-]+\.(?:py|yaml|csv|md))", text):
        assert (ROOT / name).exists() or name in examples(), f"{document.name}: there is no {name}"
    for name in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (document.parent / name).exists(), f"{document.name}: the link {name} leads nowhere"


def test_the_options_in_the_documents_are_those_of_the_command_line() -> None:
    known = {"run": set[str](), "plan": set[str](), "ui": set[str](), "report": set[str]()}
    for name, group in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for command in (group, *getattr(group, "commands", {}).values()):
            known.setdefault(name, set()).update({"--help", "-h"}, *(parameter.opts for parameter in command.params))
    for document in DOCUMENTS:
        for line in re.findall(r"(?:^ {4,}|`)sweep ([^`\n#]+)", document.read_text(), re.MULTILINE):
            name, *words = line.split()
            wrong = [word for word in words if word.startswith("-") and word.split("=")[0] not in known.get(name, set())]
            assert not wrong, f"{document.name}: `sweep {line}`: {wrong}"


_loaded = cache(load_sweep)


@pytest.fixture(scope="module")
def _sweeps_are_read_once() -> Iterator[None]:
    """For the three tests below: reading all published sweeps is half of what each of them takes. Nor is git asked which tree each of 34
    commits has, a second each: what a report says of its commit is on no document, and test_same_code.py asks of commits of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(same_code, "tree_at", lambda commit: None)
        for module in (manifest, finding, first_table):
            patch.setattr(module, "load_sweep", _loaded)
        yield
    _loaded.cache_clear()


reads_sweeps = pytest.mark.usefixtures("_sweeps_are_read_once")
SWEEPS = sorted(path.parent for path in (ROOT / "docs" / "results").rglob("plan.json"))


@reads_sweeps
def test_pages_that_sweep_publish_wrote_are_as_it_wrote_them() -> None:
    pages = (path.parent for path in (ROOT / "docs" / "results").rglob("manifest.json"))
    assert [problem for page in pages for problem in check_published(page)] == []


@reads_sweeps
def test_what_the_documents_say_of_results_is_what_the_data_say() -> None:
    """README's first table and its suites, the index of docs/results, the table of metrics: `python -m tasks.documents` writes them."""
    assert [str(path.relative_to(ROOT)) for path in stale(documents_of(ROOT))] == [], "run `python -m tasks.documents`"


@reads_sweeps
@pytest.mark.parametrize("folder", SWEEPS, ids=lambda folder: folder.name)
def test_committed_sweeps_are_read_by_this_version(folder: Path) -> None:
    sweep = _loaded(folder)
    assert sweep.rows and all(row.problem is None for row in sweep.rows)
    assert make_report(sweep).sweep_id == sweep.plan.sweep_id


def test_no_page_names_a_place_of_the_machine_that_made_it() -> None:
    """Plans hold where data lay; a folder below a home directory may name a user too."""
    pages = ROOT / "docs" / "results"
    place = re.compile(rb'[" ](/(?:home|root|work|Users)/[^" ]*)')
    found = {path.relative_to(pages).as_posix(): place.findall(path.read_bytes()) for path in pages.rglob("*.json")}
    assert {name: places for name, places in found.items() if places} == {}
