"""Which GPUs an environment shows, by CUDA's rules."""

from __future__ import annotations

import pytest

from cluster.visible_gpus import visible


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (None, ["0", "1"]),
        ("3, 4 ,5", ["3", "4"]),
        ("GPU-a", ["GPU-a"]),
        ("", []),
        ("-1", []),
        ("1,-1,0", ["1"]),  # CUDA shows those before the first that is none
        ("1,,0", ["1"]),
    ],
)
def test_those_before_the_first_that_is_none_are_visible(listed: str | None, names: list[str]) -> None:
    assert visible(2, {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}) == names
