"""Where the held time went, in words."""

from __future__ import annotations

from tasks.analysis.held_time import PARTS, HeldTime, HeldTrial
from tasks.report.figures.held_time import COLOURS
from tasks.report.held_text import GROUPS, grouped, held_sentence


def held(*parts: dict[str, float], slots: int = 1, emulated: bool = False) -> HeldTime:
    return HeldTime([HeldTrial(str(number), "cpu", found, emulated) for number, found in enumerate(parts)], slots)


def test_every_part_is_in_one_group_and_every_group_has_a_colour_of_its_own() -> None:
    assert sorted(part for parts in GROUPS.values() for part in parts) == sorted(PARTS)
    assert set(COLOURS) == set(GROUPS) and len(set(COLOURS.values())) == len(GROUPS)
    assert grouped({"launch": 1.0, "imports": 2.0, "measured": 4.0}) == {"start": 3.0, "measured": 4.0}


def test_the_sentence_names_the_rest_from_large_to_small_and_puts_small_parts_together() -> None:
    found = held({"measured": 60.0, "launch": 5.0, "imports": 5.0, "warmup": 20.0}, {"discarded": 9.0, "data": 0.7, "teardown": 0.3})
    expected = "measured 60 % of the 100 s that the pool was held; the rest: 20 % warm-up, 10 % start, 9 % discarded attempts, 1 % other"
    assert held_sentence(found) == expected
    parts = {"measured": 96.5, "warmup": 1.5, "launch": 1.0, "data": 0.9, "teardown": 0.1}
    assert held_sentence(held(parts)).endswith("the rest: 2 % warm-up, 1 % start, 1 % other"), "from one percent on a part has its name"
    assert held_sentence(held({"measured": 1000.0, "data": 1.0})).endswith("the rest: <1 % other")
    assert held_sentence(held({"measured": 2.0})) == "measured 100 % of the 2.00 s that the pool was held"
    assert held_sentence(held({"warmup": 2.0})).startswith("measured 0 % of")


def test_several_slots_are_held_for_slot_seconds_and_what_is_emulated_says_so() -> None:
    told = held_sentence(held({"measured": 3.0, "warmup": 1.0}, slots=2, emulated=True))
    assert told.startswith("measured 75 % of the 4.00 slot-seconds that 2 slots were held (on an emulated device, so nothing of it is a")
