"""Section: the parameters that all trials share, and the settings that a page names."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.report.sections.parameters import parameters_table, settings_text
from tests.tasks.cell_support import made, report_of, row, workers

TRAINED = {"precision": "fp16", "batch_size": 64, "learning_rate": 5e-5, "compile": "none", "autocast": True, "spikes_after": None}


def rows_of(*parameters: dict[str, Any], **more: Any) -> list[Any]:
    """A trial of another number of workers for each."""
    return [row(workers(count), parameters={**TRAINED, **one}, **more) for count, one in enumerate(parameters)]


def test_the_table_has_what_all_trials_share_and_nothing_else() -> None:
    rows = [*rows_of({"seed": 0}, {"seed": 0, "of_one": 1}), row(workers(0), repeat=2, parameters={**TRAINED, "seed": 1})]
    table = report_of(rows).section("parameters").table
    assert (table.header, table.rows) == (
        ["parameter", "value"],
        [
            ["precision", "fp16"],
            ["batch_size", "64"],
            ["learning_rate", "5e-05"],
            ["compile", "none"],
            ["autocast", "true"],
            ["spikes_after", "not set"],
        ],
    ), "neither the axis nor the seed"
    assert "parameters" not in report_of([row({"pool": "a"}), row({"pool": "b"})]).section_names


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ([{}, {}], "precision fp16, batch_size 64, learning_rate 5e-05, compile none"),
        (
            [{"precision": "fp8", "batch_size": 128}, {"batch_size": "max"}, {"batch_size": 64, "compile": "layer"}],
            "precision fp8 and fp16, batch_size 64, 128 and max, learning_rate 5e-05, compile none and layer",
        ),
        ([{}, {"autocast": False}], "precision fp16, autocast true and false, batch_size 64, learning_rate 5e-05, compile none"),
    ],
)
def test_a_page_names_first_settings_with_all_their_values(parameters: list[dict[str, Any]], said: str) -> None:
    assert settings_text(made(rows_of(*parameters))) == said


@pytest.mark.parametrize("time", ["service_time_p50_s", "latency_p50_s"])
def test_what_trains_nothing_has_no_learning_rate(time: str) -> None:
    cells = made(rows_of({}, {}, summary={time: 0.1}))
    assert settings_text(cells) == "precision fp16, batch_size 64, compile none"
    assert [name for name, _ in parameters_table(cells).rows] == ["precision", "batch_size", "compile", "autocast"]


def test_cells_without_parameters_have_no_settings() -> None:
    assert settings_text(made([row({"pool": "a"})])) == settings_text([]) == ""
