"""What the terminal says of costs: the report's table with its prices, and nothing where none is known."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from flows.cli.show_cost import print_costs
from tasks.report.sections.cost import cost_table, price_lines
from tests.tasks.cell_support import made, repeats, workers
from tests.tasks.price_support import priced


def shown(cells: list) -> list[str]:  # type: ignore[type-arg]
    page = Console(file=StringIO(), width=160)
    costs = cost_table(cells)
    print_costs(page, costs.header, costs.rows, price_lines(cells))
    return [line.rstrip() for line in page.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_a_line_for_each_cell_and_the_price() -> None:
    lines = shown(made([*priced(repeats(workers(0), 100.0)), *priced(repeats(workers(1), 200.0))]))
    assert [line.split()[0] for line in lines] == ["cell", "MP-0", "MP-1", "Price,"]
    assert "10.00 USD ±2.5 %" in lines[1] and "baseline" in lines[1]
    assert "5.000 USD ±2.5 %" in lines[2] and "x2.00" in lines[2] and lines[2].endswith("cost")
    assert lines[3].endswith("3.6 USD per node and hour (pool cpu).")


def test_nothing_without_a_price_or_energy() -> None:
    assert shown(made(repeats(workers(0), 100.0))) == []
