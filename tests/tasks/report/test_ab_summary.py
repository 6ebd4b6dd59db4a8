"""The comment of an A/B sweep: what stands in its table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.trial_layout import PLAN
from experiments.json_file import seal_of
from tasks.analysis.ab import ab_pairs
from tasks.analysis.trial_row import TrialRow
from tasks.report import model
from tasks.report.ab_summary import _ratio, pull_request_comment
from tasks.report.cautions import CautionGroup
from tasks.sweep.ab_settings import AbSettings
from tests.tasks.cell_support import disturbed, made, row, settings
from tests.tasks.fake_sweep import Fake, make_sweep

SIDES = AbSettings(kind="commits", a="main", b="HEAD")


def side(label: str, values: list[float]) -> list[TrialRow]:
    axes: dict[str, Any] = {"pool": "cpu", "side": label}
    return [row(axes, value, repeat=number) for number, value in enumerate(values, 1)]


def test_a_ratio_says_of_which_rounds_it_is_where_it_is_not_that_of_the_values_beside_it() -> None:
    first, second = SIDES.labels
    suite = settings(rows=["pool"], columns="side", baseline={"side": first})
    a, b = side(first, [20_000.0, 24_000.0, 32_560.0]), side(second, [15_000.0, 17_500.0, 20_838.0])
    [whole] = ab_pairs(made([*a, *b], suite), SIDES)
    assert _ratio(whole).startswith("x0.70 (") and "round" not in _ratio(whole)
    [apart] = ab_pairs(made([*map(disturbed, a[:2]), a[2], *map(disturbed, b)], suite), SIDES)
    assert _ratio(apart) == "x0.64 (interval unknown), of round 3 alone"


def test_a_caution_of_the_comment_shows_its_command_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_sweep(tmp_path, [Fake({"pool": "cpu", "dataloader_workers": count}) for count in (0, 1)])
    plan = {**json.loads((folder / PLAN).read_text()), "ab": SIDES.model_dump(mode="json")}
    plan.pop("seal")
    (folder / PLAN).write_text(json.dumps({**plan, "seal": seal_of(plan)}))
    caution = CautionGroup("Settling", ["Late in MP-0_1, such as `--set warmup_s=2`."])
    monkeypatch.setattr(model, "caution_groups", lambda *_, **__: [caution])
    assert "\n- Late in MP-0\\_1, such as `--set warmup_s=2`.\n" in pull_request_comment(folder)
