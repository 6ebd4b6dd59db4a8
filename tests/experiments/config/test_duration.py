"""Lengths of time as people write them."""

from __future__ import annotations

import pytest

from experiments.config.duration import about, in_minutes, option_seconds, seconds, text
from experiments.config.errors import ConfigError


def test_durations() -> None:
    assert [seconds(one) for one in ("2h", "90m", "1h30m", "45s", "1.5h")] == [7200, 5400, 5400, 45, 5400]
    for wrong in ("", "2", "h", "0m", "-1h", "2 hours"):
        with pytest.raises(ValueError, match=r"duration|no time"):
            seconds(wrong)
    assert seconds("720h") == 30 * 86400
    for slip in ("720h1s", "99999999h", "9" * 400 + "h"):
        with pytest.raises(ValueError, match=r"'[0-9hs]{1,20}' is more than 30 days$"):
            seconds(slip)


def test_a_time_that_is_asked_for_is_in_whole_minutes_rounded_up() -> None:
    assert [in_minutes(one) for one in (0.0, 60.0, 60.1, 7199.0)] == ["1m", "1m", "2m", "2h"]


def test_an_option_is_named_with_what_would_be_right() -> None:
    assert option_seconds("--budget", "25m") == 1500
    with pytest.raises(ConfigError, match=r"--budget: '25' is not a duration; write it as 2h, 90m, 1h30m or 45s"):
        option_seconds("--budget", "25")


@pytest.mark.parametrize(
    ("duration_s", "written", "said"),
    [(0.2, "1s", "1 s"), (45.0, "45s", "45 s"), (89.6, "1m30s", "90 s"), (1500.0, "25m", "25 min"), (7500.0, "2h5m", "2 h 05 min")],
)
def test_durations_as_text(duration_s: float, written: str, said: str) -> None:
    assert (text(duration_s), about(duration_s)) == (written, said)
    assert seconds(written) == pytest.approx(max(1.0, duration_s), abs=0.5)
