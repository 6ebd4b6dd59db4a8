"""The trial of a sweep that a person names: by its key, by its name, or by words of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from experiments.config.errors import ConfigError, choose
from experiments.trial import Trial

_LEAST = 4  # digits of a key that are taken for its beginning
_SHOWN = 8


def spelled(trial: Trial) -> str:
    """The trial's name without spaces, as a shell completes it: `cpu/bf16/width_128/#2`."""
    return trial.name.replace(" · ", "/").replace(" ", "_")


def find_trial(trials: Sequence[Trial], text: str) -> Trial:
    """The one trial with this key or its beginning, this name or spelling, or all of these words in its name.

    Raises ConfigError that lists the trials which it may mean.
    """
    words = _words(text)
    fits = [trial for trial in trials if trial.key == text or (len(text) >= _LEAST and trial.key.startswith(text))]
    fits = fits or [trial for trial in trials if words == _words(trial.name)]
    fits = fits or [trial for trial in trials if words and set(words) <= set(_words(trial.name))]
    if len(fits) == 1:
        return fits[0]
    if not trials:
        raise ConfigError.one("TRIAL", None, text, "is no trial of the sweep", "it has none")
    names = [trial.name for trial in fits or trials]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = f"name one of: {', '.join(names[:_SHOWN])}{more}"
    if fits:
        raise ConfigError.one("TRIAL", None, text, f"fits {len(fits)} trials", listed)
    hint = choose(text, names)
    raise ConfigError.one("TRIAL", None, text, "is no trial of the sweep", hint if "did you mean" in hint else listed)


def _words(text: str) -> list[str]:
    return [word.lower() for word in re.split(r"[\s·/_]+", text) if word]
