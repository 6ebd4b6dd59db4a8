"""Section: a race round by round, who is left, and who dropped out when and why."""

from __future__ import annotations

from experiments.config import duration
from tasks.analysis.race import Race
from tasks.report.comparison_table import TextTable
from tasks.report.race_answer import setting_name, why_out
from tasks.report.section import Bullets, ReportSource, Section
from tasks.report.text_format import percent, plural

ABOUT = (
    "Every setting runs in the first rounds. One that fails, breaks a limit or is surely behind drops out, and the others go on. "
    "The chance given is that of dropping the best, or naming a wrong winner, in the whole race."
)


def section(source: ReportSource) -> Section | None:
    """None for a sweep that is no race."""
    race = source.race
    if race is None:
        return None
    dropouts = [dropouts_table(race)] if race.dropouts else []
    return Section("race", "Race", [Bullets(facts(race)), rounds_table(race), *dropouts], ABOUT)


def facts(race: Race) -> list[str]:
    """What was asked, and what it took."""
    settings = race.settings
    limits = ", ".join(limit.text for limit in settings.where)
    asked = f"{settings.direction.capitalize()} {race.metric.label}{f' where {limits}' if limits else ''}"
    lines = [
        f"{asked}, in {duration.text(settings.budget_s)}.",
        f"Chance of a wrong winner, meant: at most {percent(settings.chance)}. Less than {percent(settings.minimum)} apart is level.",
        f"{plural(len(race.trials), 'setting')}, {plural(race.trial_count, 'trial')} in {plural(len(race.rounds), 'round')}.",
    ]
    if settings.parity and race.parity:
        counts = {status: sum(one is status for one in race.parity.values()) for status in dict.fromkeys(race.parity.values())}
        lines.append(f"Loss parity after round {settings.seeds}: {', '.join(f'{count} {status}' for status, count in counts.items())}.")
    elif settings.parity:
        lines.append("Loss parity: nothing was to prove." if not settings.seeds else "Loss parity: not judged yet.")
    return lines


def rounds_table(race: Race) -> TextTable:
    """A row for each whole round."""
    rows = [[str(one.number), str(int(one.before.sum())), str(int((one.before & ~one.after).sum())), _leader(race, one.standing.leader)]
            for one in race.rounds]  # fmt: skip
    return TextTable(["round", "settings", "dropped out", "leader"], rows)


def dropouts_table(race: Race) -> TextTable:
    """A row for each setting that dropped out, the last first."""
    rows = [[setting_name(race, one.racer), str(one.round), why_out(one)] for one in reversed(race.dropouts)]
    return TextTable(["setting", "dropped out after round", "why"], rows)


def _leader(race: Race, racer: int) -> str:
    return setting_name(race, racer) if racer >= 0 else "–"
