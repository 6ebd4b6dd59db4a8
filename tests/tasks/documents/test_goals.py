"""How far published sweeps are from the goals, from made-up sweeps. Nothing here is a measurement."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from cluster.pools.pool import load_pools
from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.metrics import metric_of
from experiments.spec.load import load_suite
from experiments.stats.estimate import Estimate
from experiments.stats.loss_parity import ParityStatus
from tasks.analysis.waterfall import Waterfall
from tasks.documents import goals
from tasks.documents.finding import head_of
from tasks.documents.goals import Goal, Near, goal_tables, how_far, nearest, read_goals, where_the_peak_went
from tasks.report.model import Report
from tasks.report.publish import publish
from tasks.report.published_pages import Page, pages_in
from tests.tasks.cell_support import made, repeats, workers
from tests.tasks.fake_sweep import SUITE, Fake, whole_sweep

PEAK, FLOPS = 100e12, 1e12
RANK = dict.fromkeys(("attention_s", "communication_s", "copies_s", "data_wait_s", "allocator_s", "launch_s", "idle_s", "hidden_s"), 0.0)
# A step of a second with 20 samples: matrix products for half of it, so at 40 TFLOP/s, and other kernels for the rest
STEP = {"rank": 0, "steps": 3, "step_s": 1.0, "matrix_s": 0.5, "other_s": 0.5, "samples": 20}
TRACED = {"where": "device", "steps": 3, "span_s": 1.0, "idle_s": 0.0, "groups": [], "ranks": [RANK | STEP]}


def published(root: Path, patch: pytest.MonkeyPatch, name: str, fakes: list[Fake]) -> None:
    patch.setenv("SWEEPBENCH_RUNS", str(root / "runs"))
    sweep_id = f"{name}-20260101-000000-0000"
    store = whole_sweep(root / "runs", fakes, sweep_id=sweep_id, suite={**SUITE, "suite": "made_up"})
    publish([store], root / "results" / name)


def pair(repeats: int, base: float, fast: float, **more: Any) -> list[Fake]:
    """A baseline and a faster cell."""
    axes = {"pool": "cpu", "model": "base"}
    slow = Fake({**axes, "dataloader_workers": 0}, base, repeats=repeats)
    return [slow, Fake({**axes, "dataloader_workers": 1}, fast, repeats=repeats, **more)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Page]:
    root = tmp_path_factory.mktemp("pages")
    window = {"profile": TRACED, "flops_per_sample": FLOPS, "peak_flops": PEAK}
    apart = pair(3, 100.0, 160.0, parameters={"autocast": False})
    for one in apart:
        one.axes["model"] = "large"
    with pytest.MonkeyPatch.context() as patch:
        published(root, patch, "thrice", pair(3, 100.0, 150.0, window=window))
        published(root, patch, "twice", pair(2, 100.0, 170.0))
        published(root, patch, "emulated", pair(3, 100.0, 190.0, emulated=True))
        published(root, patch, "lower", pair(3, 100.0, 140.0))
        published(root, patch, "apart", apart)
    return pages_in(root / "results")


def heads_of(pages: list[Page]) -> dict[Path, Report | None]:
    return {sweep.folder: head_of(sweep) for page in pages for sweep in page.sweeps}


def row(goal: dict[str, Any], pages: list[Page]) -> list[str]:
    """The goal's row of both tables, with the page once: what, aim, best, how far, where the peak went, page."""
    told = {"what": "Made up", "suite": "made_up", "where": {"model": "base"}, "source": "ours", **goal}
    tables = goal_tables([Goal.model_validate(told)], pages, heads_of(pages))
    reached, peak = tables.reached.splitlines(), tables.peak.splitlines()
    assert reached[0] == "| what | goal, and where from | best measured | how far | page |" and len(reached) == 3
    assert peak[0] == "| what | where the peak went | page |"
    own, went = ([cell.strip() for cell in line.strip("|").split("|")] for line in (reached[2], (peak[2:] or ["| Made up | – | – |"])[0]))
    assert (own[0], own[4]) == (went[0], went[2])
    return [*own[:4], went[1], own[4]]


UNASKED = "; its loss was compared with none"


@pytest.mark.parametrize(
    ("goal", "far"),
    [(149.0, f"beyond it{UNASKED}"), (151.0, f"short of it{UNASKED}"), (150.0, f"open: the interval holds the goal{UNASKED}")],
)
def test_a_goal_is_held_against_the_best_cell_with_three_trials_by_its_interval(pages: list[Page], goal: float, far: str) -> None:
    what, aim, best, how_far_, peak, page = row({"metric": "throughput", "goal": goal}, pages)
    assert (what, aim) == ("Made up", f"{goal:.1f} samples/s; ours")
    assert best.startswith("150.0 samples/s ±") and best.endswith("; MP-1; Made-up CPU, 3 trials")
    assert how_far_ == far
    lost = "60.0 % to matrix products and 20.0 % to other kernels"
    assert peak.startswith(f"20.0 % of 100.0 TFLOP/s in traced steps (MFU untraced 150 %); of the peak lost: {lost}; they took 7.5")
    assert page == "[thrice](thrice/README.md)"


WORKERS = {"where": {"dataloader_workers": 1, "model": "base"}, "over": {"dataloader_workers": 0}}


@pytest.mark.parametrize(("times", "far"), [(1.49, f"beyond it{UNASKED}"), (1.51, f"short of it{UNASKED}")])
def test_a_ratio_is_over_a_cell_of_the_same_sweep(pages: list[Page], times: float, far: str) -> None:
    told = row({"times": times, **WORKERS}, pages)
    assert told[1] == f"x{times}; ours" and told[2].startswith("x1.500 (1.") and " over MP-0; MP-1; Made-up CPU, 3 trials" in told[2]
    assert told[3] == far
    assert row({"times": times, **WORKERS, "over": {"dataloader_workers": 2}}, pages)[2:] == ["not measured", "–", "–", "–"]
    other = {**WORKERS, "where": {"dataloader_workers": 1, "model": "base"}, "over": {"dataloader_workers": 0, "model": "large"}}
    assert row({"times": times, **other}, pages)[2] == "not measured", "of one sweep"


@pytest.mark.parametrize("inverse", [False, True])
def test_a_ratio_has_the_interval_that_its_page_has(inverse: bool) -> None:
    """Of the look that decided it, whichever of the two is the page's baseline."""
    base, fast = made([*repeats(workers(0), 100.0), *repeats(workers(1), 150.0)])
    fast.speedup = of_the_look = Estimate(1.5, 1.25, 1.75, 0.01, 2, 2)
    over, where = (1, 0) if inverse else (0, 1)
    goal = Goal.model_validate(
        {"what": "", "suite": "made_up", "source": "", "times": 1.0}
        | {"where": {"dataloader_workers": where}, "over": {"dataloader_workers": over}}
    )
    sweep: Any = SimpleNamespace(plan=SimpleNamespace(suite=SimpleNamespace(suite="made_up")))
    [near] = goals._found(goal, [(Page(Path("page"), "page"), sweep, [base, fast])])
    assert near.ratio == (of_the_look.inverse() if inverse else of_the_look)


def test_of_ratios_that_over_a_cell_which_differs_in_the_least_else_is_told_and_what_differs(pages: list[Page]) -> None:
    both = {**WORKERS, "where": {"dataloader_workers": 1, "model": ["base", "large"]}}
    assert row({"times": 1.1, **both}, pages)[2].startswith("x1.500 (1."), "x1.60 is of another setting beside"
    told = row({"times": 1.1, **WORKERS, "where": {"dataloader_workers": 1, "model": "large"}}, pages)
    assert told[2].startswith("x1.600 (1.") and " over MP-0 (autocast differs too); MP-1; " in told[2]


@pytest.mark.parametrize(("goal", "far"), [(0.17, f"beyond it{UNASKED}"), (0.01, f"short of it{UNASKED}")])
def test_what_should_be_low_is_reached_from_above_and_another_metric_has_its_repeats_interval(
    pages: list[Page], goal: float, far: str
) -> None:
    told = row({"metric": "step_time_median_s", "goal": goal}, pages)
    assert told[1].startswith("at most ") and told[3] == far and " ms ±" in told[2]
    assert told[5] == "[thrice](thrice/README.md)", "the shortest steps of those with three trials"
    assert row({"metric": "mfu", "goal": 0.4}, pages)[2].startswith("150 % (1"), "percent of percent would be taken for points"


def test_what_no_page_has_is_not_measured(pages: list[Page]) -> None:
    assert row({"metric": "throughput", "goal": 1.0, "where": {"model": "huge"}}, pages)[2:] == ["not measured", "–", "–", "–"]
    assert row({"metric": "throughput", "goal": 1.0, "suite": "other"}, pages)[2] == "not measured"
    assert row({"metric": "throughput", "goal": 1.0, "where": {"model": ["tiny", "base"]}}, pages)[3].startswith("beyond it"), (
        "any of a list"
    )


def test_beside_the_best_cell_that_was_not_traced_the_best_that_was_tells_where_the_peak_went(pages: list[Page]) -> None:
    told = row({"metric": "throughput", "goal": 1.0, "where": {"model": ["base", "large"]}}, pages)
    assert told[2].startswith("160.0 samples/s ±") and told[5] == "[apart](apart/README.md)"
    assert told[4].startswith("not traced. Of the best that was, 150.0 samples/s ±")
    assert "; MP-1; Made-up CPU, 3 trials: 20.0 % of 100.0 TFLOP/s in traced steps" in told[4] and told[4].endswith(
        "([thrice](thrice/README.md))"
    )


@pytest.mark.parametrize(
    ("goal", "start", "end"),
    [
        (
            120.0,
            "beyond it; not shown, so not claimed. The best that is proven, or a reference itself: 140.0 samples/s ±",
            ", 3 trials: beyond it ([lower](lower/README.md))",
        ),
        (
            145.0,
            "beyond it; not shown, so not claimed. The best that is proven, or a reference itself: 140.0 samples/s ±",
            ", 3 trials: short of it ([lower](lower/README.md))",
        ),
        (155.0, "short of it; not shown", "short of it; not shown"),  # nothing would be claimed
    ],
)
def test_beside_the_best_cell_whose_loss_is_open_the_best_that_is_proven_is_told(
    pages: list[Page], monkeypatch: pytest.MonkeyPatch, goal: float, start: str, end: str
) -> None:
    monkeypatch.setattr(goals, "of_the_loss", lambda near: "not shown" if near.page.name == "thrice" else "")
    far = row({"metric": "throughput", "goal": goal}, pages)[3]
    assert far.startswith(start) and far.endswith(end)


@pytest.mark.parametrize(("open_", "told"), [("thrice", "149.9 samples/s"), ("alike", "150.0 samples/s"), ("", "150.0 samples/s")])
def test_of_two_whose_intervals_overlap_the_one_with_a_proven_loss_is_told(
    pages: list[Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_: str, told: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        published(tmp_path, patch, "alike", pair(3, 100.0, 149.9))
    both = [*pages_in(tmp_path / "results"), *pages]
    monkeypatch.setattr(goals, "of_the_loss", lambda near: "not shown" if near.page.name == open_ else "")
    assert row({"metric": "throughput", "goal": 155.0}, both)[2].startswith(told)
    between = row({"metric": "throughput", "goal": 149.95}, both)[2]
    assert between.startswith(told), "both hold the goal"


def near(
    metric: str = "throughput",
    parity: ParityStatus | None = None,
    reference: str = "",
    over: Near | None = None,
    disturbed: str | None = None,
    **ends: float,
) -> Near:
    """A cell with this interval of its metric, or of its ratio `over` another one."""
    estimate = SimpleNamespace(**{"value": 1.0, "se": 0.1, **ends}) if ends else None
    told = None if parity is None else SimpleNamespace(status=parity)
    cell: Any = SimpleNamespace(
        metric=metric_of(metric), estimate=estimate, parity=told, reference=reference, measured=[], disturbed=disturbed
    )
    nothing: Any = None
    return Near(nothing, nothing, cell, 1.0, over.cell if over else None, estimate if over else None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "low", "high", "said"),
    [
        ("throughput", 2.0, 3.0, "beyond it"),
        ("throughput", 1.999, 3.0, "open: the interval holds the goal"),
        ("throughput", 1.0, 2.0, "open: the interval holds the goal"),
        ("throughput", 1.0, 1.999, "short of it"),
        ("latency_p50_s", 1.0, 2.0, "beyond it"),
        ("latency_p50_s", 1.0, 2.001, "open: the interval holds the goal"),
        ("latency_p50_s", 2.0, 3.0, "open: the interval holds the goal"),
        ("latency_p50_s", 2.001, 3.0, "short of it"),
    ],
)
def test_a_goal_is_reached_where_the_whole_interval_is_beyond_it(metric: str, low: float, high: float, said: str) -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "metric": metric, "goal": 2.0})
    assert how_far(goal, near(metric, ParityStatus.PROVEN, low=low, high=high)) == said


@pytest.mark.parametrize(
    ("parity", "reference", "said"),
    [
        (ParityStatus.PROVEN, "", "beyond it"),
        (ParityStatus.UNPROVEN, "", "beyond it; loss parity unproven, so not claimed"),
        (ParityStatus.STRUCK, "", "beyond it; loss parity struck, so not claimed"),
        (None, "", "beyond it; its loss was compared with none"),
        (None, "bf16", "beyond it"),
    ],
)
def test_what_was_not_shown_of_its_loss_is_said(parity: ParityStatus | None, reference: str, said: str) -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "metric": "throughput", "goal": 2.0})
    assert how_far(goal, near("throughput", parity, reference, low=2.5, high=3.0)) == said
    short = near("throughput", parity, reference, low=1.5, high=1.9)
    assert how_far(goal, short) == said.replace("beyond", "short of").replace(", so not claimed", ""), (
        "nor is it left out where nothing is claimed"
    )


def test_a_cell_without_an_interval_is_held_against_the_goal_by_its_mean_also_where_its_error_is_infinite() -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "metric": "throughput", "goal": 0.9})
    assert how_far(goal, near(parity=ParityStatus.PROVEN, low=0.0, high=math.inf, se=math.inf)) == "beyond it, by the mean"


def test_of_a_cell_whose_every_trial_was_disturbed_nothing_is_claimed_and_another_is_told_instead() -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "metric": "throughput", "goal": 0.9})
    disturbed = near(parity=ParityStatus.PROVEN, disturbed="other processes used 60 % of all cores", low=0.95, high=1.05)
    assert how_far(goal, disturbed) == "beyond it, other work disturbed every trial of it, so not claimed"
    slower = replace(near(parity=ParityStatus.PROVEN, low=0.4, high=0.6), value=0.5)
    assert nearest(goal, [disturbed, slower]) is slower


@pytest.mark.parametrize(
    ("cell", "over", "said"),
    [
        (ParityStatus.PROVEN, ParityStatus.PROVEN, "beyond it"),
        (ParityStatus.PROVEN, None, "beyond it"),
        (ParityStatus.PROVEN, ParityStatus.UNPROVEN, "beyond it; loss parity unproven, so not claimed"),
        (ParityStatus.UNPROVEN, ParityStatus.PROVEN, "beyond it; loss parity unproven, so not claimed"),
    ],
)
def test_a_ratio_is_claimed_where_both_losses_are_proven(cell: ParityStatus, over: ParityStatus | None, said: str) -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "times": 2.0, "over": {"model": "a"}})
    assert how_far(goal, near(parity=cell, over=near(parity=over), low=2.5, high=3.0)) == said


def on(
    card: str = "NVIDIA H200", *, low: float = 1.4, high: float = 1.6, trials: int = 3, differs: tuple[str, ...] = (), proven: bool = True
) -> Near:
    """A cell of throughput `low` to `high` on this card."""
    found = near(parity=ParityStatus.PROVEN if proven else ParityStatus.UNPROVEN, low=low, high=high)
    found.cell.measured = [SimpleNamespace(environment={"device_name": card})] * trials  # type: ignore[assignment]
    return replace(found, differs=differs)


def test_a_ratio_has_as_many_trials_as_its_cell_with_fewer() -> None:
    assert [replace(on(trials=3), over=on(trials=other).cell).trials for other in (2, 3, 5)] == [2, 3, 3]
    assert on(trials=4).trials == 4


@pytest.mark.parametrize(
    ("one", "stands_in"),
    [
        (on(), True),
        (on(low=1.6, high=1.8), True),  # they touch
        (on(low=1.61, high=1.8), False),
        (on(low=1.2, high=1.39), False),
        (on(proven=False), False),
        (on(trials=2), False),
        (on(trials=5), True),
        (on(differs=("compile",)), False),
        (on("NVIDIA H100 80GB HBM3"), False),
        (on(low=1.5, high=2.1), False),  # the goal is within it
    ],
)
def test_what_is_no_worse_and_shown_stands_in_for_the_best(one: Near, stands_in: bool) -> None:
    told = {"what": "x", "suite": "s", "where": {}, "source": "y", "metric": "throughput", "goal": 2.0, "card": "h200"}
    goal = Goal.model_validate(told)
    assert goals._as_good_and_shown(goal, one, on(proven=False)) is stands_in
    assert not goals._as_good_and_shown(goal, one, on()), "nothing is open of the best one's loss"
    if one.differs:
        assert goals._as_good_and_shown(goal, one, on(proven=False, differs=("kernels",)))


@pytest.mark.parametrize(
    ("mine", "best", "stands_in"), [(True, False, False), (True, True, True), (False, True, True), (False, False, True)]
)
def test_what_other_work_disturbed_stands_in_for_nothing_that_it_did_not(mine: bool, best: bool, stands_in: bool) -> None:
    goal = Goal.model_validate({"what": "x", "suite": "s", "where": {}, "source": "y", "metric": "throughput", "goal": 2.0, "card": "h200"})
    one, other = ((on(), mine), (on(proven=False), best))
    for near_, disturbed in (one, other):
        near_.cell.disturbed = "other processes" if disturbed else None  # type: ignore[misc]
    assert goals._as_good_and_shown(goal, one[0], other[0]) is stands_in


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> list[Page]:
    """The faster of two cards is not the goal's."""
    root = tmp_path_factory.mktemp("cards")
    with pytest.MonkeyPatch.context() as patch:
        published(root, patch, "older", pair(3, 100.0, 120.0, environment={"device_name": "NVIDIA H100 80GB HBM3"}))
        published(root, patch, "newer", pair(3, 100.0, 150.0, environment={"device_name": "NVIDIA H200"}))
    return pages_in(root / "results")


def test_a_goal_of_one_card_names_it_and_what_was_measured_on_it(cards: list[Page]) -> None:
    goal = {"metric": "throughput", "goal": 130.0}
    assert row(goal, cards)[3] == f"beyond it{UNASKED}", "a goal of no card"
    told = row({**goal, "card": "h200"}, cards)
    assert told[1] == "130.0 samples/s, on H200; ours" and told[3] == f"beyond it{UNASKED}"
    told = row({**goal, "card": "h100"}, cards)
    assert told[1] == "130.0 samples/s, on H100; ours" and told[2].endswith("; MP-1; NVIDIA H200, 3 trials")
    assert told[3].startswith(f"beyond it, on another card{UNASKED}. On H100: 120.0 samples/s ±")
    assert told[3].endswith(f"; MP-1; NVIDIA H100 80GB HBM3, 3 trials: short of it{UNASKED} ([older](older/README.md))")
    assert row({**goal, "card": "a100"}, cards)[3] == f"beyond it, on another card{UNASKED}", "no page has one"


def test_the_three_largest_drops_and_all_gains_of_a_percent_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    drops = {"a": 0.3, "b": 0.2, "c": 0.1, "d": 0.05, "e": 0.009, "f": -0.02, "g": -0.009, "h": -0.03, "i": None}
    monkeypatch.setattr(goals, "waterfall_of", lambda cell: Waterfall(500e12, drops, 0.4, 1.0))
    monkeypatch.setattr(goals, "slower", lambda cell, found: None)
    cell: Any = SimpleNamespace(mean=lambda name: 0.45)
    assert where_the_peak_went(cell) == (
        "40.0 % of 500.0 TFLOP/s in traced steps (MFU untraced 45.0 %); of the peak lost: 30.0 % to a, 20.0 % to b and 10.0 % to c; "
        "gained: 3.0 % by h and 2.0 % by f"
    )

    def wrong(cell: Any) -> Waterfall:
        raise ValueError("the trace has some")

    monkeypatch.setattr(goals, "waterfall_of", wrong)
    assert where_the_peak_went(cell) == "not known: the trace has some"
    monkeypatch.setattr(goals, "waterfall_of", lambda cell: None)
    for why, told in ((None, "not traced"), ("not shown, since why", "not shown, since why")):
        monkeypatch.setattr(goals, "why_left_out", lambda cell, why=why: why)
        assert where_the_peak_went(cell) == told


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


def test_the_goals_are_of_our_suites_and_of_values_that_their_parameters_can_have() -> None:
    pools = load_pools()
    for goal in read_goals():
        fields = workloads.load(load_suite(goal.suite, pools=pools).workload).Parameters
        for name, value in [*goal.where.items(), *goal.over.items()]:
            for one in value if isinstance(value, list) else [value]:
                TypeAdapter(fields.model_fields[name].annotation).validate_python(one)
