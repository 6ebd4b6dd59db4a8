"""What `sweep run` and `sweep resume` say at the end is about the flow that they ran, and about what is on disk."""

from __future__ import annotations

from io import StringIO

import pytest
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from rich.console import Console

from experiments.trial import Outcome
from flows.cli import run_sweep as module
from flows.cli.run_sweep import FlowEnd, _say_end, end_of
from tasks.sweep.store import SweepBusy, SweepStore
from tests.tasks.plan_support import make_plan, make_trial, saved


def state_of(error: BaseException) -> State[None]:
    """The state of a flow that raises it."""
    return Failed(message=f"Flow run encountered an exception: {error!r}", data=error)


def test_the_end_of_a_flow_is_its_own() -> None:
    assert end_of((0, "all well"), Completed()) == FlowEnd(0, "all well", finished=True)
    assert end_of((2, "some failed"), Failed()) == FlowEnd(2, "some failed", finished=True)
    assert end_of((0, "all well"), None).status == 1, "interrupted after it"
    assert end_of((0, "all well"), Failed()).status == 1, "it failed after it"
    assert end_of(None, None) == FlowEnd(1, "interrupted before the flow came to its end; what was measured is kept", finished=False)


def test_a_flow_that_failed_before_its_end_says_why() -> None:
    busy = end_of(None, state_of(SweepBusy("sweep x is being worked on by process 7")))
    assert busy == FlowEnd(1, "the sweep could not be run: sweep x is being worked on by process 7", finished=False)
    odd = end_of(None, state_of(ValueError("odd")))
    assert odd == FlowEnd(1, "the sweep could not be run: ValueError: odd", finished=False)
    assert callable(flow), "Prefect is there"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    def comparison(out: Console, store: SweepStore) -> str:
        out.print("the comparison")
        return "[MP-1] is fastest (sweep s)"

    monkeypatch.setattr(module, "print_comparison", comparison)
    monkeypatch.setattr(module, "print_where", lambda out, store: out.print("where it is"))
    return StringIO()


def say(store: SweepStore, end: FlowEnd, text: StringIO) -> int:
    console = Console(file=text, width=200)
    return _say_end(store, end, console, console, f"sweep resume {store.sweep_id}")


def test_the_status_of_an_earlier_flow_is_not_this_ones(printed: StringIO) -> None:
    store = saved(make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK)
    store.save_status(0, "every trial ended as expected")
    assert say(store, FlowEnd(1, "the sweep could not be run: it is busy", finished=False), printed) == 1
    text = printed.getvalue()
    assert "it is busy" in text and "as expected" not in text and "the comparison" not in text and "sweep resume" in text


@pytest.mark.parametrize(
    ("ended", "told", "status"),
    [
        ({"t1": Outcome.OK, "t2": Outcome.OK}, 0, 0),
        ({"t1": Outcome.OK, "t2": Outcome.OK}, 2, 2),
        ({"t1": Outcome.OK, "t2": Outcome.CRASHED}, 0, 2),
        ({"t1": Outcome.OK}, 0, 1),
        ({"t1": Outcome.OK}, 2, 1),
        ({"t1": Outcome.OK, "t2": Outcome.OK}, 1, 1),
    ],
)
def test_what_is_on_disk_can_only_make_the_status_worse(printed: StringIO, ended: dict[str, Outcome], told: int, status: int) -> None:
    store = saved(make_plan([make_trial(1), make_trial(2)]), **ended)
    assert say(store, FlowEnd(told, "said", finished=True), printed) == status
    assert "the comparison" in printed.getvalue()


@pytest.mark.parametrize(
    ("found", "ended", "status"),
    [(0, Outcome.OK, 0), (3, Outcome.OK, 3), (4, Outcome.OK, 4), (3, Outcome.CRASHED, 2), (4, Outcome.CANCELLED, 1)],
)
def test_what_an_ab_sweep_found_is_the_status_once_its_trials_are_well(
    printed: StringIO, monkeypatch: pytest.MonkeyPatch, found: int, ended: Outcome, status: int
) -> None:
    monkeypatch.setattr(module, "status_of", lambda folder: found)
    store = saved(make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK, t2=ended)
    assert say(store, FlowEnd(0, "said", finished=True), printed) == status
    assert (f"exit status {found}:" in printed.getvalue()) is (found != 0 and status == found)


@pytest.mark.parametrize(
    ("ended", "finished", "last"),
    [
        ({"t1": Outcome.OK, "t2": Outcome.CRASHED}, True, "[MP-1] is fastest (sweep s)"),
        ({"t1": Outcome.OK, "t2": Outcome.CANCELLED}, True, "[MP-1] is fastest (sweep s); incomplete: 1 of 2 trials ended"),
        ({"t1": Outcome.OK}, True, "[MP-1] is fastest (sweep s); incomplete: 1 of 2 trials ended"),
        ({"t1": Outcome.OK}, False, "go on with it: sweep resume made_up-20260101-000000-0000"),
    ],
)
def test_the_last_line_can_be_pasted_and_says_what_lacks(printed: StringIO, ended: dict[str, Outcome], finished: bool, last: str) -> None:
    store = saved(make_plan([make_trial(1), make_trial(2)]), **ended)
    say(store, FlowEnd(0 if finished else 1, "said", finished=finished), printed)
    assert printed.getvalue().splitlines()[-1] == last
