"""What the head of a results page says of a sweep's rounds and of its held time. All numbers are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.paths import runs_root
from tasks.analysis.trial_row import LEFT_OUT
from tasks.report.publish import _anchor, _rounds_short_of, publish
from tasks.sweep.store import DecideSettings, Plan
from tests.tasks.fake_sweep import Fake, whole_sweep
from tests.tasks.held_support import write_slots
from tests.tasks.plan_support import make_plan, make_trial

AXES = {"pool": "cpu", "model": "base", "dataloader_workers": 0}


def in_rounds(run: int, least: int) -> Plan:
    trials = [make_trial(number, repeat=number) for number in range(1, run + 1)]
    return make_plan(trials).model_copy(update={"decide": DecideSettings(budget_s=60.0, least=least)})


@pytest.mark.parametrize(
    ("run", "least", "said"),
    [
        (1, 3, "; 1 of at least 3 rounds that it was to have"),
        (2, 3, "; 2 of at least 3 rounds that it was to have"),
        (3, 3, ""),
        (4, 3, ""),
    ],
)
def test_rounds_that_it_was_to_have_and_has_not_are_told(run: int, least: int, said: str) -> None:
    assert _rounds_short_of(in_rounds(run, least)) == said


def test_a_sweep_that_was_not_to_go_on_in_rounds_lacks_none() -> None:
    assert _rounds_short_of(make_plan([make_trial(1)])) == ""


def test_the_head_says_how_much_of_the_held_time_was_measured(tmp_path: Path) -> None:
    """Or that it was not recorded."""
    store = whole_sweep(runs_root(), [Fake(AXES, 100.0, repeats=2)])
    assert "- **Held time:** not recorded\n" in publish([store], tmp_path / "before").read_text()
    for trial in store.load_plan().trials:
        write_slots(store, trial.key)
    text = publish([store], tmp_path / "page").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("- **Held time:** ")]
    assert line.startswith("- **Held time:** measured 0 % of the 20.0 slot-seconds that 2 slots were held; the rest: ")


def test_a_page_tells_what_is_known_of_a_a_pairs_and_nothing_of_clocks_that_nobody_sampled(tmp_path: Path) -> None:
    store = whole_sweep(runs_root(), [Fake(AXES, 100.0, repeats=2)])
    text = publish([store], tmp_path / "page").read_text()
    assert "- **A/A:** No A/A pairs of Made-up CPU were known where the sweep ran, " in text and "- **Clocks:**" not in text


@pytest.mark.parametrize(("traced", "linked"), [(False, False), (True, True)])
def test_a_page_does_not_lead_to_a_section_that_says_only_how_to_get_it(traced: bool, linked: bool, tmp_path: Path) -> None:
    """A sweep on GPUs whose steps nobody traced has that section in its report; what was traced and is not shown is content."""
    left_out = {"where": "device", "steps": 4, "span_s": 10.0, "idle_s": 1.5, "groups": [], LEFT_OUT: "not shown, since why"}
    window = {"flops_per_sample": 3e14, "peak_flops": 1e15, **({"profile": left_out} if traced else {})}
    store = whole_sweep(runs_root(), [Fake(AXES, repeats=2, device="cuda", window=window)])
    text = publish([store], tmp_path / "page").read_text()
    assert "\n## Where the peak goes\n" in (tmp_path / "page" / store.sweep_id / "report.md").read_text()
    assert ("[Where the peak goes](" in text) is linked


def test_the_anchor_of_a_section_is_that_of_its_heading() -> None:
    """tests/test_docs.py follows the links of all our pages."""
    assert [_anchor(title) for title in ("Where the peak goes", "Where a step's time goes", "A/A")] == [
        "where-the-peak-goes",
        "where-a-steps-time-goes",
        "aa",
    ]
