"""Section: cost and energy of a million samples."""

from __future__ import annotations

from tasks.report.section import Bullets
from tasks.report.sections.cost import ABOUT, OF_COLUMNS, cost_table, price_lines
from tests.tasks.cell_support import column, gated_rows, made, repeats, report_of, workers
from tests.tasks.price_support import priced

ROWS = [
    *priced(repeats(workers(0), 100.0, summary={"energy_j_per_sample": 3.6})),
    *priced(repeats(workers(1), 150.0, summary={"energy_j_per_sample": 7.2}), units=2),
    *priced(repeats(workers(2), 90.0)),
]


def test_a_row_for_each_cell_with_what_is_known() -> None:
    table = cost_table(made(ROWS))
    assert column(table, "cell") == ["MP-0", "MP-1", "MP-2"]
    assert column(table, "throughput") == ["100.0 samples/s ±2.5 %", "150.0 samples/s ±2.5 %", "90.00 samples/s ±2.5 %"]
    assert column(table, "cost of a million samples") == ["10.00 USD ±2.5 %", "13.33 USD ±2.5 %", "11.11 USD ±2.5 %"]
    assert column(table, "times cheaper") == ["baseline", "x0.750 (0.750–0.750)", "x0.900 (0.900–0.900)"]
    assert column(table, "energy of a million samples") == ["1.000 kWh ±<0.1 %", "2.000 kWh ±<0.1 %", "–"]
    assert column(table, "front") == ["cost, energy", "cost, energy", "–"]


def test_a_cell_on_the_front_whose_loss_parity_is_open_says_so() -> None:
    cells = made(priced(gated_rows(2.0, steps=20)))
    assert column(cost_table(cells), "front") == ["–", "cost (loss parity unproven)"]
    assert column(cost_table(made(priced(gated_rows(2.0)))), "front") == ["–", "cost"], "proven"


def test_one_cell_has_no_front() -> None:
    assert "front" not in cost_table(made(ROWS[:3])).header


def test_each_price_is_said_once() -> None:
    said = "Price, as pools.yaml had it when the trials were planned:"
    assert price_lines(made(ROWS)) == [f"{said} 3.6 USD per node and hour (pool cpu)."]
    more = priced(repeats(workers(0, pool="gpu"), 100.0), 7.2)
    assert price_lines(made([*ROWS, *more]))[1:] == [f"{said} 7.2 USD per node and hour (pool gpu)."]


def test_the_section_is_titled_by_what_is_known() -> None:
    section = report_of(ROWS).section("cost")
    assert section.title == "Cost and energy"
    assert section.block(Bullets).lines[1:] == [
        "Energy is not told of 1 cell (MP-2): a trial of each has none: its device has no counter, or its window was under 10 s."
    ]
    energy = report_of(repeats(workers(0), 100.0, summary={"energy_j_per_sample": 3.6})).section("cost")
    assert energy.title == "Energy" and len(energy.blocks) == 1
    assert report_of(ROWS[6:]).section("cost").title == "Cost"


def test_what_no_column_shows_is_not_explained() -> None:
    """T5's page explained a ratio and a front that its table did not have."""
    energy = report_of(repeats(workers(0), 100.0, summary={"energy_j_per_sample": 3.6})).section("cost")
    whole = report_of(ROWS).section("cost")
    assert energy.text == ABOUT and whole.text == " ".join([ABOUT, *OF_COLUMNS.values()])


def test_without_prices_and_energy_nothing_of_it_shows() -> None:
    assert "cost" not in report_of(repeats(workers(0), 100.0)).section_names
