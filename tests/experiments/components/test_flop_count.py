"""FLOPs are counted once: a process that learns a count does not count."""

from __future__ import annotations

import pytest

from experiments.components import flop_count
from experiments.components.flop_count import count_once, known_counts, learn_counts


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flop_count, "_known", {})


def test_what_was_counted_or_learned_is_not_counted_again() -> None:
    counts = iter([12.0, 13.0])
    assert [count_once("a", lambda: next(counts)), count_once("a", lambda: next(counts)), count_once("b", lambda: next(counts))] == [
        12,
        12,
        13,
    ]
    learn_counts({"c": {"unet": 1.0}})
    assert count_once("c", lambda: pytest.fail("it is known")) == {"unet": 1.0}
    assert known_counts() == {"a": 12.0, "b": 13.0, "c": {"unet": 1.0}}


def test_a_count_that_fails_is_not_known() -> None:
    with pytest.raises(ZeroDivisionError):
        count_once("a", lambda: 1 / 0)
    assert known_counts() == {}
