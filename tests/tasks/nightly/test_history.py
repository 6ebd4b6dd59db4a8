"""A cell's past nights: what is read of a run and of a result, what is left out, and what changed between two nights."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.trial import Outcome, Trial, TrialResult
from tasks.nightly.history import History, HistoryError, Measured, past_nights, tonight, what_changed
from tests.tasks.nightly.night_support import trials


def measured(**facts: str) -> Measured:
    return Measured("c", "history", "2026-10-01", 1, "h", {}, facts)


# --- what changed


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"torch": "2.12.0"}, {"torch": "2.13.0"}, ["torch 2.12.0 → 2.13.0"]),
        ({"torch": "2.12.0"}, {"torch": "2.12.0"}, []),
        ({"max_clock_mhz": "1000"}, {"max_clock_mhz": "1009"}, []),
        ({"max_clock_mhz": "1000"}, {"max_clock_mhz": "1010"}, []),
        ({"max_clock_mhz": "1000"}, {"max_clock_mhz": "1011"}, ["max clock mhz 1000 → 1011"]),
        ({"max_clock_mhz": "1011"}, {"max_clock_mhz": "1000"}, ["max clock mhz 1011 → 1000"]),
        ({"locked_clocks_mhz": "1000"}, {"locked_clocks_mhz": "1001"}, ["locked clocks mhz 1000 → 1001"]),
        ({"power_limit_w": "700"}, {"power_limit_w": "unknown"}, ["power limit w 700 → unknown"]),
        ({"device_memory_bytes": "100"}, {"device_memory_bytes": "101"}, []),
        ({"cuda": "12.8"}, {"cuda": "12.9"}, ["cuda 12.8 → 12.9"]),
        ({"driver": "580.65"}, {"driver": "580.95"}, ["driver 580.65 → 580.95"]),
        ({"image": "2.10"}, {"image": "2.1"}, ["image 2.10 → 2.1"]),
        ({"learning_rate": "0.1"}, {"learning_rate": "0.1005"}, ["learning rate 0.1 → 0.1005"]),
        ({}, {"driver": "1"}, ["driver none → 1"]),
        ({"driver": "1"}, {}, ["driver 1 → none"]),
        ({"b": "1.0", "a": "x"}, {"b": "2.0", "a": "y"}, ["a x → y", "b 1.0 → 2.0"]),
        ({"git_commit": "a" * 40}, {"git_commit": "b" * 40}, ["git commit aaaaaaaaaaaa → bbbbbbbbbbbb"]),
        ({"code": "a" * 16}, {"code": "z" * 16}, [f"code aaaaaaaaaaaa → {'z' * 16}"]),
        ({"flags": "a" * 80}, {"flags": "x"}, [f"flags {'a' * 60} → x"]),
    ],
)
def test_what_changed_is_named_with_both_values(before: Mapping[str, str], now: Mapping[str, str], expected: list[str]) -> None:
    assert what_changed([measured(**before)], [measured(**now)]) == expected


def test_values_of_several_trials_stand_together() -> None:
    assert what_changed([measured(torch="2.12.0")], [measured(torch="2.13.0"), measured(torch="2.12.0")]) == [
        "torch 2.12.0 → 2.12.0 / 2.13.0"
    ]
    assert what_changed([measured(torch="2.13.0"), measured(torch="2.12.0")], [measured(torch="2.13.0")]) == [], (
        "nothing that was not there"
    )


def test_history_is_by_date_and_round_and_role() -> None:
    history = History()
    found = [*trials("one", ["2026-10-01", "2026-10-02"], repeats=3), *trials("one", ["2026-10-01"], role="twin")]
    history.add(reversed(found))
    nights = history.of("id-one")
    assert {date: [trial.round for trial in rounds] for date, rounds in nights.items()} == {
        "2026-10-01": [1, 2, 3],
        "2026-10-02": [1, 2, 3],
    }
    assert list(nights) == ["2026-10-01", "2026-10-02"], "oldest first"
    assert len(history.of("id-one", "twin")) == 1 and history.of("id-two") == {}


# --- from MLflow


def run(date: str = "2026-10-01", repeat: int = 1, *, role: str = "history", rate: float = 100.0, **tags: str) -> SimpleNamespace:
    """A run as MLflow gives it."""
    known = {"night.cell": "c", "night.role": role, "night.date": date, "trial.repeat": str(repeat), **tags}
    metrics = {"throughput": rate, "final_loss": math.nan}
    parameters = {"batch_size": "8", "repeat": "1", "suite": "s", "probe": "p", "threads": "2"}
    return SimpleNamespace(data=SimpleNamespace(tags=known, metrics=metrics, params=parameters))


class Page(list[Any]):
    """A page of runs and the token of the next."""

    token: str | None = None


class Client:
    """As much of MLflow's client as is asked, in pages of two runs; keeps what it was asked."""

    def __init__(self, runs: Sequence[Any]) -> None:
        self.runs, self.asked = runs, list[tuple[Any, ...]]()

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=7) if name == "nights" else None

    def search_runs(self, experiments: list[str], query: str, **options: Any) -> Page:
        self.asked.append((experiments, query, options["order_by"]))
        start = int(options["page_token"] or 0)
        page = Page(self.runs[start : start + 2])
        page.token = str(start + 2) if start + 2 < len(self.runs) else None
        return page


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the runs that MLflow holds; returns its client."""

    def hold(runs: Sequence[Any]) -> Client:
        client = Client(runs)
        monkeypatch.setattr(sys.modules[past_nights.__module__], "connect", lambda: client)
        return client

    return hold


def test_past_nights_are_all_pages_before_the_date_and_the_last_run_of_a_round(mlflow: Any) -> None:
    client = mlflow(
        [
            run(rate=2.0),
            run(rate=1.0),  # an earlier run of the same round: the newest comes first
            run(repeat=2),
            run(role="twin"),
            run(role="injected"),
            run("2026-10-05"),
            run("2026-10-04"),
        ]
    )
    history = past_nights("made-up", "nights", "2026-10-05")
    assert {date: [(one.round, one.values["throughput"]) for one in found] for date, found in history.of("c").items()} == {
        "2026-10-01": [(1, 2.0), (2, 100.0)],
        "2026-10-04": [(1, 100.0)],
    }
    assert set(history.cells) == {("c", "history"), ("c", "twin")}, "what was slowed down on purpose is no history"
    experiments, query, order = client.asked[0]
    assert (experiments, order, len(client.asked)) == (["7"], ["attributes.start_time DESC"], 4)
    for part in ("night.name` = 'made-up'", "sweep.role` = 'trial'", "trial.outcome` = 'ok'", "tags.emulated = 'false'"):
        assert part in query
    assert past_nights("made-up", "another", "2026-10-05").cells == {}


def test_a_run_is_read_with_its_facts(mlflow: Any) -> None:
    tags = {"env.torch": "2.13.0", "env.host": "node-1", "env.clock": "x", "trial.key.code": "abc", "trial.key.data": "no"}
    mlflow([run(**tags)])
    [found] = past_nights("made-up", "nights", "2026-10-05").of("c")["2026-10-01"]
    assert (found.host, found.values) == ("node-1", {"throughput": 100.0})
    assert found.facts == {"torch": "2.13.0", "code": "abc", "batch_size": "8"}, "host, clock and threads change of themselves"
    assert found.disturbed is None
    mlflow([run(disturbed="other processes")])
    [found] = past_nights("made-up", "nights", "2026-10-05").of("c")["2026-10-01"]
    assert (found.host, found.disturbed) == ("unknown", "other processes")


def test_mlflow_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConnectionError("refused\nand more")

    monkeypatch.setattr(sys.modules[past_nights.__module__], "connect", refuse)
    with pytest.raises(HistoryError, match=r"^the past nights could not be read from MLflow \(ConnectionError: refused\)$"):
        past_nights("made-up", "nights", "2026-10-05")


# --- tonight


def trial(key: str, repeat: int = 1, *, emulated: bool = False) -> Trial:
    return Trial(
        key=key,
        key_parts={"code": "abc", "libraries": "def", "data": "no"},
        sweep_id="s",
        suite="s",
        workload="synthetic",
        pool="cpu",
        device="cpu",
        emulated=emulated,
        cell="c",
        repeat=repeat,
        index=0,
        axes={"pool": "cpu"},
        parameters={"batch_size": 8, "fused": True, "clip": None, "probe": "p", "threads": 2},
        labels={"night.cell": "c", "night.role": "history", "night.date": "2026-10-21"},
    )


def result(key: str, outcome: Outcome = Outcome.OK, **environment: Any) -> TrialResult:
    summary = {"throughput": 100, "settled": True, "final_loss": math.nan, "mfu": None}
    return TrialResult(
        key=key, attempt=1, outcome=outcome, reason="x", started_at=0.0, finished_at=1.0, environment=environment, summary=summary
    )


def test_tonight_is_what_ended_ok_on_a_device() -> None:
    results = {
        "a": result("a", host="node-1", torch="2.13.0", tf32=False, driver=None),
        "b": result("b", Outcome.CRASHED),
        "emulated": result("emulated"),
        "last": result("last").model_copy(update={"disturbed": "other processes"}),
    }
    plan = SimpleNamespace(trials=[trial("a"), trial("b", 2), trial("emulated", 3, emulated=True), trial("waits", 4), trial("last", 5)])
    history = tonight(SimpleNamespace(result=results.get), plan)  # type: ignore[arg-type]
    first, last = history.of("c")["2026-10-21"]
    assert (first.round, first.host, last.round, last.host) == (1, "node-1", 5, "unknown")
    assert first.values == {"throughput": 100.0, "settled": 1.0}
    assert (first.disturbed, last.disturbed) == (None, "other processes")
    assert first.facts == {
        "torch": "2.13.0",
        "tf32": "false",
        "code": "abc",
        "libraries": "def",
        "batch_size": "8",
        "fused": "true",
        "clip": "null",
        "pool": "cpu",
    }
