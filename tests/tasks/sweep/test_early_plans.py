"""Plans of earlier versions: their metrics' names mean what they meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cluster.pools.pool import load_pools
from experiments.config.errors import DamagedFile
from experiments.json_file import seal_of
from experiments.spec.load import load_suite
from tasks.sweep.early_plans import CAPTIONS
from tasks.sweep.store import read_plan
from tests.tasks.plan_support import make_plan, make_suite, make_trial


@pytest.mark.parametrize(("version", "expected"), [(1, "service_time_p50_s"), (2, "service_time_p50_s"), (3, "latency_p50_s")])
def test_what_was_called_latency_was_a_service_time(tmp_path: Path, version: int, expected: str) -> None:
    content = make_plan([make_trial(1)], suite=make_suite()).model_dump(mode="json")
    figures = [{"title": "t", "metric": "latency_per_sample_s", "x": "number"}, {"title": "t", "metric": "throughput", "x": "number"}]
    content["suite"]["report"] |= {"metric": "latency_p50_s", "figures": figures}
    path = tmp_path / "plan.json"
    content["schema_version"] = version
    path.write_text(json.dumps({**content, "seal": seal_of(content)} if version == 3 else content))
    plan = read_plan(path)
    assert plan is not None
    report = plan.suite.report
    assert report.metric == expected
    per_sample = "latency_per_sample_s" if version == 3 else "service_time_per_sample_s"
    assert [figure.metric for figure in report.figures] == [per_sample, "throughput"]


@pytest.mark.parametrize(
    ("profile", "suite"),
    [("x2_fit", "flava"), ("x4_fit", "flava"), ("x4", "bridgetower"), ("x4", "vit"), ("unprovoked", "clip_stability")],
)
def test_a_caption_that_stated_a_machine_says_what_its_profile_says_today(tmp_path: Path, profile: str, suite: str) -> None:
    today = load_suite(suite, profile=profile, pools=load_pools()).description
    early = next(early for early, late in CAPTIONS.items() if late == today)
    path = tmp_path / "plan.json"
    texts = [(early, today), ("One GPU", "One GPU"), (today, today), ("On one GPU of this machine; at batch 1", "On one GPU; at batch 1")]
    for caption, expected in texts:
        content = make_plan([make_trial(1)], suite=make_suite()).model_dump(mode="json")
        content["suite"]["description"] = caption
        content["suite"]["report"]["title"] = "Large on a GPU of this machine, samples/s"
        text = json.dumps({**content, "seal": seal_of(content)})
        path.write_text(text)
        plan = read_plan(path)
        assert plan is not None and plan.suite.description == expected and path.read_text() == text
        assert plan.suite.report.title == "Large on one GPU, samples/s"


@pytest.mark.parametrize("text", ["[]", "{}", '{"suite": 1}', '{"schema_version": "x", "suite": {"report": {}}}'])
def test_what_is_no_plan_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(DamagedFile, match=re.escape(str(tmp_path / "plan.json"))):
        read_plan(tmp_path / "plan.json")
