"""The sections of a report, in order. A new section is one file beside this one and one line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasks.report.section import ReportSource, Section
from tasks.report.sections import (
    certificates,
    comparison,
    confounders,
    cost,
    data_loading,
    device_state,
    environment,
    environments,
    evaluation,
    figures,
    held_time,
    literature_table,
    loss_parity,
    loss_spikes,
    nearest_literature,
    notes,
    outcomes,
    parameters,
    profile,
    race,
    ranking,
    replication,
    scaling,
    settings,
    standing,
    step_decomposition,
    sweep_facts,
    trials,
    waterfall,
)

SECTIONS: Sequence[Callable[[ReportSource], Section | None]] = (
    race.section,
    ranking.section,
    comparison.section,
    standing.section,  # a part of the comparison
    data_loading.section,  # a part of the comparison
    cost.section,
    certificates.section,
    settings.section,
    figures.section,
    scaling.section,
    step_decomposition.section,
    waterfall.section,
    profile.section,
    evaluation.section,
    loss_parity.section,
    loss_spikes.section,
    outcomes.section,
    device_state.section,
    environments.section,
    confounders.section,
    literature_table.section,
    nearest_literature.section,
    replication.section,
    held_time.section,
    parameters.section,
    environment.section,
    notes.section,
    trials.section,
    sweep_facts.section,
)
