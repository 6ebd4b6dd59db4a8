"""One profile of a suite file while its sections are checked: what it holds, where that stands, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from experiments.config.errors import KeyPath, Problem, choose
from experiments.config.yaml_document import Document
from experiments.spec.schema import Sections, SuiteFile
from experiments.spec.vocabulary import BAD, BASE, Vocabulary
from experiments.trial import RUN_AXES


@dataclass(frozen=True)
class ProfileContext:
    """The profile `name` of a suite file. The checks of its sections append to `problems`, each with its place in the file."""

    document: Document
    file: SuiteFile
    name: str
    words: Vocabulary
    problems: list[Problem] = field(default_factory=list)

    @property
    def sections(self) -> Sections:
        """What the profile itself gives; the suite's top level for the profile `full`."""
        return self.file if self.name == BASE else self.file.profiles[self.name]

    @property
    def prefix(self) -> KeyPath:
        """Where the profile stands in the file; empty for the profile `full`."""
        return () if self.name == BASE else ("profiles", self.name)

    def gives(self, section: str) -> bool:
        """Whether the profile gives the section itself and does not inherit it. `full` gives all of its own."""
        return not self.prefix or section in self.sections.model_fields_set

    def section(self, name: str) -> Any:
        """The section as the profile gives or inherits it."""
        return getattr(self.sections if self.gives(name) else self.file, name)

    def key(self, section: str, *rest: str | int) -> KeyPath:
        """Where a key of the section stands in the file: in the profile, or in the suite that it inherits from."""
        in_profile = self.gives(section)
        if section == "fixed":  # merged key by key
            in_profile = bool(rest) and rest[0] in self.sections.fixed
        return (*(self.prefix if in_profile else ()), section, *rest)

    def complain(self, key: KeyPath, problem: str, hint: str) -> None:
        """Note a problem at `key`."""
        self.problems.append(self.document.problem(key, problem, hint))

    def knows(self, key: KeyPath, name: str, others: Iterable[str] = RUN_AXES) -> bool:
        """Whether `name` is a parameter of the workload or one of `others`. Complains if not."""
        wrong = self.words.unknown(name, others)
        if wrong:
            self.complain(key, *wrong)
        return not wrong

    def value(self, key: KeyPath, name: str, value: Any) -> Any:
        """The value with the type that the workload gives the parameter `name`. Complains and gives BAD if it takes no such value."""
        clean, wrong = self.words.value(name, value)
        if wrong:
            self.complain(key, *wrong)
            return BAD
        return clean

    def check_free_name(self, key: KeyPath, name: str, value: Any) -> None:
        """Complain about a value that no profile gives the axis `name`, where any text is valid, as of the axis `rung`.

        The workload's schema cannot notice a misspelt name there.
        """
        if name != "commit" and (name in (*RUN_AXES, "device") or not self._any_text(name)):
            return
        levels = (self.file, *self.file.profiles.values())
        lists = [sections.axes.get(name, []) for sections in levels]
        lists += [group.get(name, []) for sections in levels for group in sections.linked]
        lists.append([entry[name] for sections in levels for entry in sections.include if name in entry])
        known = {str(one) for values in lists for one in values}
        if known and str(value) not in known:
            self.complain(key, f"{value!r} is no value of the axis {name} in any profile", choose(str(value), sorted(known)))

    def _any_text(self, name: str) -> bool:
        return self.words.schema.model_fields[name].annotation in (str, str | None)
