"""How far published sweeps are from the goals, from made-up sweeps. Nothing here is a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.spec.load import load_suite
from tasks.analysis.results import write_steps
from tasks.documents.goals import Goal, goals_table, read_goals
from tasks.documents.published import Page, pages_in
from tasks.report.publish import publish
from tasks.sweep.store import SweepStore
from tests.tasks.fake_sweep import SUITE, Fake, make_sweep, trial_dirs

PEAK, FLOPS = 100e12, 1e12
RANK = dict.fromkeys(("attention_s", "communication_s", "copies_s", "data_wait_s", "allocator_s", "launch_s", "idle_s", "hidden_s"), 0.0)
# A step of a second with 20 samples: matrix products for half of it, so at 40 TFLOP/s, and other kernels for the rest
STEP = {"rank": 0, "steps": 3, "step_s": 1.0, "matrix_s": 0.5, "other_s": 0.5, "samples": 20}
TRACED = {"where": "device", "steps": 3, "span_s": 1.0, "idle_s": 0.0, "groups": [], "ranks": [RANK | STEP]}


def published(root: Path, patch: pytest.MonkeyPatch, name: str, fakes: list[Fake]) -> None:
    patch.setenv("SWEEPBENCH_RUNS", str(root / "runs"))
    sweep_id = f"{name}-20260101-000000-0000"
    folder = make_sweep(root / "runs", fakes, sweep_id=sweep_id, suite={**SUITE, "suite": "made_up"})
    for trial in trial_dirs(folder):
        write_steps(trial)
    publish([SweepStore(sweep_id)], root / "results" / name)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Page]:
    root = tmp_path_factory.mktemp("pages")
    window = {"profile": TRACED, "flops_per_sample": FLOPS, "peak_flops": PEAK}

    def fakes(repeats: int, base: float, fast: float, **more: Any) -> list[Fake]:
        axes = {"pool": "cpu", "model": "base"}
        slow = Fake({**axes, "dataloader_workers": 0}, base, repeats=repeats)
        return [slow, Fake({**axes, "dataloader_workers": 1}, fast, repeats=repeats, **more)]

    with pytest.MonkeyPatch.context() as patch:
        published(root, patch, "thrice", fakes(3, 100.0, 150.0, window=window))
        published(root, patch, "once", fakes(1, 100.0, 170.0))
        published(root, patch, "emulated", fakes(3, 100.0, 190.0, emulated=True))
        published(root, patch, "lower", fakes(3, 100.0, 140.0))
    return pages_in(root / "results")


def row(goal: dict[str, Any], pages: list[Page]) -> list[str]:
    told = {"what": "Made up", "suite": "made_up", "where": {"model": "base"}, "source": "ours", **goal}
    lines = goals_table([Goal.model_validate(told)], pages).splitlines()
    assert len(lines) == 3 and lines[0] == "| what | goal, and where from | nearest | reached | where the peak went | page |"
    return [cell.strip() for cell in lines[2].strip("|").split("|")]


@pytest.mark.parametrize(("goal", "reached"), [(149.0, "yes"), (151.0, "no"), (150.0, "open: the interval holds the goal")])
def test_a_goal_is_held_against_the_best_cell_with_three_trials_by_its_interval(pages: list[Page], goal: float, reached: str) -> None:
    what, aim, nearest, is_reached, peak, page = row({"metric": "throughput", "goal": goal}, pages)
    assert (what, aim) == ("Made up", f"{goal:.1f} samples/s: ours")
    assert nearest.startswith("150.0 samples/s ±") and nearest.endswith(", Made-up CPU, 3 trials, MP-1")
    assert is_reached == reached
    assert peak == "20.0 % of 100.0 TFLOP/s reached; of the peak lost: 60.0 % to matrix products and 20.0 % to other kernels"
    assert page == "[thrice](thrice/README.md)"


@pytest.mark.parametrize(("times", "reached"), [(1.49, "yes"), (1.51, "no")])
def test_a_ratio_is_that_over_the_sweeps_own_baseline(pages: list[Page], times: float, reached: str) -> None:
    told = row({"times": times, "where": {"dataloader_workers": 1}, "over": {"dataloader_workers": 0}}, pages)
    assert told[1] == f"x{times}: ours" and told[2].startswith("x1.50 (1.") and ", faster, Made-up CPU, 3 trials, MP-1" in told[2]
    assert told[3] == reached
    other = row({"times": times, "where": {"dataloader_workers": 1}, "over": {"dataloader_workers": 2}}, pages)
    assert other[2:] == ["not measured", "–", "–", "–"], "its baseline is another one"


@pytest.mark.parametrize(("goal", "reached"), [(0.17, "yes, by the mean"), (0.01, "no, by the mean")])
def test_what_should_be_low_is_reached_from_above_and_without_an_interval_by_the_mean(pages: list[Page], goal: float, reached: str) -> None:
    told = row({"metric": "step_time_median_s", "goal": goal}, pages)
    assert told[1].startswith("at most ") and told[3] == reached
    assert told[5] == "[thrice](thrice/README.md)", "the shortest steps of those with three trials"


def test_what_no_page_has_is_not_measured(pages: list[Page]) -> None:
    assert row({"metric": "throughput", "goal": 1.0, "where": {"model": "large"}}, pages)[2:] == ["not measured", "–", "–", "–"]
    assert row({"metric": "throughput", "goal": 1.0, "suite": "other"}, pages)[2] == "not measured"
    assert row({"metric": "throughput", "goal": 1.0, "where": {"model": ["tiny", "base"]}}, pages)[3] == "yes", "any of a list"


@pytest.mark.parametrize(
    ("more", "key", "problem"),
    [
        ([], "goals[0]", "a goal has metric and goal, or times and over"),
        (["metric: throughput"], "goals[0]", "a goal has metric and goal"),
        (["times: 2"], "goals[0]", "over says what `times` is over"),
        (["metric: speed", "goal: 1"], "goals[0]", "speed is no metric"),
        (["metric: mfu", "goal: 0"], "goals[0].goal", "0"),
        (["metric: mfu", "goal: 1", "when: 1"], "goals[0].when", "unknown key"),
    ],
)
def test_a_goal_that_is_none_is_named_with_its_file_and_key(tmp_path: Path, more: list[str], key: str, problem: str) -> None:
    path = tmp_path / "goals.yaml"
    path.write_text("\n    ".join(["goals:\n  - what: x", "suite: s", "where: {}", "source: y", *more]))
    with pytest.raises(ConfigError) as caught:
        read_goals(path)
    assert "goals.yaml" in str(caught.value) and key in str(caught.value) and problem in str(caught.value)


def test_the_goals_are_of_our_suites_and_of_parameters_that_these_have() -> None:
    goals = read_goals()
    for goal in goals:
        known = workloads.load(load_suite(goal.suite, pools=load_pools()).workload).Parameters.model_fields
        assert {*goal.where, *goal.over} <= {*known}, goal.what
