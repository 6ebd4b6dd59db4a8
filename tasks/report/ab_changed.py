"""What a change between two commits can touch, in words: for the terminal, and as a comment on a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.report.ab_summary import pull_request_comment
from tasks.report.markdown import md
from tasks.report.text_format import listed, plural
from tasks.sweep.ab_sides import short
from tasks.sweep.touched import Change

_SHOWN = 3  # names of files in a line


def changed_headline(change: Change) -> str:
    """`of 17 suites, 2 run other code in B (HEAD, 4f1c...) than in A (main, 09ab...)`."""
    sides = f"in B ({_side(change.b, change.commits[1])}) than in A ({_side(change.a, change.commits[0])})"
    touched = sum(bool(one.devices) for one in change.suites)
    if not touched:
        return f"no trial of {_suites(change)} runs other code {sides}: nothing is measured"
    if len(change.suites) == 1:
        return f"{_suites(change)} runs other code {sides}"
    return f"of {_suites(change)}, {touched} {'run' if touched > 1 else 'runs'} other code {sides}"


def changed_facts(change: Change) -> list[str]:
    """Which suites by which files, what is left out and why, and what differs besides."""
    facts = [f"{one.suite}: by {listed(list(one.files), _SHOWN)}" for one in change.measured]
    facts += [f"{one.suite} is not measured: {one.left_out}" for one in change.left_out]
    if change.installed:
        facts.append(f"{listed(change.installed, _SHOWN)}: both sides ran with the libraries that are installed here")
    if change.asked:
        facts.append(f"{listed(change.asked, _SHOWN)}: both sides run suites as they lie here")
    in_trials = {path for one in change.suites for path in one.files}
    rest = [path for path in change.paths if path not in {*in_trials, *change.installed, *change.asked}]
    if rest:
        runner = "no trial of the other suites" if any(not one.devices for one in change.left_out) else "no trial"
        facts.append(f"{plural(len(rest), 'other file')} that {runner} runs: {listed(rest, _SHOWN)}")
    return facts


def changed_comment(change: Change, folders: Sequence[Path]) -> str:
    """The comment, in Markdown: what the change can touch, and what each sweep in `folders` found. Raises ResultsError."""
    head = [f"**{md(_capital(changed_headline(change)))}**", "", *(f"- {md(line)}" for line in changed_facts(change))]
    return "\n".join(["\n".join(head).rstrip() + "\n", *(f"---\n\n{pull_request_comment(folder)}" for folder in folders)])


def _suites(change: Change) -> str:
    return plural(len(change.suites), "suite") if len(change.suites) != 1 else f"suite {change.suites[0].suite}"


def _side(name: str, commit: str | None) -> str:
    return f"{name}, {commit[:12]}" if commit and not commit.startswith(name) else short(name)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
