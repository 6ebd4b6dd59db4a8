"""The results page says of the rounds what their lines say, failures included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kill import page
from tests.kill.rounds import Round, draw

COMMON = {"date": "2026-11-22", "commit": "abc", "machine": "2 cores"}


def line(number: int, target: str, *, moment_s: float, **more: Any) -> str:
    made = Round(number, 7, more.pop("servers", False), target, more.pop("new", False), False, moment_s, (1.0, 30.0), **more)
    return json.dumps({**COMMON, **made.line()}) + "\n"


def test_the_page_counts_what_held_and_names_what_did_not(tmp_path: Path) -> None:
    record = tmp_path / "rounds.jsonl"
    record.write_text(
        line(0, "flow", moment_s=2.25, first_status=-9, new=True)
        + line(3, "flow", moment_s=20.0, first_status=-9, ended_before=2)
        + line(1, "trial", moment_s=5.0, first_status=0, violations=["trial f: it has no result", "still runs: x"])
        + line(0, "ray", moment_s=7.0, first_status=1, servers=True)
    )
    text = page.write(tmp_path, record).read_text()
    assert "**3 of 4 rounds held.**" in text
    assert "| 2026-11-22 | abc | 2 cores | embedded pool | 7 | 3 | 2 |\n| 2026-11-22 | abc | 2 cores | servers | 7 | 1 | 1 |" in text
    embedded, servers = text.split("## With the servers of `make up`")
    assert "| the command `sweep run`, in which the flow is | 2 | 2 | 2.2 to 20.0 | 1.0 to 30.0 | 0: 1x, 2: 1x | -9: 2x |" in embedded
    assert "| one process of a trial | 1 | 0 | 5.0 to 5.0 | 1.0 to 30.0 | 0: 1x | 0: 1x |" in embedded
    assert "In 1 of these rounds the databases" in embedded and "the databases" not in servers
    assert "| the Ray head | 1 | 1 |" in servers
    assert "- trial killed 5.0 s into round 1 of seed 7, commit abc: trial f: it has no result; still runs: x" in servers


def test_targets_take_turns_and_a_seed_gives_the_same_rounds_again() -> None:
    windows = {"flow": (0.0, 30.0), "trial": (5.0, 20.0)}
    rounds = [draw(number, 3, windows, new_allowed=True) for number in range(200)]
    assert [one.target for one in rounds[:4]] == ["flow", "trial", "flow", "trial"] and rounds[1].window_s == (5.0, 20.0)
    assert rounds == [draw(number, 3, windows, new_allowed=True) for number in range(200)]
    assert 30 <= sum(one.new for one in rounds) <= 70 and 70 <= sum(one.whole for one in rounds) <= 130
    assert not any(draw(number, 3, windows, new_allowed=False).new for number in range(50))
