"""Which nights count as baseline: alarms stay out until they are accepted or prove to be none."""

from __future__ import annotations

from experiments.regression.history_segments import Change, accepts_itself, baseline_nights, open_alarm, start_of
from experiments.stats.verdict import Verdict

S, F, OK, U = Verdict.SLOWER, Verdict.FASTER, Verdict.SAME, Verdict.UNDECIDED
DATES = [f"2026-11-{day:02d}" for day in range(1, 11)]


def said(*words: Verdict) -> dict[str, Verdict]:
    return dict(zip(DATES, words, strict=False))


def change(since: str, on: str) -> Change:
    return Change(cell="c", metric="throughput", since=since, verdict=S, accepted_on=on, by="me")


def test_nights_of_an_open_alarm_are_no_baseline() -> None:
    assert baseline_nights(DATES[:6], said(OK, OK, OK, S, U, S), [], DATES[6], 20) == DATES[:3]
    assert open_alarm(said(OK, OK, OK, S, U, S), [], DATES[6]) == DATES[3:6]


def test_an_alarm_that_was_none_counts_again() -> None:
    assert baseline_nights(DATES[:6], said(OK, OK, S, OK, U, OK), [], DATES[6], 20) == DATES[:6]
    assert open_alarm(said(S, F), [], DATES[2]) == [DATES[1]]  # the other direction is another alarm


def test_an_accepted_change_starts_a_segment() -> None:
    changes = [change(DATES[3], on=DATES[5])]
    verdicts = said(OK, OK, OK, S, S, S)
    assert baseline_nights(DATES[:6], verdicts, changes, DATES[6], 20) == DATES[3:6]  # slower than the old level, not than the new one
    worse_still = {**verdicts, DATES[6]: OK, DATES[7]: S}
    assert baseline_nights(DATES[:8], worse_still, changes, DATES[8], 20) == DATES[3:7]
    assert start_of(changes, DATES[2]) is None


def test_the_baseline_has_a_longest_length() -> None:
    assert baseline_nights(DATES, said(*[OK] * 10), [], "2026-12-01", 4) == DATES[-4:]


def test_what_holds_is_accepted_by_itself_and_what_is_over_is_not() -> None:
    held = said(OK, OK, S, S, U, S)
    assert accepts_itself(held, [], DATES[5], 3) == DATES[2]
    assert accepts_itself(held, [], DATES[5], 4) is None
    assert accepts_itself(said(OK, S, S, S), [], DATES[3], 3) == DATES[1]
    assert accepts_itself(said(OK, S, S, OK), [], DATES[3], 3) is None
    assert accepts_itself(said(OK, S, OK, S), [], DATES[3], 2) is None
    assert accepts_itself(said(S, S, S, F), [], DATES[3], 2) is None
