"""A page leads to A/A pairs that other pages publish of its device, where its own sweep knew none. All numbers are made up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.config.paths import runs_root
from tasks.report.publish import publish
from tasks.report.republish import republish
from tasks.sweep.store import AaSettings, SweepStore
from tests.tasks.aa_support import SETTINGS
from tests.tasks.fake_sweep import SUITE, SWEEP_ID, Fake, whole_sweep

AA_ID = "made-up-20260102-000000-ffff"
START = "- **A/A on other pages:** "


def of_metric(name: str) -> dict[str, Any]:
    return {**SUITE, "report": {**SUITE["report"], "metric": name}}


def pairs(root: Path) -> None:
    """A page of nine A/A pairs, which no runs folder knows any more."""
    arms = [Fake({"pool": "gpu", "twin": twin}, repeats=9, between=0.02) for twin in "AB"]
    store = whole_sweep(runs_root(), arms, sweep_id=AA_ID, suite=SETTINGS)
    store.save_plan(store.load_plan().model_copy(update={"aa": AaSettings(pairs=9)}))
    for path in store.dir.glob("trials/*/result.json"):  # as if a sampler had been beside them
        path.write_text(path.read_text().replace('"summary":{}', '"summary":{"state_coverage":1.0}'))
    publish([store], root / "pairs")
    shutil.rmtree(store.dir)


def plain(device: str = "Made-up CPU", metric: str = "throughput") -> SweepStore:
    fakes = [Fake({"pool": "cpu", "dataloader_workers": count}, environment={"device_name": device}) for count in (0, 1)]
    return whole_sweep(runs_root(), fakes, suite=of_metric(metric))


def said(readme: Path) -> list[str]:
    return [line.removeprefix(START) for line in readme.read_text().splitlines() if line.startswith(START)]


@pytest.mark.parametrize(
    ("device", "metric", "told"),
    [
        ("Made-up CPU", "throughput", "on Made-up CPU"),
        ("Made-up CPU", "tokens_per_s", "on Made-up CPU, throughput"),  # a rate too
        ("Made-up CPU", "step_time_median_s", ""),
        ("Made-up GPU", "throughput", ""),
    ],
)
def test_pairs_of_the_same_device_and_kind_of_metric_are_told(device: str, metric: str, told: str, tmp_path: Path) -> None:
    pairs(tmp_path)
    text = f"[pairs](../pairs/README.md): 9 A/A pairs of made\\_up {told}: intervals of three repeats covered 3 of 3, 0 false verdicts"
    readme = publish([plain(device, metric)], tmp_path / "page")
    assert said(readme) == ([text] if told else [])
    lines = readme.read_text().split("How it was measured:\n\n")[1].splitlines()
    assert all(line.startswith("- ") for line in lines[: lines.index("")]) and "**Sweep:**" in lines[lines.index("") - 1], "one list"


def test_a_page_that_is_written_again_tells_what_was_published_since(tmp_path: Path) -> None:
    assert said(publish([plain()], tmp_path / "page")) == []
    pairs(tmp_path)
    assert len(said(republish(tmp_path / "page"))) == 1 and said(tmp_path / "pairs" / "README.md") == [], "it has its own"
    assert "No A/A pairs of Made-up CPU were known where the sweep ran, " in (tmp_path / "page" / SWEEP_ID / "report.md").read_text()


@pytest.mark.parametrize("damaged", ["steps.parquet", "results.parquet"])
def test_pairs_that_cannot_be_read_are_not_told(damaged: str, tmp_path: Path) -> None:
    pairs(tmp_path)
    (tmp_path / "pairs" / AA_ID / damaged).write_bytes(b"\xff{")
    assert said(publish([plain()], tmp_path / "page")) == []
