"""Lengths of time as people write them."""

from __future__ import annotations

import pytest

from experiments.config.duration import option_seconds, seconds
from experiments.config.errors import ConfigError


def test_durations() -> None:
    assert [seconds(text) for text in ("2h", "90m", "1h30m", "45s", "1.5h")] == [7200, 5400, 5400, 45, 5400]
    for wrong in ("", "2", "h", "0m", "-1h", "2 hours"):
        with pytest.raises(ValueError, match=r"duration|no time"):
            seconds(wrong)


def test_an_option_is_named_with_what_would_be_right() -> None:
    assert option_seconds("--budget", "25m") == 1500
    with pytest.raises(ConfigError, match=r"--budget: '25' is not a duration; write it as 2h, 90m or 1h30m"):
        option_seconds("--budget", "25")
