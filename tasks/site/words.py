"""What the site's pages say in the same way: commits, environments, changes of a level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from experiments.config.errors import ConfigError
from tasks.nightly.store import NightCode
from tasks.report.text_format import signed

COMMIT = "{commit}"  # its place in an address
_SHOWN = 10  # digits of a commit
_MAIN_FACTS = ("device_name", "cpu", "torch", "driver", "image", "python", "host")  # of an environment, in a line
_MOST_CHANGES = 4
_MOST_CHARACTERS = 40  # of a fact's value


@dataclass(frozen=True)
class Commits:
    """How commits are shown. `address`: where a commit can be seen, with {commit} in it; None: nowhere."""

    address: str | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError for an address that is none, or has no place for the commit."""
        if self.address is None:
            return
        if not self.address.startswith(("https://", "http://")) or COMMIT not in self.address:
            hint = "write it as https://example.org/project/commit/{commit}"
            raise ConfigError.one("--commit-url", None, self.address, "is no address of a commit", hint)

    def link(self, commit: str | None) -> Markup:
        """The commit's first digits, as a link where there is an address."""
        if not commit:
            return Markup("unknown")
        text = Markup("<code>{}</code>").format(commit[:_SHOWN])
        return Markup('<a href="{}">{}</a>').format(self.address.replace(COMMIT, commit), text) if self.address else text

    def between(self, commits: tuple[str, str] | None) -> Markup:
        """`abc..def`: after the first, up to and with the second. Says so where both are one, or unknown."""
        if commits is None:
            return Markup("unknown")
        good, bad = commits
        if good == bad:
            return Markup("{}, as the night before").format(self.link(bad))
        return Markup("{}..{}").format(self.link(good), self.link(bad))

    def of(self, code: NightCode) -> Markup:
        """A night's commit, and whether the code differed from it."""
        return self.link(code.commit) + (escape(" with uncommitted changes") if code.dirty else "")


def environment_line(facts: Mapping[str, str]) -> str:
    """`Xeon · torch 2.13.0 · python 3.11.7 · node-1`: the main facts; nothing of an environment that nobody recorded."""
    names = [name for name in _MAIN_FACTS if name in facts and not (name == "cpu" and "device_name" in facts)]
    plain = ("device_name", "cpu", "host")
    return " · ".join(_cut(facts[name]) if name in plain else f"{name} {_cut(facts[name])}" for name in names)


def environment_change(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """`torch 2.12.0 → 2.13.0; driver ...`: which facts differ; nothing where one of both is unknown.

    Not the host: on a pool of several nodes nights land now on one and now on another.
    """
    if not before or not after:
        return ""
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name) and name != "host"]
    texts = [f"{name.replace('_', ' ')} {_cut(before.get(name, 'none'))} → {_cut(after.get(name, 'none'))}" for name in changed]
    more = f"; {len(texts) - _MOST_CHANGES} more" if len(texts) > _MOST_CHANGES else ""
    return "; ".join(texts[:_MOST_CHANGES]) + more


def percent_change(middle: float, low: float, high: float) -> str:
    """+5.3 % (+3.9 to +6.8): three shares, such as 0.053."""
    return signed(*(round(100 * share, 1) + 0.0 for share in (middle, low, high)))  # + 0.0: no -0.0


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
