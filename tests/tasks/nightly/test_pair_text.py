"""What is said of a cell that was measured in pairs, in its metric's own words and direction."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import Pairs
from tasks.nightly.pair_text import pair_sentence
from tasks.nightly.store import CellVerdict

PAIRS = Pairs(good="a" * 40, good_date="2026-10-18", tonight="b" * 40, count=8, verdict=Verdict.SLOWER, ratio=0.949, low=0.94, high=0.958)
WHICH = "8 pairs of bbbbbbbbbbbb against aaaaaaaaaaaa"
SAME = PAIRS.model_copy(update={"verdict": Verdict.SAME})
OPEN = PAIRS.model_copy(update={"verdict": Verdict.UNDECIDED, "count": 1, "why": "there was no time for more"})


def item(**more: Any) -> CellVerdict:
    values = {
        "cell": "c",
        "name": "n",
        "role": "history",
        "metric": "throughput",
        "verdict": Verdict.SLOWER,
        "word": "slower",
        "repeats": 3,
    }
    return CellVerdict.model_validate({**values, "minimum": 0.03, "ratio": 0.97, "raw": 0.98, "looked": Verdict.SLOWER, **more})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"pairs": PAIRS}, f"slower by 5.1 % (4.2 to 6.0 %), {WHICH}"),
        ({"pairs": PAIRS, "metric": "peak_memory_bytes"}, f"more by 5.4 % (4.4 to 6.4 %), {WHICH}"),
        ({"pairs": PAIRS, "crept": True}, f"slower by 5.1 % (4.2 to 6.0 %) since 2026-10-18, little by little, {WHICH}"),
        ({"pairs": SAME}, f"looked 3.0 % slower; {WHICH}: same"),
        ({"pairs": SAME, "raw": 0.95}, f"looked 5.0 % slower; {WHICH}: same"),
        ({"pairs": SAME, "ratio": 1.04, "looked": Verdict.FASTER}, f"looked 4.0 % faster; {WHICH}: same"),
        ({"pairs": SAME, "crept": True}, f"looked as if it crept; {WHICH}: same"),
        (
            {"pairs": SAME, "ratio": 1.04, "looked": Verdict.UNDECIDED},
            f"may have changed (-2.0 % as measured, +4.0 % relative to its node); {WHICH}: same",
        ),
        ({"pairs": OPEN}, "looked 3.0 % slower; 1 pair of bbbbbbbbbbbb against aaaaaaaaaaaa: undecided (there was no time for more)"),
        (
            {"pairs": SAME.model_copy(update={"disturbed": 2})},
            f"looked 3.0 % slower; {WHICH}, without 2 that other work disturbed: same",
        ),
        ({"not_paired": "why"}, "looked 3.0 % slower, and no pair counts (why); its nights and the canary judge"),
        ({"looked": None}, None),
    ],
)
def test_the_sentence(more: dict[str, Any], sentence: str | None) -> None:
    assert pair_sentence(item(**more)) == sentence
