"""`sweep ab --changed`: what a change can touch, one A/B sweep after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.ab_comment import STDOUT, write_text
from flows.cli.options import err, out
from flows.cli.start_sweep import start, tell

if TYPE_CHECKING:
    from rich.console import Console

    from tasks.sweep.store import Plan, Request
    from tasks.sweep.touched import Change

_WORST = (1, 2, 3, 4)  # exit statuses, the worst first


def run_changed(request: Request, a: str, b: str, suites: Sequence[str], *, every: bool, markdown: str | None) -> int:
    """Measure the cells of these suites, or of all, whose code differs between the commits A and B, and write the comment.

    Returns the exit status: 0 also where nothing can be touched; 4 where no suite that can be touched can be measured here. Raises as
    `change_between` and `plan_ab`.
    """
    from tasks.analysis.ab import UNDECIDED
    from tasks.report.ab_changed import changed_facts, changed_headline
    from tasks.rounds.ab_changed import plan_changed
    from tasks.sweep.touched import change_between

    _check_options(request, suites)
    change, plans = plan_changed(change_between(request, a, b, suites), request, named=bool(suites), every=every, say=tell)
    tell(changed_headline(change))
    for fact in changed_facts(change):
        tell(f"  {fact}")
    statuses = _run(plans, page=err if markdown == STDOUT else out)
    if not plans and any(one.devices for one in change.suites):
        tell(f"exit status {UNDECIDED}: nothing that the change can touch can be measured here")
        statuses.append(UNDECIDED)
    if markdown is not None:
        _comment(markdown, change, plans)
    return next((status for status in _WORST if status in statuses), 0)


def _check_options(request: Request, suites: Sequence[str]) -> None:
    """Raise ConfigError for options that make sense of named suites alone."""
    from experiments.config.errors import ConfigError

    for option, given in (("--only", request.only), ("--set", request.set)):
        if given and not suites:
            raise ConfigError.one(
                option, None, "", "is about one suite, and --changed without --suite takes all", "name the suite: --suite NAME"
            )


def _run(plans: Sequence[Plan], page: Console) -> list[int]:
    """The sweeps' exit statuses, all under one Prefect server. None starts after the user has ended one."""
    from flows.cli.run_sweep import KEEP
    from flows.runtime.interrupts import TOLD_TO_END

    statuses: list[int] = []
    with ExitStack() as stack:
        KEEP.set(stack)
        TOLD_TO_END.clear()
        try:
            statuses += (1 if TOLD_TO_END.is_set() else start(plan, page=page) for plan in plans)
        finally:
            KEEP.set(None)
    return statuses


def _comment(name: str, change: Change, plans: Sequence[Plan]) -> None:
    """Write the comment. A failure changes no exit status."""
    from experiments.config.errors import UserError
    from tasks.report.ab_changed import changed_comment
    from tasks.sweep.store import SweepStore

    folders: list[Path] = [store.dir for plan in plans if (store := SweepStore(plan.sweep_id)).exists()]
    try:
        write_text(name, changed_comment(change, folders))
    except (UserError, OSError) as error:
        tell(f"no comment: {error}; `sweep report SWEEP --markdown FILE` writes that of one sweep again")
