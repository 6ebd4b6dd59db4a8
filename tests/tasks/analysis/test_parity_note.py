"""What a report says of a cell's loss parity."""

from __future__ import annotations

import pytest

from experiments.stats.loss_parity import Parity, ParityStatus
from tasks.analysis.parity_note import difference, divergence, interval, parity_note, share, signed


def unproven(why: str, **more: object) -> str:
    return parity_note(Parity(ParityStatus.UNPROVEN, why, **{"steps": 200, "pairs": 3, "seeds": 3, **more}), "fp32")  # type: ignore[arg-type]


def test_what_would_prove_it_is_said() -> None:
    unknown = "its difference is not known well enough"
    head = f"unproven against fp32: {unknown}"
    found = "; a divergence of 1.23 % would have been found"
    assert unproven(unknown, recommended=320, smallest=0.0123) == f"{head}; 320 steps would show 1 %{found}"
    more_seeds = "more steps would not show 1 %, more seeds would (parity_reference and repeats: 5)"
    assert unproven(unknown, smallest=0.0123) == f"{head}; {more_seeds}{found}"
    assert unproven(unknown, recommended=150, smallest=0.0123) == f"{head}{found}", "it has so many"
    assert unproven("some losses were not recorded") == "unproven against fp32: some losses were not recorded", "no length would show more"
    assert unproven("15 steps are too few", steps=15).endswith("; 100 steps would show 1 %")
    assert unproven("few", seeds=2, pairs=2).endswith("few; needs 1 more fp32 seed (parity_reference: 3)")
    assert unproven("few", pairs=1).endswith("few; needs 2 more of its own seeds (repeats: 3)")


def test_of_inference_no_number_of_batches_is_said_to_show_what_their_sizes_rule_out() -> None:
    parity = Parity(ParityStatus.UNPROVEN, "its losses differ", steps=100, pairs=1, seeds=1, recommended=116, smallest=0.0077)
    assert (
        parity_note(parity, "bf16", trains=False)
        == "unproven against bf16: its losses differ; a divergence of 0.77 % would have been found"
    )


def test_a_strike_says_where_the_references_loss_all_but_vanished() -> None:
    def struck(fell_to: float | None, *, trains: bool = True) -> str:
        parity = Parity(ParityStatus.STRUCK, difference=8.4747, steps=110, pairs=3, seeds=3, left_at=8, fell_to=fell_to)
        return parity_note(parity, "bf16", trains=trains)

    plain = "struck: the loss differs by +847.47 % from step 8, against bf16 over 110 steps, 3 of 3 seeds"
    vanished = "(whose loss fell to 0.0012 % of its first: so near 0, rounding errors make large differences)"
    assert struck(0.000012) == f"{plain} {vanished}: no speed-up is claimed"
    assert struck(0.0099).startswith(f"{plain} (whose loss fell to 0.99 % of its first")
    assert {struck(0.01), struck(None), struck(2.0)} == {f"{plain}: no speed-up is claimed"}
    assert "whose loss" not in struck(0.000012, trains=False), "nothing falls where nothing is trained"


def test_numbers_have_a_sign_and_no_minus_before_zero() -> None:
    assert [signed(value, 2) for value in (0.0123, -0.0123, -0.00001, None)] == ["+1.23 %", "−1.23 %", "+0.00 %", "–"]
    assert [share(value) for value in (0.005, 0.0123, 0.1)] == ["0.5 %", "1.2 %", "10 %"]


@pytest.mark.parametrize(
    ("half", "figures"),
    [  # in percent: two significant digits of half the interval, one to three decimals
        (12.0, ("+1.2 %", "−10.8 % to +13.2 %", "0.7 %")),
        (0.15, ("+1.23 %", "+1.08 % to +1.38 %", "0.70 %")),
        (0.1, ("+1.23 %", "+1.13 % to +1.33 %", "0.70 %")),
        (0.09, ("+1.230 %", "+1.140 % to +1.320 %", "0.700 %")),
        (0.0004, ("+1.230 %", "+1.230 % to +1.230 %", "0.700 %")),
        (0.0, ("+1.230 %", "+1.230 % to +1.230 %", "0.700 %")),
    ],
)
def test_all_figures_of_a_comparison_have_the_decimals_of_its_interval(half: float, figures: tuple[str, str, str]) -> None:
    ends = {"low": 0.0123 - half / 100, "high": 0.0123 + half / 100}
    parity = Parity(ParityStatus.UNPROVEN, "few", difference=0.0123, smallest=0.007, **ends)
    assert (difference(parity), interval(parity), divergence(parity)) == figures


def test_without_an_interval_figures_have_two_decimals() -> None:
    unknown = Parity(ParityStatus.UNPROVEN, "few", difference=0.0123, smallest=0.007)
    assert (difference(unknown), interval(unknown), divergence(unknown)) == ("+1.23 %", "– to –", "0.70 %")
    assert divergence(Parity(ParityStatus.UNPROVEN, "few")) == "–"
