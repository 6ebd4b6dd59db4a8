"""The commands that look at sweeps: list them, show one, its logs, its report, compare two, publish."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.trial_layout import REPORT_PAGE
from flows.cli.ab_comment import STDOUT, check_comment, write_comment
from flows.cli.complete import trial_names
from flows.cli.options import JsonOption, SweepId, app, clean_errors, end_if_left_out, err, out, print_json, sweep_id_of, sweep_ids

if TYPE_CHECKING:
    from tasks.imports.model import Imported
    from tasks.sweep.store import SweepStore


@app.command("list", epilog="Examples: sweep list · sweep list --json")
@clean_errors
def list_(as_json: JsonOption = False) -> None:
    """Sweeps on this machine, newest first."""
    from flows.cli import show_sweeps

    rows = show_sweeps.sweep_rows()
    print_json(rows) if as_json else show_sweeps.print_sweeps(out, rows)


@app.command(name="show", epilog="Example: sweep show last")
@clean_errors
def show_(sweep_id: SweepId, as_json: JsonOption = False) -> None:
    """One sweep: its trials, their outcomes and figures. Exit status 1 where files of trials are damaged: no figure has these."""
    from flows.cli import show_sweeps
    from tasks.sweep.store import SweepStore

    store = SweepStore(sweep_id_of(sweep_id))
    if (imported := _imported(store)) is not None:
        _show_imported(store, imported, as_json=as_json)
        return
    if as_json:
        found = show_sweeps.sweep_json(store)
        print_json(found)
        damaged = found["damaged"]
    else:
        damaged = show_sweeps.print_sweep(out, store)
    if damaged:
        raise typer.Exit(1)


def _imported(store: SweepStore) -> Imported | None:
    """What others measured, where that is what lies in this folder. Raises DamagedFile."""
    from cluster.trial_layout import IMPORTED

    if not (store.dir / IMPORTED).exists():
        return None
    from tasks.imports.store import find_imported

    return find_imported(store.sweep_id)


def _show_imported(store: SweepStore, imported: Imported, *, as_json: bool = False) -> None:
    """Print it, and write its pages anew."""
    from flows.cli.show_imported import print_imported
    from tasks.imports.pages import write_pages

    page = write_pages(imported, store.dir)
    print_json(imported.model_dump(mode="json")) if as_json else print_imported(out, imported, page)


@app.command(epilog="Examples: sweep logs 'bf16 MP-1 #2' · sweep logs 4f1c --attempt 1 · sweep logs 'MP-0 #1' --sweep last --follow")
@clean_errors
def logs(
    trial: Annotated[str, typer.Argument(help="the trial's key or its beginning, its name, or words of it", autocompletion=trial_names)],
    sweep: Annotated[str, typer.Option("--sweep", help="its sweep's id, or `last`", autocompletion=sweep_ids)] = "last",
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="only this attempt; else all of them")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the trial has ended")] = False,
) -> None:
    """What a trial's processes printed, attempt by attempt."""
    from flows.cli.logs import print_log
    from tasks.sweep.find_trial import find_trial
    from tasks.sweep.store import SweepStore

    store = SweepStore(sweep_id_of(sweep))
    print_log(store, find_trial(store.load_plan().trials, trial), attempt, follow=follow)


@app.command(epilog="Example: sweep report last --open")
@clean_errors
def report(
    sweep_id: SweepId,
    open_: Annotated[bool, typer.Option("--open", help="open report.html in the browser")] = False,
    emulated: Annotated[bool, typer.Option("--emulated", help="of the trials on an emulated device, by themselves and marked")] = False,
    markdown: Annotated[
        str | None, typer.Option("--markdown", metavar="FILE", help="of `sweep ab`: also the comment for a pull request; - prints it")
    ] = None,
) -> None:
    """Derive results, report and figures again from the raw steps, and print the comparison.

    Trials whose files are damaged are named and left out; the exit status is then 1.
    """
    from flows.cli import show_comparison
    from tasks.analysis.results import renew_steps
    from tasks.report.write import write_report
    from tasks.sweep.store import SweepStore

    store = SweepStore(sweep_id_of(sweep_id))
    if (imported := _imported(store)) is not None:
        _show_imported(store, imported)
        if open_:
            typer.launch((store.dir / REPORT_PAGE).as_uri())
        return
    if markdown is not None:
        check_comment(markdown, store.load_plan())
    paths = write_report(store.dir, emulated=emulated)
    renew_steps(store.dir, store.load_plan())
    page = err if markdown == STDOUT else out
    show_comparison.print_comparison(page, store, emulated=emulated, made=paths.made)
    page.print(f"report: {paths.html}", highlight=False, soft_wrap=True)
    if markdown is not None:
        write_comment(markdown, store)
    if open_:
        typer.launch(paths.html.as_uri())
    end_if_left_out(paths.damage)


@app.command(
    epilog="Examples: sweep publish last --to docs/results/vit-h200 · sweep publish --check docs/results/vit-h200 · "
    "sweep publish --again docs/results/vit-h200",
)
@clean_errors
def publish(
    sweep_ids_: Annotated[
        list[str] | None, typer.Argument(metavar="[SWEEP]...", help="sweeps' ids, or `last`; each whole", autocompletion=sweep_ids)
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="of the page; an earlier page of this command is replaced")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FOLDER", help="tell instead whether this page is as it was written")
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option("--again", metavar="FOLDER", help="write this page's reports, figures and README anew, from its own plans and steps"),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="SWEEP", help="with --again: this sweep leaves the page, since a later one has its place"),
    ] = None,
) -> None:
    """Write a results page from whole sweeps: plans, raw steps, reports, a README, a manifest. Refuses what was edited or put together."""
    from experiments.config.errors import ConfigError
    from tasks.report.manifest import MANIFEST, check_published
    from tasks.report.publish import publish as publish_sweeps
    from tasks.report.republish import republish, sweeps_of
    from tasks.sweep.store import SweepStore

    if sum(option is not None for option in (to, check, again)) != 1 or bool(sweep_ids_) == (to is None):
        hint = "give sweeps and --to FOLDER, or --check FOLDER or --again FOLDER alone"
        raise ConfigError.one("--to, --check, --again", None, "", "one of them is needed: --to with sweeps, the others without", hint)
    if without and again is None:
        raise ConfigError.one("--without", None, "", "says what leaves a page that is written anew", "give it with --again FOLDER")
    if again is not None:
        out.print(f"published anew: {republish(again, without or ())}", highlight=False, soft_wrap=True)
        return
    if to is not None:
        stores = [SweepStore(sweep_id_of(sweep_id)) for sweep_id in sweep_ids_ or []]
        before = sweeps_of(to) if (to / MANIFEST).exists() else []
        out.print(f"published: {publish_sweeps(stores, to)}", highlight=False, soft_wrap=True)
        if gone := [name for name in before if name not in {store.sweep_id for store in stores}]:
            err.print(f"not on the page any more: {', '.join(gone)}", highlight=False, markup=False, soft_wrap=True)
        return
    assert check is not None
    problems = check_published(check)
    for problem in problems:
        err.print(problem, highlight=False, markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    out.print(f"{check} is as it was written", highlight=False, soft_wrap=True)


@app.command(epilog="Example: sweep compare bridgetower-20261101-020000-1a2b last")
@clean_errors
def compare(
    sweep_a: Annotated[str | None, typer.Argument(help="what is compared with: a sweep's id, or `last`", autocompletion=sweep_ids)] = None,
    sweep_b: Annotated[str | None, typer.Argument(help="what is compared, likewise", autocompletion=sweep_ids)] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two sweeps cell by cell: how much faster or slower B is, and how sure.

    Trials whose files are damaged are named and left out; the exit status is then 1. So it is where the two have no cell in common.
    """
    from flows.cli import show_two_sweeps
    from tasks.report.compare_sweeps import compare as compare_sweeps
    from tasks.sweep.store import SweepStore

    if sweep_a is None or sweep_b is None:
        raise show_two_sweeps.too_few(sweep_a)
    a, b = (SweepStore(sweep_id_of(name)) for name in (sweep_a, sweep_b))
    comparison = compare_sweeps(a.dir, b.dir)
    if as_json:
        print_json(show_two_sweeps.comparison_json(comparison))
    else:
        show_two_sweeps.print_two_sweeps(out, comparison, b)
    end_if_left_out(comparison.damage)
    if not comparison.pairs:
        raise typer.Exit(1)
