"""Events of cells that got worse: one a cell, with what a person or a program needs to know."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.stats.verdict import Verdict
from flows.runtime import events, prefect_api
from tasks.nightly.commit_records import FoundCommit, Pairs
from tasks.nightly.store import CellVerdict, Night
from tests.tasks.nightly.night_support import night


def item(name: str, metric: str, verdict: Verdict, **more: Any) -> CellVerdict:
    word = {"throughput": "slower"}.get(metric, "more")
    values = {"cell": f"id-{name}", "name": name, "role": "history", "metric": metric, "verdict": verdict, "word": word}
    return CellVerdict.model_validate({**values, "minimum": 0.03, "repeats": 3, "ratio": 0.95, "low": 0.94, "high": 0.96, **more})


PAIRS = Pairs(good="a" * 40, good_date="2026-10-18", tonight="b" * 40, count=8, verdict=Verdict.SLOWER, ratio=0.949, low=0.94, high=0.958)


@pytest.fixture
def regressed() -> Night:
    found = FoundCommit(
        cell="id-one",
        name="one",
        metric="throughput",
        good="a" * 40,
        bad="b" * 40,
        commit="c" * 40,
        subject="why",
        sentence="s",
        on="2026-10-21",
    )
    verdicts = [
        item("one", "throughput", Verdict.SLOWER, pairs=PAIRS),
        item("one", "peak_memory_bytes", Verdict.SLOWER),
        item("two", "throughput", Verdict.SAME),
        item("three", "throughput", Verdict.SLOWER),
    ]
    return night(judgements=verdicts, bisections=[found])


def test_each_cell_that_got_worse_is_one_event(regressed: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(prefect_api, "problem", lambda: None)
    monkeypatch.setattr(events, "emit_event", lambda event, **more: sent.append({"event": event, **more}) or object())
    assert events.regressed(regressed, "file:///report.html") == 2
    assert [(one["event"], one["resource"]["prefect.resource.id"]) for one in sent] == [
        ("sweepbench.cell.regressed", "sweepbench.cell.id-one"),
        ("sweepbench.cell.regressed", "sweepbench.cell.id-three"),
    ]
    first = sent[0]["payload"]
    assert sent[0]["resource"] == {
        "prefect.resource.id": "sweepbench.cell.id-one",
        "prefect.resource.name": "one",
        "sweepbench.night": "made-up",
    }
    assert first["text"] == "throughput -5.1 % (-6.0 to -4.2); peak_memory_bytes +5.3 % (+4.2 to +6.4)"
    assert (first["commit"], first["commit_subject"], first["report"]) == ("c" * 40, "why", "file:///report.html")
    assert [(one["metric"], one["pairs"] and one["pairs"]["count"]) for one in first["metrics"]] == [
        ("throughput", 8),
        ("peak_memory_bytes", None),
    ]
    assert sent[1]["payload"]["commit"] is None


def test_without_prefect_nothing_is_sent_and_nothing_fails(regressed: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect_api, "problem", lambda: "does not answer")
    monkeypatch.setattr(events, "emit_event", lambda *_, **__: pytest.fail("nobody would take it"))
    assert events.regressed(regressed, "") == 0


def test_an_event_that_is_lost_does_not_stop_the_others(regressed: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def emit(event: str, *, resource: dict[str, str], **_: object) -> object:
        seen.append(resource["prefect.resource.name"])
        if len(seen) == 1:
            raise ValueError("made up")
        return object()

    monkeypatch.setattr(prefect_api, "problem", lambda: None)
    monkeypatch.setattr(events, "emit_event", emit)
    assert events.regressed(regressed, "") == 1 and seen == ["one", "three"]
