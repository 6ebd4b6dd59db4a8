"""slots.jsonl: what is written comes back as holds, whatever was cut off."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tasks.sweep import slot_log
from tasks.sweep.slot_log import Hold, SlotLog, read_holds


def test_what_is_written_comes_back_as_holds(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    first, second = SlotLog(path), SlotLog(path)
    first.taken("a", "cpu", ["cpu-1-0"], 1.5)
    first.started("a", 1)
    first.started("a", 2)
    first.given_back("a")
    second.taken("a", "cpu", ["cpu-1-0", "cpu-1-1"], 2.5)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    times = [event["t"] for event in events]
    assert times == sorted(times)
    one, other = read_holds(path)
    assert one == Hold(events[0]["flow"], "a", "cpu", ("cpu-1-0",), 1.5, times[0], [(times[1], 1), (times[2], 2)], times[3])
    assert (other.flow, other.slots, other.asked, other.starts, other.given_back) == (
        events[4]["flow"],
        ("cpu-1-0", "cpu-1-1"),
        2.5,
        [],
        None,
    )
    assert one.flow != other.flow


def line(t: float, event: str, trial: str, **fields: object) -> str:
    return json.dumps({"t": t, "event": event, "flow": "f", "trial": trial, **fields}) + "\n"


def test_holds_come_in_the_order_in_which_they_began_and_what_is_damaged_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    taken = {"pool": "cpu", "slots": ["s"], "asked": 0.0}
    text = line(1.0, "taken", "a", **taken) + line(2.0, "taken", "b", **taken) + line(3.0, "given_back", "b") + line(4.0, "given_back", "a")
    stray = (
        "[]\n" + "nonsense\n" + line(5.0, "given_back", "c") + line(6.0, "taken", "d", pool="cpu") + line(7.0, "started", "e", attempt=1)
    )
    path.write_text(text + stray + line(8.0, "taken", "f", **taken)[:-20])
    assert [(hold.trial, hold.taken, hold.given_back) for hold in read_holds(path)] == [("a", 1.0, 4.0), ("b", 2.0, 3.0)]
    assert read_holds(tmp_path / "none.jsonl") == []


def test_slots_that_were_taken_for_a_pool_that_was_down_were_not_held(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    log = SlotLog(path)
    for number in (1, 2):
        log.taken("a", "local", [f"s{number}"], float(number))
        log.started("a", 1)
        log.withdrawn("a")
    log.withdrawn("a")
    assert read_holds(path) == []
    log.taken("a", "local", ["s3"], 3.0)
    log.started("a", 1)
    log.given_back("a")
    [hold] = read_holds(path)
    assert (hold.slots, hold.asked, [attempt for _, attempt in hold.starts]) == (("s3",), 3.0, [1])


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    SlotLog(tmp_path / "no such folder" / "slots.jsonl").taken("a", "cpu", ["s"], 0.0)
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_ran_before_the_pool_went_down_held_its_slots(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    taken = {"pool": "local", "slots": ["s"], "asked": 0.0}
    ran = line(1.0, "taken", "a", **taken) + line(2.0, "started", "a", attempt=1)
    refused = line(50.0, "started", "a", attempt=2) + line(51.0, "withdrawn", "a")
    again = line(90.0, "taken", "a", **taken) + line(91.0, "started", "a", attempt=2) + line(99.0, "given_back", "a")
    path.write_text(ran + refused + again)
    assert [(hold.taken, hold.starts, hold.given_back) for hold in read_holds(path)] == [
        (1.0, [(2.0, 1)], 51.0),
        (90.0, [(91.0, 2)], 99.0),
    ]


def outage(log: SlotLog, times: int) -> None:
    """The trial's pool is down; it is asked so often in vain after the first time."""
    log.taken("a", "local", ["s"], 0.0)
    log.started("a", 1)
    log.withdrawn("a")
    for number in range(times):
        log.taken("a", "local", [f"s{number}"], float(number))
        log.withdrawn("a")


@pytest.mark.parametrize("times", [0, 1, 5000])
def test_an_outage_is_two_lines_however_long_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    path, clock = tmp_path / "slots.jsonl", iter(range(1, 100_000))
    monkeypatch.setattr(slot_log.time, "time", lambda: float(next(clock)))
    log = SlotLog(path)
    outage(log, times)
    assert read_holds(path) == []
    log.taken("a", "local", ["s9"], 7.0)
    log.started("a", 1)
    log.given_back("a")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["event"] for event in events] == ["taken", "started", "withdrawn", "taken", "started", "given_back"]
    assert [event.get("asked_in_vain") for event in events] == [None, None, None, times, None, None]
    taken = 4.0 + 2 * times
    assert read_holds(path) == [Hold(events[0]["flow"], "a", "local", ("s9",), 7.0, taken, [(taken + 1, 1)], taken + 2)]
    log.taken("a", "local", ["s"], 0.0)
    assert len(read_holds(path)) == 2, "the next hold is told at once"


def test_a_flow_that_is_killed_while_the_pool_starts_the_trial_after_an_outage_has_told_of_the_slots(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    log, other = SlotLog(path), SlotLog(path)
    outage(log, 3)
    other.taken("b", "cpu", ["s8"], 6.0)
    log.taken("a", "local", ["s9", "the slot of a node with a long name"], 7.0)  # it asks, and the pool starts the trial
    one, last = read_holds(path)
    assert (one.trial, last.trial, last.slots, last.asked) == ("b", "a", ("s9", "the slot of a node with a long name"), 7.0)
    assert (last.starts, last.given_back) == ([], None) and last.taken >= one.taken


def test_a_line_that_could_not_be_written_is_written_with_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "folder" / "slots.jsonl"
    log = SlotLog(path)
    log.taken("a", "cpu", ["s"], 0.0)
    log.started("a", 1)
    path.parent.mkdir()
    log.given_back("a")
    [hold] = read_holds(path)
    assert (hold.slots, [attempt for _, attempt in hold.starts]) == (("s",), [1]) and hold.given_back is not None
    [warning] = caplog.messages
    assert warning == f"{path} cannot be written (No such file or directory): if that stays so, where the held time went is not known"
    log.taken("a", "cpu", ["s"], 0.0)
    assert [json.loads(line)["event"] for line in path.read_text().split("\n") if line] == ["taken", "started", "given_back", "taken"]


@pytest.mark.parametrize("written", [0, 1, 40])
def test_a_line_that_was_written_in_part_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    path, write = tmp_path / "slots.jsonl", os.write
    log = SlotLog(path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:written]))  # the disk is full
        log.taken("a", "cpu", ["s"], 0.0)
    assert read_holds(path) == []
    log.started("a", 1)
    [hold] = read_holds(path)
    assert (hold.slots, len(hold.starts)) == (("s",), 1)


def test_lines_that_were_written_in_part_again_and_again_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "slots.jsonl", os.write
    log = SlotLog(path)
    log.taken("a", "cpu", ["s"], 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, text: write(descriptor, text[:-5]))  # a little is free each time
        log.started("a", 1)
        log.given_back("a")
        log.taken("b", "cpu", ["s"], 0.0)
        log.started("b", 1)
    log.given_back("b")
    assert [(hold.trial, len(hold.starts)) for hold in read_holds(path)] == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("before", ["", '{"t": 1, "ev', '{"t": 1}\n'])
def test_what_a_flow_writes_first_is_not_lost_behind_what_the_one_before_wrote_in_part(tmp_path: Path, before: str) -> None:
    path = tmp_path / "slots.jsonl"
    path.write_text(before)
    log = SlotLog(path)
    log.taken("a", "cpu", ["s"], 0.0)
    assert [hold.trial for hold in read_holds(path)] == ["a"]
    assert path.read_text().startswith((before + "\n").lstrip() if before and not before.endswith("\n") else before + "{")


def test_a_trial_that_stops_asking_says_how_often_it_did_in_vain(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    log = SlotLog(path)
    outage(log, 3)
    log.given_up("a")
    log.given_up("a")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(event["event"], event.get("asked_in_vain")) for event in events[2:]] == [("withdrawn", None), ("withdrawn", 3)]
    assert read_holds(path) == []


def test_slots_that_a_trial_gives_back_after_it_asked_for_the_last_time_were_held(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    log = SlotLog(path)
    outage(log, 2)
    log.taken("a", "local", ["s8"], 7.0)
    log.given_back("a")  # the pool has been down for too long
    [hold] = read_holds(path)
    assert (hold.slots, hold.starts) == (("s8",), []) and hold.given_back is not None
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["taken", "started", "withdrawn", "taken", "given_back"]


def test_slots_that_were_withdrawn_last_are_held_no_more(tmp_path: Path) -> None:
    path = tmp_path / "slots.jsonl"
    log = SlotLog(path)
    outage(log, 2)
    log.given_back("a")
    assert read_holds(path) == []
