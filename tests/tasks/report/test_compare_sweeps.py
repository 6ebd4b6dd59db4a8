from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from experiments.stats.verdict import Verdict
from experiments.trial import Outcome
from tasks.analysis.between_sweeps import HOSTS_NOT_KNOWN, NOT_KNOWN, spread_between
from tasks.analysis.known_spread import keep_known, known_for
from tasks.analysis.results import load_sweep
from tasks.analysis.spread_history import KnownSpreads
from tasks.analysis.spread_store import write_spread
from tasks.report.compare_sweeps import CompareError, Comparison, compare, in_turns, render_markdown, write_comparison
from tests.tasks.cell_support import made, row, workers
from tests.tasks.fake_sweep import Fake, make_sweep, trial_dirs
from tests.tasks.report.publish_support import edit
from tests.tasks.spread_support import DEVICE, WORKLOAD, write_history

A, B = "made-up-20260101-000000-0000", "made-up-20260102-000000-0000"


def cells(factor: float = 1.0, pool: str = "cpu", **more: object) -> list[Fake]:
    """Six cells, three repeats; `factor` on the rate of MP-1."""
    return [
        Fake(
            {"pool": pool, "precision": precision, "dataloader_workers": count},
            rate=100 * (factor if count == 1 else 1),
            repeats=3,
            **more,  # type: ignore[arg-type]
        )
        for precision in ("fp32", "bf16")
        for count in (0, 1, 2)
    ]


def compared(root: Path, a: list[Fake], b: list[Fake], *, history: bool = True) -> Comparison:
    """`history`: past sweeps on both pools that show as good as no spread between sweeps."""
    if history:
        for pool in ("cpu", "gpu"):
            write_history(root, pool=pool, trial_sd=1e-6, sweep_sd=1e-6)
    return compare(make_sweep(root, a, sweep_id=A), make_sweep(root, b, sweep_id=B))


def test_the_same_is_called_the_same(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(), cells())
    assert found.counts == {"same": 6}
    assert (found.only_a, found.only_b, found.across_pools) == ([], [], False)


def test_a_slow_down_is_found_where_it_is(tmp_path: Path) -> None:
    crashed = Fake({"pool": "cpu", "precision": "fp32", "dataloader_workers": 9}, outcome=Outcome.CRASHED, reason="<b>boom</b>")
    found = compared(tmp_path, cells(), [*cells(0.9, environment={"torch": "9.9"}), crashed])
    assert found.counts == {"same": 4, "slower": 2}
    slow = [pair for pair in found.pairs if pair.verdict is Verdict.SLOWER]
    assert all(pair.a.axes["dataloader_workers"] == 1 for pair in slow)
    assert slow[0].ratio is not None
    assert slow[0].ratio.value == pytest.approx(0.9, abs=0.01)
    assert slow[0].differs == ["torch"]
    assert found.confounders.rows[0][:3] == ["torch", "2.13.0", "9.9"]
    assert [cell.axes["dataloader_workers"] for cell in found.only_b] == [9]
    markdown, html = write_comparison(found, tmp_path / "out")
    assert "4 cells same, 2 cells slower" in markdown.read_text()
    assert "Only in B" in html.read_text()
    assert "<b>boom" not in html.read_text() + markdown.read_text()


def test_outcomes_that_changed_are_said(tmp_path: Path) -> None:
    one = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}
    found = compared(tmp_path, [Fake(one)], [Fake(one, outcome=Outcome.DOES_NOT_FIT, reason="out of memory")])
    assert found.counts == {"ok → does not fit": 1}
    assert found.pairs[0].ratio is None


def test_two_pools_are_compared_if_no_cell_shares_one(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(), cells(2.0, pool="gpu"))
    assert found.across_pools
    assert found.counts == {"same": 4, "faster": 2}
    assert "on everything but the pool" in found.remarks[1]
    assert [row[:3] for row in found.confounders.rows] == [["pool", "cpu", "gpu"]]
    assert all(pair.differs == ["pool"] for pair in found.pairs)


def test_a_faster_cell_whose_loss_left_its_band_is_not_claimed(tmp_path: Path) -> None:
    b = cells()
    for fake in b:
        if fake.axes["precision"] == "bf16":
            fake.rate = 150
            fake.loss = lambda step: 2 + 3 * 0.97**step + (0.6 if step > 30 else 0)
    assert compared(tmp_path, cells(), b).counts == {"same": 3, "not claimed: the loss differs from its reference's": 3}


def test_nothing_in_common(tmp_path: Path) -> None:
    other = [Fake({"pool": "cpu", "precision": "fp32", "dataloader_workers": 7})]
    found = compared(tmp_path, cells(), other)
    assert found.pairs == []
    assert found.headline == "The two sweeps have no cell in common." and not found.across_pools
    markdown, html = write_comparison(found, tmp_path)
    (line, *rest) = found.remarks
    assert line.startswith(
        "dataloader_workers is 0, 1 and 2 in A and 7 in B. Cells are the same where workload, environment, commit and every"
    )
    assert all(remark.startswith("Only in") for remark in rest), "there is nothing that repeats would decide"
    for page in (markdown, html):
        assert "undecided asks for more repeats" not in page.read_text() and "in turns" in page.read_text()
    assert not compared(tmp_path / "pools", cells(pool="gpu")[:1], other).across_pools, "no pair to say it of"


MP0 = {"pool": "cpu", "precision": "fp32", "dataloader_workers": 0}


def one(rate: float = 100.0, repeats: int = 3, **more: object) -> Fake:
    """A cell without noise between its trials, and as good as none within."""
    return Fake(MP0, rate=rate, repeats=repeats, between=0.0, noise=1e-5, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "minimum", "expected"), [(1.019, 0.02, "same"), (1.021, 0.02, "faster"), (1 / 1.021, 0.02, "slower"), (1.021, 0.03, "same")]
)
def test_the_smallest_effect_that_counts(tmp_path: Path, ratio: float, minimum: float, expected: str) -> None:
    write_history(tmp_path, trial_sd=1e-6)
    folders = make_sweep(tmp_path, [one()], sweep_id=A), make_sweep(tmp_path, [one(100 * ratio)], sweep_id=B)
    found = compare(*folders, minimum=minimum)
    assert found.counts == {expected: 1} and found.minimum == minimum
    assert found.pairs[0].ratio is not None and found.pairs[0].ratio.value == pytest.approx(ratio, rel=1e-6)
    if minimum == 0.02:
        assert compare(*folders).counts == {expected: 1}, "2 % unless another is asked for"


def test_repeats_of_two_sweeps_are_compared_by_welchs_test(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(between=0.01)[:3], cells(between=0.01)[:3])
    for pair in found.pairs:
        logs = [[math.log(estimate.value) for estimate in cell.estimates] for cell in (pair.b, pair.a)]
        welch = stats.ttest_ind(*logs, equal_var=False)
        assert pair.ratio is not None
        assert (pair.ratio.p_value, pair.ratio.df) == (pytest.approx(welch.pvalue, rel=1e-4), pytest.approx(welch.df, rel=1e-4))


TIMES = "Measured at different times; confirm with repeats in turns: `sweep run made_up --profile smoke --repeats 3`."
SMALL = "Sweeps of bridgetower on pool cpu (Made-up CPU) differ by <0.1 % (one standard deviation), as 12 other sweeps there show."


def test_single_trials_get_no_verdict_and_cells_of_one_side_are_remarked(tmp_path: Path) -> None:
    assert compared(tmp_path / "a", [one(repeats=2)], [one(200, repeats=1)]).counts == {"undecided: one trial": 1}
    assert compared(tmp_path / "b", [one(repeats=1)], [one(200, repeats=1)]).counts == {"undecided: one trial": 1}
    other = [Fake({**MP0, "dataloader_workers": count}) for count in (3, 4)]
    found = compared(tmp_path / "sides", [one(), other[0]], [one(), other[1]])
    assert found.remarks == [TIMES, SMALL, "Only in A: cpu · fp32 · MP-3.", "Only in B: cpu · fp32 · MP-4."]
    assert [cell.name for cell in found.only_a] == ["cpu · fp32 · MP-3"]


def test_a_reason_that_all_cells_share_stands_in_the_headline_and_not_in_each_row(tmp_path: Path) -> None:
    def sweep(repeats: int) -> list[Fake]:
        return [one(repeats=1), Fake({**MP0, "dataloader_workers": 3}, repeats=repeats, between=0.0, noise=1e-5)]

    alike = compared(tmp_path / "a", sweep(1), sweep(1))
    assert alike.headline == "2 cells undecided: one trial"
    assert [row[4] for row in alike.table.rows] == ["undecided", "undecided"]
    apart = compared(tmp_path / "b", sweep(3), sweep(3))
    assert [row[4] for row in apart.table.rows] == ["undecided: one trial", "same"]


def test_no_verdict_where_the_spread_between_sweeps_is_not_known(tmp_path: Path) -> None:
    found = compared(tmp_path, cells(), cells(2.0), history=False)
    assert found.counts == {"undecided: how much sweeps of this workload differ from day to day on this pool is not known": 6}
    assert found.remarks[1].startswith("How much sweeps of bridgetower on pool cpu (Made-up CPU) differ is not known")
    for page in write_comparison(found, tmp_path):
        assert "count as the same. The false" in page.read_text(), "no repeats of these sweeps would decide it"
    first = found.pairs[1]
    assert first.verdict is Verdict.UNDECIDED and first.ratio is not None
    assert (first.ratio.low, first.ratio.high, first.ratio.se) == (0.0, math.inf, math.inf)
    assert found.table.rows[1][3] == "x2.00 (interval unknown)"
    markdown, html = write_comparison(found, tmp_path / "out")
    assert "not known" in markdown.read_text() and "not known" in html.read_text()


def test_the_spread_between_sweeps_is_in_the_interval(tmp_path: Path) -> None:
    """Two sweeps 3 % apart are no finding on a pool whose sweeps lie 1.5 % apart; they are where they lie 0.1 % apart."""
    for sd, expected in ((0.015, "undecided: too wide an interval"), (0.001, "faster")):
        root = tmp_path / str(sd)
        write_history(root, sweeps=30, trial_sd=1e-4, sweep_sd=sd)
        found = compared(root, [one()], [one(103)], history=False)
        ratio = found.pairs[0].ratio
        assert found.counts == {expected: 1}
        assert ratio is not None and ratio.se == pytest.approx(math.sqrt(2) * sd, rel=0.25)


def test_how_far_sweeps_of_another_workload_lie_apart_says_nothing(tmp_path: Path) -> None:
    a, b = make_sweep(tmp_path, [one()], sweep_id=A), make_sweep(tmp_path, [one(103)], sweep_id=B)
    write_history(tmp_path, workload="flava", sweeps=30, trial_sd=1e-4, sweep_sd=0.015)
    assert compare(a, b).counts == {f"undecided: {NOT_KNOWN}": 1}
    write_history(tmp_path, sweeps=30, trial_sd=1e-4, sweep_sd=0.001)
    (pair,) = compare(a, b).pairs
    assert pair.verdict is Verdict.FASTER
    assert pair.ratio is not None and pair.ratio.se == pytest.approx(math.sqrt(2) * 0.001, rel=0.25)


def test_other_hosts_of_the_kind_need_the_spread_between_hosts(tmp_path: Path) -> None:
    """Sweeps of one host say nothing of another."""
    away: dict[str, object] = {"environment": {"host": "other", "host_id": "ba9876543210"}}
    found = compared(tmp_path / "one", [one()], [one(103, **away)])
    assert found.counts == {"undecided: measured on different hosts, and how much hosts of this kind differ is not known": 1}
    write_history(tmp_path / "several", sweeps=40, trial_sd=1e-4, host_sd=0.03, hosts=[f"host {number}" for number in range(20)])
    found = compared(tmp_path / "several", [one()], [one(103, **away)], history=False)
    assert found.counts == {"undecided: too wide an interval": 1}
    assert found.pairs[0].ratio is not None
    half = math.log(found.pairs[0].ratio.high / found.pairs[0].ratio.value)
    assert 1.96 * math.sqrt(2) * 0.03 < half < 2.5 * 1.96 * math.sqrt(2) * 0.03, "wider: how alike cells are there is not known well"


def test_trials_that_other_work_disturbed_are_told_first_with_their_side(tmp_path: Path) -> None:
    """Of A every trial of one cell, of B one trial of the other: nothing is claimed of the first."""
    write_history(tmp_path, trial_sd=1e-6, sweep_sd=1e-6)
    two = [one(), Fake({**MP0, "dataloader_workers": 1}, repeats=3, between=0.0, noise=1e-5)]
    folders = [make_sweep(tmp_path, two, sweep_id=sweep_id) for sweep_id in (A, B)]
    for folder, trials in zip(folders, (slice(0, 6, 2), slice(1, 2)), strict=True):
        for trial in trial_dirs(folder)[trials]:
            edit(trial / "result.json", disturbed="another process")
    found = compare(*folders)
    assert found.remarks == [
        "A: other work disturbed every trial of 1 cell (MP-0): nothing is claimed from them. cpu · fp32 · MP-0: another process.",
        "B: other work disturbed 1 trial (MP-1 · #1): it is left out of the figures.",
        TIMES,
        SMALL,
    ]
    assert found.pairs[0].word == "undecided: disturbed by other work"
    for page in write_comparison(found, tmp_path / "out"):
        assert page.read_text().count("other work disturbed") == 2


def test_a_sweep_is_not_compared_with_itself(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, [one()], sweep_id=A)
    with pytest.raises(CompareError, match=f"both sides are sweep {A}"):
        compare(folder, folder)


def test_the_command_that_measures_in_turns() -> None:
    same = "sweep run bert --repeats 5 --only precision=bf16"
    assert in_turns(same, same) == "`sweep run bert --only precision=bf16 --repeats 3`"
    assert in_turns("sweep run bert", "sweep run bert --repeats=2 --set steps=9") == (
        "`sweep run bert --set steps=9 --repeats 3`, with what differs as an axis"
    )
    timed = "sweep run bert --budget 40s --until-decided --pool cpu"
    assert in_turns(timed, timed) == "`sweep run bert --pool cpu --repeats 3`", "a budget beside repeats is refused"
    assert in_turns("sweep nightly regression", "sweep nightly regression") == "`sweep run SUITE --repeats 3`, with what differs as an axis"


def test_the_tables_of_a_comparison(tmp_path: Path) -> None:
    a = [one(environment={"torch": "1"}), Fake({**MP0, "dataloader_workers": 1}, outcome=Outcome.CRASHED, repeats=2)]
    b = [one(200.0, environment={"torch": "2"}), Fake({**MP0, "dataloader_workers": 1}, outcome=Outcome.CRASHED, repeats=2)]
    found = compared(tmp_path, a, b)
    assert found.headline == "1 cell faster, 1 cell crashed in both"
    first, second = found.table.rows
    assert first[0] == "cpu · fp32 · MP-0" and first[3].startswith("x2.000 (2.0") and first[4:] == ["faster", "torch"]
    assert [float(value.split()[0]) for value in first[1:3]] == pytest.approx([100.0, 200.0], rel=1e-3)
    assert second == ["cpu · fp32 · MP-1", "crashed", "crashed", "–", "crashed in both", "–"]
    assert found.confounders.rows == [["torch", "1", "2", "cpu · fp32 · MP-0"]]
    text = render_markdown(found)
    assert "Differences under 2.0 % count as the same" in text and "## Confounders" in text
    assert "## Confounders" not in render_markdown(compared(tmp_path / "same", [one()], [one()]))


def test_several_pools_without_a_common_one_are_not_matched(tmp_path: Path) -> None:
    """No telling which of a sweep's pools the other's stands for."""
    two, other = [one(), Fake({**MP0, "pool": "tpu"})], [Fake({**MP0, "pool": "gpu"})]
    for name, a, b in (("a", two, other), ("b", other, two)):
        found = compared(tmp_path / name, a, b)
        assert found.pairs == [] and not found.across_pools
        assert (len(found.only_a), len(found.only_b)) == (len(a), len(b))


def test_cells_of_a_common_pool_are_matched_by_it_and_the_rest_is_left(tmp_path: Path) -> None:
    found = compared(tmp_path, [one()], [one(), Fake({**MP0, "pool": "gpu"})])
    assert [pair.b.trial.pool for pair in found.pairs] == ["cpu"] and not found.across_pools
    assert [cell.trial.pool for cell in found.only_b] == ["gpu"]


def test_another_workload_is_another_cell(tmp_path: Path) -> None:
    assert compared(tmp_path, [one()], [one(workload="synthetic")]).pairs == []
    assert compared(tmp_path / "emulated", [one()], [one(emulated=True)]).pairs == []


def test_the_sweeps_that_are_compared_say_nothing_of_the_spread_between_trials(tmp_path: Path) -> None:
    """Not by way of what a report of one has kept of the other either."""
    a = make_sweep(tmp_path, [Fake({**MP0, "dataloader_workers": n}, repeats=4, between=0.1) for n in range(5)], sweep_id=A)
    b = make_sweep(tmp_path, [one(repeats=1)], sweep_id=B)
    write_spread(load_sweep(a))
    assert keep_known(load_sweep(b))
    kept = known_for(load_sweep(b)).spreads.trial("cpu", DEVICE, WORKLOAD, "throughput")
    assert kept is not None and kept.sd == pytest.approx(0.1, rel=0.5)
    (pair,) = compare(a, b).pairs
    assert pair.b.known is None and pair.b.estimate is not None and math.isinf(pair.b.estimate.se)
    write_history(tmp_path, trial_sd=0.01)
    (pair,) = compare(a, b).pairs
    assert pair.b.known is not None and pair.b.known.sd == pytest.approx(0.01, rel=0.3), "what a third sweep shows"


@pytest.mark.parametrize(
    ("of_a", "of_b", "alike"), [("xxy", "xxy", True), ("xy", "xxyy", True), ("xxy", "xyy", False), ("xx", "xy", False)]
)
def test_two_sweeps_on_the_same_hosts_are_alike_where_each_has_its_share(of_a: str, of_b: str, alike: bool) -> None:
    a, b = (made([row(workers(0), repeat=n, environment={"host_id": host}) for n, host in enumerate(word, 1)])[0] for word in (of_a, of_b))
    _, why = spread_between(a, b, KnownSpreads({}))
    assert why == (NOT_KNOWN if alike else HOSTS_NOT_KNOWN)


BEFORE_IDS: dict[str, object] = {"host_id": None}


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (BEFORE_IDS, {}, None),
        (BEFORE_IDS, {**BEFORE_IDS, "host": "other"}, "measured on different hosts"),
        ({"host": "other"}, {}, None),
        (BEFORE_IDS, {"host": None}, "whether one host measured both is not known"),
    ],
)
def test_hosts_are_told_apart_by_their_ids_else_by_their_names(
    tmp_path: Path, a: dict[str, object], b: dict[str, object], why: str | None
) -> None:
    """The first is one machine before and after hosts had ids, the third one whose name was changed."""
    (pair,) = compared(tmp_path, [one(environment=a)], [one(environment=b)]).pairs
    assert pair.verdict is (Verdict.UNDECIDED if why else Verdict.SAME)
    assert (pair.why_undecided or "").startswith(why or "") and bool(pair.why_undecided) is bool(why)
