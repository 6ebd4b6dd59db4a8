"""From the options of `sweep run` and its like to a request, and from a plan to a running sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flows.cli.options import err, out

if TYPE_CHECKING:
    from rich.console import Console

    from cluster.pools.busy import Look
    from tasks.sweep.store import Plan, Request


def request_of(
    suite: str,
    profile: str,
    pool: list[str] | None,
    set_: list[str] | None,
    only: list[str] | None,
    repeats: int | None = None,
    *,
    budget: str | None = None,
    until_decided: bool | None = None,
) -> Request:
    """What the options of a command ask for. Raises ConfigError for one that is not KEY=VALUE, and a budget that is no duration."""
    from experiments.config.duration import option_seconds
    from tasks.sweep.store import Request

    only_values: dict[str, list[Any]] = {}
    for axis, value in _pairs("--only", only):
        only_values.setdefault(axis, []).append(value)
    return Request(
        suite=suite,
        profile=profile,
        pools=pool or [],
        set=once("--set", set_),
        only=only_values,
        repeats=repeats,
        budget_s=None if budget is None else option_seconds("--budget", budget),
        until_decided=until_decided,
    )


def once(option: str, texts: list[str] | None) -> dict[str, Any]:
    """The values by name. Raises ConfigError for a name that is given twice: which of the two was meant?"""
    from experiments.config.errors import ConfigError

    values: dict[str, Any] = {}
    for name, value in _pairs(option, texts):
        if name in values:
            raise ConfigError.one(option, None, name, "is given twice", f"keep one of the two, {name}={values[name]} or {name}={value}")
        values[name] = value
    return values


def _pairs(option: str, texts: list[str] | None) -> list[tuple[str, Any]]:
    from experiments.config.errors import ConfigError
    from experiments.config.yaml_document import is_text, scalar
    from experiments.trial import RUN_AXES

    pairs = []
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not is_text(text):
            raise ConfigError.one(option, None, repr(text), "is not UTF-8 text", "write it in UTF-8")
        if not equals or not name:
            example = "precision=fp32" if option == "--only" else "steps=50"
            raise ConfigError.one(option, None, text, "is not KEY=VALUE", f"write it as {option} {example}")
        pairs.append((name, value if name in RUN_AXES and not isinstance(scalar(value), str) else scalar(value)))  # 1234567 is a commit
    return pairs


def tell(text: str) -> None:
    """Say a line about what takes its time before a sweep starts."""
    err.print(text, highlight=False, markup=False, soft_wrap=True)


def start(plan: Plan, look: Look | None = None, *, page: Console = out) -> int:
    """Check a new plan, say what profile `auto` took, save it and run it; returns the exit status. Raises ConfigError, StoreError,
    and DamagedFile where MLflow's database cannot be read.

    `page`: where its comparison is printed.
    """
    from flows.runtime.command_environment import prepare_environment
    from tasks.sweep.begin_sweep import begin_sweep
    from tasks.sweep.head_start import template_ahead
    from tasks.tracking.client import check_database

    prepare_environment()
    check_database()
    begin_sweep(plan)
    if plan.request.profile == "auto":
        pools_used = ", ".join(dict.fromkeys(trial.pool for trial in plan.trials))
        err.print(f"profile auto: took [bold]{plan.profile}[/], pool {pools_used}", highlight=False)
    with template_ahead(plan):
        from flows.cli.run_sweep import run_sweep

        return run_sweep(plan, page, err, look)
