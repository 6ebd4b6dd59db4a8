"""Which nights count as baseline: alarms stay out until they are accepted or prove to be none."""

from __future__ import annotations

from experiments.regression.history_segments import Change, accepts_itself, baseline_nights, open_alarm, reference_nights, start_of
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


def test_a_segment_begins_with_the_last_change_up_to_the_date() -> None:
    changes = [change(DATES[5], on=DATES[6]), change(DATES[2], on=DATES[4])]
    assert [start_of(changes, date) for date in (DATES[1], DATES[2], DATES[4], DATES[5], DATES[9])] == [
        None,
        DATES[2],
        DATES[2],
        DATES[5],
        DATES[5],
    ]
    assert start_of([], DATES[0]) is None


def test_tonight_and_later_are_not_before_tonight() -> None:
    verdicts = said(OK, S, S, S)
    assert open_alarm(verdicts, [], DATES[2]) == [DATES[1]]
    assert baseline_nights(DATES[:5], said(*[OK] * 5), [], DATES[2], 20) == DATES[:2]
    backwards = dict(reversed(verdicts.items()))
    assert open_alarm(backwards, [], DATES[3]) == DATES[1:3]
    assert baseline_nights(DATES[2::-1], {}, [], DATES[3], 2) == DATES[1:3]


def test_undecided_nights_open_no_alarm_and_belong_to_an_open_one() -> None:
    assert open_alarm(said(U, U, S, U), [], DATES[4]) == DATES[2:4]
    assert open_alarm(said(U, U), [], DATES[4]) == []
    assert open_alarm(said(S, U, F, U), [], DATES[4]) == DATES[2:4]
    assert open_alarm(said(F, U, F), [], DATES[4]) == DATES[:3]
    assert open_alarm(said(S, OK, S), [], DATES[3]) == [DATES[2]], "after its end the same direction is a new alarm"


def test_what_was_said_up_to_an_acceptance_is_settled_and_what_is_said_after_is_not() -> None:
    changes = [change(DATES[3], on=DATES[5])]
    verdicts = said(S, S, S, S, S, S, S, S)
    assert open_alarm(verdicts, changes, DATES[8]) == DATES[6:8], "the night of the acceptance is settled, the next one is not"
    assert open_alarm(verdicts, changes, DATES[3]) == [], "the night on which the segment began knows nothing before it"
    assert open_alarm(verdicts, changes, DATES[2]) == DATES[:2], "a night before it knows its own"
    later = [change(DATES[3], on=DATES[3])]
    assert open_alarm(verdicts, later, DATES[6]) == DATES[4:6]
    assert baseline_nights(DATES[:8], verdicts, changes, DATES[8], 20) == DATES[3:6]
    assert baseline_nights(DATES[:8], verdicts, changes, DATES[8], 2) == DATES[4:6]


def test_an_alarm_is_held_by_its_own_nights_only() -> None:
    assert accepts_itself(said(S), [], DATES[0], 1) == DATES[0]
    assert accepts_itself(said(S), [], DATES[0], 2) is None
    assert accepts_itself(said(F, F), [], DATES[1], 2) == DATES[0]
    assert accepts_itself(said(S, U, U, S), [], DATES[3], 3) is None, "an undecided night holds nothing"
    assert accepts_itself(said(S, U, U, S), [], DATES[3], 2) == DATES[0]
    assert accepts_itself(said(S, S, U), [], DATES[2], 2) is None, "tonight has to say so"
    assert accepts_itself(said(S, S, S, F), [], DATES[3], 1) is None, "tonight's direction has an open alarm of the other before it"
    assert accepts_itself(said(OK, U), [], DATES[1], 1) is None
    assert accepts_itself(said(S, S), [], DATES[5], 1) is None, "nothing was said tonight"
    held = said(S, S, S, S)
    assert accepts_itself(held, [change(DATES[1], on=DATES[2])], DATES[3], 2) is None, "settled nights do not count twice"
    assert accepts_itself(held, [change(DATES[1], on=DATES[2])], DATES[3], 1) == DATES[3]


def test_a_missed_slow_down_is_held_against_the_same_commit_for_three_nights() -> None:
    verdicts = said(*[OK] * 9)
    for tonight, reference in ((DATES[5], DATES[2]), (DATES[6], DATES[3]), (DATES[7], DATES[4])):
        assert reference_nights(DATES, verdicts, [], tonight)[0] == reference, "a change of night 6 (DATES[5]) is in none of the three"
    assert reference_nights(DATES, verdicts, [], DATES[4]) == [DATES[1], DATES[0], DATES[2], DATES[3]]


def test_the_good_commit_stays_while_an_alarm_is_open() -> None:
    """A slow-down of night 5 (DATES[4]), which it and the next one missed, is held against the same commit until it is over."""
    verdicts = said(OK, OK, OK, OK, OK, OK, S, S, U, S)
    for tonight in DATES[6:]:
        assert reference_nights(DATES, verdicts, [], tonight) == [DATES[3], DATES[2], DATES[1], DATES[0], DATES[4], DATES[5]]
    over = {**verdicts, DATES[8]: OK, DATES[9]: OK}
    assert reference_nights(DATES, over, [], DATES[9])[0] == DATES[6], "its nights are ordinary ones again"
    turned = {**verdicts, DATES[7]: F, DATES[9]: F}
    assert [reference_nights(DATES, turned, [], tonight)[0] for tonight in DATES[7:]] == [DATES[3]] * 3
    accepted = [change(DATES[6], on=DATES[8])]
    assert reference_nights(DATES, verdicts, accepted, "2026-11-11") == DATES[6:9], "night 10 opened an alarm on the new level"


def test_a_good_commit_is_of_the_segment_and_of_no_open_alarm() -> None:
    assert reference_nights(DATES[:7], said(OK, OK, S, S, S, U, S), [], DATES[7]) == DATES[:2], "as on the alarm's first night"
    changes = [change(DATES[3], on=DATES[5])]
    assert reference_nights(DATES[:7], said(OK, OK, OK, S, S, S, OK), changes, DATES[7]) == [DATES[4], DATES[3], DATES[5], DATES[6]]
    assert reference_nights(DATES[:4], said(OK, OK, OK, S), [change(DATES[3], on=DATES[3])], DATES[4]) == [DATES[3]]
    assert reference_nights(DATES[:2], said(S, S), [], DATES[2]) == []
    assert reference_nights(DATES[:2], said(OK, OK), [], DATES[2]) == DATES[:2], "a young history: its oldest night"
