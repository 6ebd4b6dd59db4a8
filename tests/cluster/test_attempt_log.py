"""One text of several attempts."""

from __future__ import annotations

from cluster.attempt_log import attempts_in, heading, with_attempt


def test_each_attempt_has_its_part_under_its_heading() -> None:
    one, two = heading(1, 0.0) + "a\nb\n", heading(2, 60.0) + "c"
    assert heading(1, 0.0) == "--- attempt 1 at 1970-01-01T00:00:00Z\n"
    assert attempts_in(one + two) == {1: one, 2: two}
    assert attempts_in("no heading\n") == {} == attempts_in("")


def test_an_attempt_that_was_begun_twice_has_what_both_printed() -> None:
    first, again, two = heading(1, 0.0) + "a\n", heading(1, 30.0) + "b\n", heading(2, 60.0) + "c\n"
    assert attempts_in(first + again + two) == {1: first + again, 2: two}


def test_an_attempt_that_is_written_again_takes_its_own_place() -> None:
    text = with_attempt(with_attempt("", 1, "first\n", 0.0), 2, "second\n", 60.0)
    assert list(attempts_in(text)) == [1, 2]
    again = with_attempt(text, 2, "second, whole\n", 60.0)
    assert again == heading(1, 0.0) + "first\n" + heading(2, 60.0) + "second, whole\n"
