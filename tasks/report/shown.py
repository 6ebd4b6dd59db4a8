"""What `sweep show` prints of a sweep, as plain data. Nothing of it depends on the terminal.

It is read without NumPy and Arrow: the listing of a sweep that was put together before need not import them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from experiments.config.strict import Strict

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


UNREADABLE = "unreadable"  # in place of an outcome: a file is damaged


class ShownCell(Strict):
    """One place of the comparison table; without parts where the matrix has no such cell."""

    style: str = ""
    parts: list[tuple[str, str]] = Field(default_factory=list, description="text, and its style on top of the cell's")

    @property
    def plain(self) -> str:
        """For a terminal: `123.4 samples/s ±1.2 %  x1.17 (1.04–1.30) ?`."""
        return "".join(text for text, _ in self.parts)

    def rich(self) -> Text:
        """As `plain`, with colours: green and red only for what is decided and claimed."""
        from rich.text import Text

        text = Text(style=self.style)
        for part, style in self.parts:
            text.append(part, style=style or None)
        return text


class ShownTable(Strict):
    """The comparison table. `rows` pairs the values of the row axes with the cells below `columns`."""

    title: str
    row_axes: list[str]
    columns: list[str]
    rows: list[tuple[list[str], list[ShownCell]]]
    signs: str = Field(description="what the signs beside the speed-ups mean; empty where there are none")

    def rich(self) -> Table:
        """For a terminal. Values are shown as they are: no markup is read from them."""
        from rich.table import Table
        from rich.text import Text

        caption = Text(self.signs, style="dim not italic") if self.signs else None
        table = Table(title=Text(self.title), title_justify="left", caption=caption, caption_justify="left")
        for axis in self.row_axes:
            table.add_column(Text(axis.replace("_", " ")), justify="left", no_wrap=True)
        for name in self.columns:
            table.add_column(Text(name), justify="right")
        for names, cells in self.rows:
            table.add_row(*(Text(name) for name in names), *(cell.rich() for cell in cells))
        return table


class ShownCosts(Strict):
    """The table of costs; without rows where neither prices nor energy are known. `prices`: what the costs are made of."""

    header: list[str]
    rows: list[list[str]]
    prices: list[str]


class ShownComparison(Strict):
    """What a sweep found. `headline`: the report's own words, from the top."""

    table: ShownTable
    costs: ShownCosts
    crashes: list[str] = Field(default_factory=list, description="why cells crashed, where others have a value")
    disturbed: list[str] = Field(
        default_factory=list, description="trials that other work disturbed, what became of them; and those not judged"
    )
    headline: list[str]
    step: str = Field("", description="what would decide more, as the headline ends; empty where nothing would")
    line: str = Field(description="all of it in one sentence, for a chat")
    certificates: list[str] = Field(default_factory=list, description="what is known of the sweep's devices")


class Shown(Strict):
    """A sweep: a line for each trial, by column, what it found, and where the time went that its pools were held."""

    headings: list[str]
    trials: list[list[str]]
    superseded: list[str]
    damaged: list[str] = Field(default_factory=list, description="what is wrong with files of trials, which no figure has then")
    comparison: ShownComparison | None = Field(description="null: there is nothing to compare")
    held: list[str]
    command: str = Field(description="that asked for it, with its overrides")
