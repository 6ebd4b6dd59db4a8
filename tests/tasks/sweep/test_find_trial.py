"""The trial that a person names."""

from __future__ import annotations

import pytest

from experiments.config.errors import ConfigError
from experiments.trial import Trial
from tasks.sweep.find_trial import find_trial, spelled
from tests.tasks.plan_support import make_trial


def trials() -> list[Trial]:
    cells = [("bf16", 0), ("bf16", 1), ("fp32", 1)]
    found = []
    for number, (precision, workers) in enumerate(cells, 1):
        for repeat in (1, 2):
            axes = {"pool": "cpu", "precision": precision, "width": 128, "dataloader_workers": workers}
            trial = make_trial(number, repeat=repeat, axes=axes)
            found.append(trial.model_copy(update={"key": f"{number:04d}{repeat:012d}"}))
    return found


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0001000000000002", 1),
        ("0003000000000002", 5),
        ("cpu · bf16 · width 128 · MP-1 · #2", 3),
        ("cpu/bf16/width_128/MP-1/#2", 3),
        ("#1 mp-0", 0),
        ("fp32 #2", 5),
    ],
)
def test_by_key_name_spelling_or_words(text: str, place: int) -> None:
    assert find_trial(trials(), text) is not None
    assert find_trial(trials(), text).key == trials()[place].key


def test_a_key_may_be_cut_off_while_it_is_one() -> None:
    only = [trial for trial in trials() if trial.repeat == 1]
    assert find_trial(only, "0002").key == only[1].key
    with pytest.raises(ConfigError, match="TRIAL: 0002: fits 2 trials; name one of: cpu · bf16"):
        find_trial(trials(), "0002")
    with pytest.raises(ConfigError, match="TRIAL: 000: is no trial of the sweep"):
        find_trial(only, "000")


def test_what_fits_several_or_none_lists_them() -> None:
    with pytest.raises(ConfigError, match=r"TRIAL: bf16 #1: fits 2 trials; name one of: .*MP-0 · #1, .*MP-1 · #1$"):
        find_trial(trials(), "bf16 #1")
    with pytest.raises(ConfigError, match="TRIAL: cpu/bf17/width_128/MP-1/#2: is no trial"):
        find_trial(trials(), "cpu/bf17/width_128/MP-1/#2")
    with pytest.raises(ConfigError, match="bf16: is no trial of the sweep; it has none"):
        find_trial([], "bf16")


def test_every_spelling_is_one_word_and_finds_its_trial() -> None:
    for trial in trials():
        assert " " not in spelled(trial) and find_trial(trials(), spelled(trial)) == trial
