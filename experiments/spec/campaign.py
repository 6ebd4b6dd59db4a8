"""What a campaign measures and where its pages go: experiments/campaigns/*.yaml, and campaigns/*.yaml in folders of $SWEEPBENCH_EXTRA."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator

from experiments.config.duration import Duration, seconds
from experiments.config.errors import ConfigError, Problem, choose
from experiments.config.named_files import chosen_file, misnamed, named_files
from experiments.config.paths import REPOSITORY
from experiments.config.strict import Strict
from experiments.config.validate import validate
from experiments.config.yaml_document import Document, load
from experiments.spec.load import profile_names
from experiments.spec.overrides import WITH_OVERRIDES
from experiments.spec.schema import Name
from experiments.spec.vocabulary import BASE
from experiments.trial import Scalar

RESULTS = "docs/results"  # where pages are, from the repository's root: documents and tests look there
DEVICE = "{device}"  # in `to`: the device that the sweep ran on, such as h100
# As published pages call them -> today's: what only a GPU of 141 GB holds has a campaign of its own since
RENAMED = {"h200-x1": ("gpu-x1", "gpu-x1-large"), "h200-x2": ("gpu-x2",), "h200-x4": ("gpu-x4",)}
# What a sweep is asked for with -> the key that says so here
_ASKED_WITH = {"suite": "suite", "--profile": "profile", "--pool": "pools", "--only": "only", "--set": "set"}
_OF_POOLS = ("devices", "limit")  # pools have too few devices, or are so many that each cell on each is too much
_PAGE = re.compile(rf"{RESULTS}/[A-Za-z0-9][A-Za-z0-9._-]*")
_FILE_NAME = re.compile(r".*\.[A-Za-z]+")  # README.md; but not qwen2.5
_HERE = Path(__file__).resolve().parents[1] / "campaigns"


class CampaignRounds(Strict):
    """How often each cell of a sweep is measured: rounds in turns, A B C C B A."""

    least: int = Field(default=2, ge=2, le=1000, description="rounds before the first look at the comparisons")
    most: int = Field(default=3, ge=1, le=1000, description="rounds at the most; 1: each cell once")
    until_decided: bool = Field(default=False, description="cells whose comparison is decided take part in no more rounds")


class CampaignSweep(Strict):
    """A sweep of a campaign: the cells of one suite, and the time they may have."""

    name: Name | None = Field(default=None, description="what it is called in the campaign; null: <suite>-<profile>")
    suite: str = Field(description="a suite's name, or the path of its file")
    profile: str = Field(default="full", description="a profile of the suite; full: the suite without one")
    pools: list[str] = Field(default_factory=list, description="pools to use instead of the suite's")
    only: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = Field(
        default_factory=dict, description="axis -> values: other cells stay out"
    )
    set: dict[str, Any] = Field(default_factory=dict, description="workload parameter -> value")
    rounds: CampaignRounds = Field(default_factory=CampaignRounds)
    budget: Duration | None = Field(default=None, description="time for it in all, such as 3m; null: what is left of the campaign's")
    per_run: Duration | None = Field(default=None, description="time for it in one run of the command, such as 3m; null: what is left")
    to: str = Field(
        description="folder of its results page, docs/results/NAME; {device} in it: the device that it ran on, such as h100; "
        "sweeps with the same one share a page"
    )
    title: str | None = Field(default=None, max_length=200, pattern=r"\S", description="of its table; null: the suite's")

    @field_validator("to")
    @classmethod
    def _without_a_last_slash(cls, to: str) -> str:
        return to.removesuffix("/")  # sweeps of one folder share a page, however it is written

    @property
    def called(self) -> str:
        return self.name or f"{Path(self.suite).stem}-{self.profile}"

    @property
    def budget_s(self) -> float | None:
        return None if self.budget is None else seconds(self.budget)

    @property
    def per_run_s(self) -> float:
        """Infinite where it may have all that is left."""
        return float("inf") if self.per_run is None else seconds(self.per_run)


class CampaignFile(Strict):
    """A campaign: one YAML file. Field names are its keys."""

    campaign: Name = Field(description="the file's name without .yaml")
    description: str = Field(default="", max_length=2000, description="what the sweeps together are to show")
    budget: Duration = Field(description="time for one run of the command, starts and reports included: 9m. Another run goes on")
    sweeps: list[CampaignSweep] = Field(min_length=1, description="what is worth most comes first")
    _given: str = PrivateAttr("")
    _document: Document | None = PrivateAttr(None)

    @property
    def given(self) -> str:
        """What `sweep campaign` was given: a name, or the path of a file that has none."""
        return self._given or self.campaign

    @property
    def budget_s(self) -> float:
        return seconds(self.budget)

    def part(self, names: Sequence[str]) -> CampaignFile:
        """The same campaign with the sweeps of these names alone, in this order. Raises ConfigError for a name that none has."""
        sweeps = {sweep.called: sweep for sweep in self.sweeps}
        if wrong := [name for name in names if name not in sweeps]:
            raise ConfigError.one("--sweep", None, wrong[0], f"is no sweep of campaign {self.campaign}", choose(wrong[0], sweeps))
        return self.model_copy(update={"sweeps": [sweeps[name] for name in dict.fromkeys(names)]})

    def problem_of(self, sweep: CampaignSweep, found: Problem, overridden: Collection[str]) -> Problem:
        """`found` when the sweep was planned, at the line of this file that asks for it; with the sweep's name where no line does.

        `overridden`: parameters, and --pool, that the command line gives.
        """
        key = _of_overrides(sweep, found) if found.file.endswith(WITH_OVERRIDES) and not overridden else _ASKED_WITH.get(found.file)
        if self._document is None or key is None or found.file in overridden or (key == "set" and found.key in overridden):
            return replace(found, key=f"{found.key} (of sweep {sweep.called})".strip())
        position = [CampaignSweep.model_validate(one).called for one in self._document.data["sweeps"]].index(sweep.called)
        if key in ("only", "set"):
            # no one axis is wrong where only the choices together leave no cell
            below = (found.key,) if found.key in getattr(sweep, key) else ()
            problem = found.problem.replace("--set", "`set`")  # beside `only`: the command line's --set takes its place
            return self._document.problem(("sweeps", position, key, *below), problem, found.hint)
        named = "" if key == "pools" else f"{found.key}: "
        return self._document.problem(("sweeps", position, key), f"{named}{found.problem}", found.hint)


def _of_overrides(sweep: CampaignSweep, found: Problem) -> str | None:
    """The key of a sweep that makes its suite's cells wrong, which are right without; None where it says none of them."""
    if found.key in sweep.set:
        return "set"
    first = ("pools",) if found.key in _OF_POOLS else ()
    return next((key for key in (*first, "set", "only") if getattr(sweep, key)), None)


def load_campaign(name_or_path: str) -> CampaignFile:
    """A campaign by name or path, checked without its suites. Raises ConfigError that names the file, the key and the remedy."""
    files = campaigns()  # also for a path: two of one name are an error whenever one is run
    if (now := RENAMED.get(name_or_path)) and name_or_path not in files:
        raise ConfigError.one(
            "campaign", None, name_or_path, "is called otherwise today", " or ".join(f"`sweep campaign {one}`" for one in now)
        )
    path = chosen_file(name_or_path, lambda: files, "campaign", "campaign")
    document = load(path)
    try:
        file = validate(CampaignFile, document)
    except ConfigError as error:
        raise ConfigError([*error.problems, *_unknown_names(document)]) from None
    file._given, file._document = name_or_path, document
    if problems := _problems(file, document, path):
        raise ConfigError([*problems, *_unknown_names(document)])
    return file


def _unknown_names(document: Document) -> list[Problem]:
    """Unknown suites and profiles, of a file that is wrong elsewhere too: of any other they are told once its sweeps are planned."""
    found = []
    sweeps = document.data.get("sweeps") if isinstance(document.data, dict) else None
    for position, sweep in enumerate(sweeps if isinstance(sweeps, list) else []):
        suite, profile = (sweep.get("suite"), sweep.get("profile", BASE)) if isinstance(sweep, dict) else (None, None)
        if not isinstance(suite, str):
            continue
        try:
            profiles = profile_names(suite)
        except ConfigError as error:
            unknown = [one for one in error.problems if one.file == "suite"]  # else the suite's own file is wrong
            found += [document.problem(("sweeps", position, "suite"), f"{one.key}: {one.problem}", one.hint) for one in unknown]
            continue
        if isinstance(profile, str) and profile not in (*profiles, "auto"):
            hint = choose(profile, profiles)
            found.append(document.problem(("sweeps", position, "profile"), f"{profile}: the suite {suite} has no such profile", hint))
    return found


def _problems(file: CampaignFile, document: Document, path: Path) -> list[Problem]:
    """What the schema alone cannot tell."""
    problems = misnamed(document, "campaign", file.campaign, path)
    counts = Counter(sweep.called for sweep in file.sweeps)
    for index, sweep in enumerate(file.sweeps):
        key = ("sweeps", index)
        if counts[sweep.called] > 1:
            problems.append(
                document.problem((*key, "name"), f"{sweep.called} is the name of {counts[sweep.called]} sweeps", "give each a name")
            )
        if sweep.rounds.most < sweep.rounds.least and sweep.rounds.most > 1 and "least" in sweep.rounds.model_fields_set:
            hint = f"write at most {sweep.rounds.most}, or raise `most`"
            problems.append(document.problem((*key, "rounds", "least"), f"is {sweep.rounds.least}, more than `most`", hint))
        if hint := _why_no_page(sweep.to):
            problems.append(document.problem((*key, "to"), f"is {sweep.to!r}", hint))
        if sweep.profile == "auto":
            problems.append(document.problem((*key, "profile"), "is auto, which depends on the machine", "name a profile, or full"))
    return problems


def _why_no_page(to: str) -> str:
    """What would be right instead of this folder of a page; empty where it is right."""
    if any(letter in to.replace(DEVICE, "") for letter in "{}"):
        return f"{DEVICE} alone stands for something"
    if not _PAGE.fullmatch(to.replace(DEVICE, "device")):
        return f"write {RESULTS}/NAME: pages lie there alone, and NAME has letters, digits, -, _, . and {DEVICE}"
    if _FILE_NAME.fullmatch(to) or (REPOSITORY / to).is_file():
        return f"a page is a folder, and that is a file's name: write {RESULTS}/NAME without an ending such as .md"
    return ""


def campaigns() -> dict[str, Path]:
    """Name -> file of every campaign. Raises ConfigError if two have one name."""
    return named_files(_HERE, "campaign")
