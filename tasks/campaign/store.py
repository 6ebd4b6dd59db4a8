"""Where a campaign stands: runs/campaigns/<name>/campaign.json, sealed. Which sweep each of its entries has; all else lies with the sweeps.

The file is written before a sweep's plan is. So whatever ends the command, nothing that was measured is forgotten: an entry whose sweep has
no plan yet gets one under the same id. A runs folder that is copied to another machine takes the campaign along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import Field

from experiments.atomic_file import atomic_write
from experiments.config.errors import UserError
from experiments.config.paths import runs_root
from experiments.config.strict import Strict
from experiments.json_file import read_model, sealed_text

CAMPAIGNS = "campaigns"
STATE = "campaign.json"
_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,80}$")
_RESTORE = "restore it from a copy, or move it away: the campaign then begins anew, and its sweeps stay in `sweep list`"


class CampaignError(UserError):
    """A campaign cannot be run, or published. The message says why, and what to do."""


class CampaignState(Strict):
    """campaign.json."""

    campaign: str
    sweeps: dict[str, str] = Field(default_factory=dict, description="name in the campaign -> sweep id")
    earlier: list[str] = Field(default_factory=list, description="ids of sweeps whose entries asked for something else by then")

    def with_sweep(self, name: str, sweep_id: str) -> CampaignState:
        """With this sweep for an entry; the one that it had goes to `earlier`, from which this one is taken out."""
        before = self.sweeps.get(name)
        earlier = [one for one in self.earlier if one != sweep_id]
        if before is not None and before != sweep_id:
            earlier.append(before)
        return self.model_copy(update={"sweeps": {**self.sweeps, name: sweep_id}, "earlier": earlier})


class CampaignStore:
    """The folder of one campaign. The constructor raises CampaignError for a name that is none, as --state may give it."""

    def __init__(self, name: str, root: Path | None = None) -> None:
        if not _NAME.match(name):
            raise CampaignError(f"--state: {name!r} is no name of a campaign's state; write small letters, digits, - and _, such as mine-2")
        self.name = name
        self.dir = (root or runs_root()) / CAMPAIGNS / name

    def load(self) -> CampaignState:
        """What is known of it; a new one where nothing is. Raises DamagedFile."""
        return read_model(self.dir / STATE, CampaignState, _RESTORE) or CampaignState(campaign=self.name)

    def save(self, state: CampaignState) -> None:
        """Raises OSError, and DamagedFile where the file that is there was changed by hand: a new seal would hide that."""
        self.load()
        self.dir.mkdir(parents=True, exist_ok=True)
        atomic_write(self.dir / STATE, sealed_text(state))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other commands off the campaign inside the block. The system releases it when this process dies. Raises CampaignError."""
        self.dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.dir / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise CampaignError(f"another `sweep campaign` works on {self.name}; wait for it, or end it with Ctrl-C") from None
        try:
            yield
        finally:
            lock.release()
