"""A night on several hosts and in several rounds, from made-up histories: which canary stands beside a trial, and which node is blamed."""

from __future__ import annotations

import math

import pytest

from experiments.stats.verdict import Verdict
from tasks.nightly.history import History
from tasks.nightly.report import node_table
from tasks.nightly.store import CellVerdict, NodeState
from tasks.nightly.verdicts import NightVerdicts
from tests.tasks.nightly.night_support import DATES, DEFINITION, TONIGHT, cell, night, past, trials

SWING = {date: math.exp(0.02 * (-1) ** place) for place, date in enumerate(DATES)}  # what all of a node's cells share, night by night
QUIET = 1e-4  # noise, so that a wrong canary shows


def quiet(*nights: History) -> dict[tuple[str, str], CellVerdict]:
    """Cell `one` and its canary, on nights that swing by 2 %, tonight as given; and the judgement of `one`."""
    before, tonight = History(), History()
    before.add(trials("one", DATES, noise=QUIET, node=SWING))
    before.add(trials("canary", DATES, role="canary", noise=QUIET, node=SWING))
    for part in nights:
        for dates in part.cells.values():
            for found in dates.values():
                tonight.add(found)
    judge = NightVerdicts(DEFINITION, night(cells=[cell("canary", "canary"), cell("one")]), before, [], [])
    return {(item.name, item.role): item for item in judge.judgements(tonight)[0]}


def ran(name: str, rate: float, *, role: str = "history", host: str = "node-1", first: int = 1, repeats: int = 1) -> History:
    history = History()
    history.add(trials(name, [TONIGHT], role=role, rate=rate, noise=QUIET, host=host, first=first, repeats=repeats, seed=first + 5))
    return history


def test_beside_each_trial_stands_the_canary_of_its_own_round() -> None:
    """The node is 10 % slower in round 2 alone; the cell ran in round 1, then in round 2."""
    canaries = [ran("canary", 100.0, role="canary"), ran("canary", 90.0, role="canary", first=2)]
    first = quiet(ran("one", 100.0), *canaries)["one", "history"]
    assert (first.ratio, first.verdict) == (pytest.approx(1.0, abs=0.004), Verdict.SAME)
    second = quiet(ran("one", 90.0, first=2), *canaries)["one", "history"]
    assert (second.ratio, second.verdict) == (pytest.approx(1.0, abs=0.004), Verdict.SAME)
    lost = quiet(ran("one", 90.0), *canaries)["one", "history"]
    assert (lost.ratio, lost.verdict) == (pytest.approx(0.9, abs=0.004), Verdict.SLOWER), "its own round was not slow"


def test_a_canary_of_another_host_is_not_used() -> None:
    """Of the same round: node-2 is 20 % slower, which says nothing of a cell on node-1."""
    canaries = [ran("canary", 100.0, role="canary"), ran("canary", 80.0, role="canary", host="node-2")]
    found = quiet(ran("one", 100.0), *canaries)["one", "history"]
    assert (found.ratio, found.verdict) == (pytest.approx(1.0, abs=0.004), Verdict.SAME)
    found = quiet(ran("one", 80.0, host="node-2"), *canaries)["one", "history"]
    assert (found.ratio, found.verdict) == (pytest.approx(1.0, abs=0.004), Verdict.SAME)
    found = quiet(ran("one", 80.0), *canaries)["one", "history"]
    assert (found.ratio, found.verdict, found.where) == (pytest.approx(0.8, abs=0.004), Verdict.SLOWER, "code")


def test_without_a_canary_of_its_round_the_mean_of_its_hosts_stands_in() -> None:
    canaries = [ran("canary", 80.0, role="canary"), ran("canary", 80.0 / 1.21, role="canary", first=2)]
    other = ran("canary", 40.0, role="canary", host="node-2", first=3)
    found = quiet(ran("one", 80.0 / 1.1, first=3), *canaries, other)["one", "history"]
    assert found.ratio == pytest.approx(1.0, abs=0.004), "the geometric mean of both rounds is 80 / 1.1"


def test_a_host_without_a_canary_takes_nothing_off() -> None:
    found = quiet(ran("one", 80.0, host="node-3"), ran("canary", 80.0, role="canary"))["one", "history"]
    assert found.ratio == pytest.approx(0.8, abs=0.005) and found.share == 0.0


def test_blame_is_of_the_cells_own_host_and_pool() -> None:
    slow = [ran("canary", 80.0, role="canary", host="node-2"), ran("canary", 100.0, role="canary")]
    found = quiet(ran("one", 90.0), *slow)["one", "history"]
    assert (found.where, found.why) == ("code", None)
    found = quiet(ran("one", 72.0, host="node-2"), *slow)["one", "history"]
    assert found.where == "code and node"
    assert found.why is not None and found.why.startswith("node node-2 is 20.") and found.why.endswith("% slower; this is what remains")
    found = quiet(ran("one", 100.0, host="node-2"), *slow)["one", "history"]
    assert found.verdict is Verdict.FASTER and found.where == "code and node"
    found = quiet(ran("one", 60.0))["one", "history"]
    assert (found.where, found.why) == ("code or node", "no undisturbed canary ran on its node tonight")


def test_a_node_that_moved_is_said_where_the_cell_moved_by_what_matters() -> None:
    canary = ran("canary", 92.0, role="canary", repeats=3)
    moved = quiet(ran("one", 92.0, repeats=3), canary)["one", "history"]
    assert (moved.verdict, moved.where) == (Verdict.SAME, "node")
    assert moved.why is not None and moved.why.startswith("node node-1 is 8.0% slower, and the cell with it (-8.")
    other = night(cells=[cell("canary", "canary", pool="gpu"), cell("one")])
    before, tonight = History(), History()
    before.add(trials("one", DATES, noise=QUIET))
    before.add(trials("canary", DATES, role="canary", noise=QUIET))
    tonight.add(trials("one", [TONIGHT], rate=92.0, noise=QUIET))
    tonight.add(trials("canary", [TONIGHT], role="canary", rate=92.0, noise=QUIET))
    [found], [node] = NightVerdicts(DEFINITION, other, before, [], []).judgements(tonight)
    assert node.pool == "gpu" and node.verdict is Verdict.SLOWER
    assert (found.where, found.why) == ("code or node", "no undisturbed canary ran on its node tonight"), (
        "a canary of another pool says nothing"
    )
    assert found.ratio == pytest.approx(0.92, abs=0.002)


def nodes_of(own: int, rate: float = 80.0) -> list[NodeState]:
    """node-2 has that many nights at a rate of 80, the nights before were on node-1 at 100; tonight is on node-2."""
    before, tonight = History(), History()
    before.add(trials("canary", DATES[: len(DATES) - own], role="canary", noise=QUIET))
    before.add(trials("canary", DATES[len(DATES) - own :], role="canary", rate=80.0, noise=QUIET, host="node-2"))
    tonight.add(trials("canary", [TONIGHT], role="canary", rate=rate, noise=QUIET, host="node-2"))
    return NightVerdicts(DEFINITION, night(), before, [], []).judgements(tonight)[1]


def test_a_node_is_judged_by_its_own_nights_once_it_has_the_fewest() -> None:
    [node] = nodes_of(5)
    assert (node.host, node.verdict, node.note) == ("node-2", Verdict.SAME, None)
    assert node.ratio == pytest.approx(1.0, abs=0.001)
    assert node.low is not None and node.high is not None and 0.99 < node.low < node.ratio < node.high < 1.01  # type: ignore[operator]
    assert node.detectable is not None and 0.0300 < node.detectable < 0.0306, "a fall to 1 / 1.03, and a little for the noise"
    [node] = nodes_of(4)
    assert node.verdict is Verdict.SLOWER and node.ratio == pytest.approx(0.8, abs=0.01), "four nights: against those of any host"
    [node] = nodes_of(5, 72.0)
    assert node.verdict is Verdict.SLOWER and node.ratio == pytest.approx(0.9, abs=0.002)


def test_the_table_of_nodes_says_from_which_size_on_a_slower_node_is_found() -> None:
    table = node_table(night(nodes=[*nodes_of(5), NodeState(pool="cpu", host="new", verdict=Verdict.UNDECIDED)]))
    place = table.header.index("finds from")
    assert [(row[0], row[place]) for row in table.rows] == [("node-2", "3.0 %"), ("new", "–")]


def test_each_host_of_tonight_is_a_node() -> None:
    tonight = History()
    for host, rate in (("node-2", 80.0), ("node-1", 100.0)):
        tonight.add(trials("canary", [TONIGHT], role="canary", rate=rate, host=host))
    nodes = NightVerdicts(DEFINITION, night(), past(), [], []).judgements(tonight)[1]
    assert [(node.host, node.verdict) for node in nodes] == [("node-2", Verdict.SLOWER), ("node-1", Verdict.SAME)]


def test_a_cell_that_moved_less_than_matters_for_it_only_says_so_of_the_node() -> None:
    def found(rate: float, minimum: float) -> CellVerdict:
        before, tonight = History(), History()
        for name, role in (("one", "history"), ("canary", "canary")):
            before.add(trials(name, DATES, role=role, noise=QUIET))
            tonight.add(trials(name, [TONIGHT], role=role, rate=rate, noise=QUIET))
        cells = [cell("canary", "canary"), cell("one", minimum_effect={"throughput": minimum})]
        return NightVerdicts(DEFINITION, night(cells=cells), before, [], []).judgements(tonight)[0][0]

    assert found(92.0, 0.03).where == found(96.0, 0.03).where == "node"
    below = found(92.0, 0.1)
    assert (below.verdict, below.where, below.why) == (Verdict.SAME, None, "node node-1 is 8.0% slower")
    up = found(108.0, 0.03)
    assert up.where == "node" and up.why is not None and up.why.startswith("node node-1 is 8.0% faster, and the cell with it (+8.")
