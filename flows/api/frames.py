"""Records and Arrow tables as pandas frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

_AXIS = "axis."


def frame_of(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each record. Axes come first and lose the prefix `axis.`, unless another column has that name and other values.

    What is not known is NaN; a column of which nothing is known is one of floats.
    """
    frame = pd.DataFrame.from_records([dict(record) for record in records])
    empty = [name for name in frame.columns if frame[name].isna().all()]
    frame = frame.astype(dict.fromkeys(empty, float))
    axes = [name for name in frame.columns if name.startswith(_AXIS)]
    plain = {name: name.removeprefix(_AXIS) for name in axes}
    same = [name for name in axes if plain[name] in frame.columns and frame[name].equals(frame[plain[name]])]
    frame = frame.drop(columns=[plain[name] for name in same])
    names = {name: short for name, short in plain.items() if short not in frame.columns}
    rest = [name for name in frame.columns if name not in axes]
    return frame[[*axes, *rest]].rename(columns=names)
