"""The folder of the sweep that a person names: by its id, as `last`, or by the folder itself, such as one of a results page."""

from __future__ import annotations

import os
from pathlib import Path

from cluster.trial_layout import PLAN
from tasks.sweep.store import StoreError, SweepStore, list_sweeps

LAST = "last"


def newest_sweep() -> str:
    """Id of the newest sweep. Raises StoreError where there is none."""
    sweeps = list_sweeps()
    if not sweeps:
        raise StoreError("there is no sweep yet; `sweep run bridgetower` makes one")
    return sweeps[0]


def find_sweep(text: str | os.PathLike[str]) -> Path:
    """Raises StoreError where there is none."""
    named = os.fspath(text)
    if named == LAST:
        return SweepStore(newest_sweep()).dir
    folder = Path(named).expanduser()
    if isinstance(text, os.PathLike) or os.sep in named or (folder / PLAN).exists():
        if not os.path.lexists(folder / PLAN):
            raise StoreError(f"{folder} is no sweep: it has no {PLAN}; name a sweep's folder, its id (`sweep list`) or `last`")
        return folder
    store = SweepStore(named)
    if not store.exists():
        store.load_plan()  # raises, and says why
    return store.dir
