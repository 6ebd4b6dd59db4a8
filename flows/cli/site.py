"""The command that writes the site of nights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import app, clean_errors, err, out


def _names() -> list[str]:
    from tasks.nightly.store import night_names

    return night_names()


@app.command(epilog="Examples: sweep site --out site · sweep site --out site --commit-url https://example.org/project/commit/{commit}")
@clean_errors
def site(
    folder: Annotated[Path, typer.Option("--out", help="a new or empty folder, or that of an earlier site", metavar="DIR")],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="only the nights of this definition (repeat for more); else of all", autocompletion=_names),
    ] = None,
    nights: Annotated[int, typer.Option("--nights", min=1, help="show the last so many nights of each definition")] = 365,
    reports: Annotated[
        int,
        typer.Option("--reports", min=0, help="copy the reports of the last so many nights of each definition, sweeps and imports"),
    ] = 30,
    commit_url: Annotated[
        str | None, typer.Option("--commit-url", help="where a commit can be seen, with {commit} in it", metavar="URL")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="open the index in the browser")] = False,
) -> None:
    """Write the nights as static pages: all cells with their state, each cell's history, sweeps and certificates. Needs no server."""
    from tasks.site.write import write_site

    made = write_site(folder, names=name or [], nights=nights, reports=reports, commit_url=commit_url)
    for problem in made.left_out:
        err.print(f"left out: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
    out.print(f"site: {made.index} ({made.files} files)", highlight=False, markup=False, soft_wrap=True)
    if open_:
        typer.launch(made.index.resolve().as_uri())
