"""What a results page lacks of what its campaign planned: kept as data beside the README, which shows it in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from experiments.atomic_file import atomic_write
from experiments.config.strict import Strict
from experiments.json_file import read_model, sealed_text
from tasks.report.text_format import listed

LACKS = "not_measured.json"
YET = " when this page was written"  # behind `not measured`, where no reason is known
README = "README.md"
# What earlier versions said of every sweep that had not run, also of one that nobody had asked for
_ASSUMED = "not measured, there was no time for it"
_HINT = "put the page back as it was written, or write it anew from its sweeps"
_EARLY_HEADING = re.compile(r"\nNot measured(?:, or not as often as planned)?(?:, by what the campaign calls them)?:\n")
_EARLY_LINE = re.compile(r"(?P<called>[^\s:()]+)(?: \((?P<of>[^()]+)\))?: (?P<what>.+)")


class Lack(Strict):
    """A sweep that is not there, or what a sweep that is there lacks."""

    called: str = Field("", description="what the campaign calls the sweep; empty where an early page does not tell")
    sweep_id: str | None = Field(None, description="the sweep on the page that lacks it; null: nothing of it was measured, or not told")
    suite: str | None = Field(None, description="of a sweep of which nothing was measured")
    profile: str | None = Field(None, description="likewise")
    chosen: dict[str, str] = Field(
        default_factory=dict, description="what its campaign sets and chooses beside the profile, by name; likewise"
    )
    what: str = Field(description="what it lacks, without a full stop")

    @property
    def sentence(self) -> str:
        """`small (made_up, profile smoke with width 64 and 256): not measured when this page was written`."""
        profile = " with ".join(filter(None, [self.profile, listed([f"{name} {value}" for name, value in self.chosen.items()])]))
        of = self.sweep_id or (f"{self.suite}, profile {profile}" if self.suite else "")
        return f"{self.called}{f' ({of})' if of else ''}: {self.what}" if self.called else self.what


class _Lacks(Strict):
    schema_version: Literal[1] = 1
    lacks: list[Lack]


def write_lacks(folder: Path, lacks: Sequence[Lack]) -> None:
    """Keep them with the page; no file where there are none. Raises OSError."""
    if lacks:
        atomic_write(folder / LACKS, sealed_text(_Lacks(lacks=list(lacks))) + "\n")


def lacks_of(folder: Path) -> list[Lack]:
    """Those of the page in `folder`, which only its campaign knew. Raises DamagedFile, OSError."""
    kept = read_model(folder / LACKS, _Lacks, _HINT)
    lacks = _early_lacks((folder / README).read_text(encoding="utf-8")) if kept is None else kept.lacks
    return [lack.model_copy(update={"what": lack.what.replace(_ASSUMED, f"not measured{YET}")}) for lack in lacks]


def _early_lacks(text: str) -> list[Lack]:
    """Those of a page of before there was a file of them: only its README tells. None of a page that lacks nothing."""
    parts = _EARLY_HEADING.split(text, maxsplit=1)
    lines = parts[1].partition("\n\n")[0].splitlines() if len(parts) > 1 else []
    return [_early_lack(re.sub(r"\\(.)", r"\1", line.removeprefix("- "))) for line in lines]


def _early_lack(line: str) -> Lack:
    found = _EARLY_LINE.fullmatch(line)
    if found is None:
        return Lack(what=line)
    suite, profiled, profile = (found["of"] or "").rpartition(", profile ")
    if profiled:
        return Lack(called=found["called"], suite=suite, profile=profile, what=found["what"])
    return Lack(called=found["called"], sweep_id=found["of"], what=found["what"])
