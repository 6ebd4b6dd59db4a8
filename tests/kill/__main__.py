"""`make test-kill`: kill -9 of a sweep's processes at random moments, round after round, and what must hold after `sweep resume`.

Each round appends a line of JSON to rounds.jsonl in the folder of results; a run goes on where that file ends. Exit status 1: something
did not hold.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.git_state import git_state
from tests import database_support
from tests.kill import page, victims
from tests.kill.rounds import Draw, Round, RoundRun, draw
from tests.kill.servers import stack
from tests.stack_support import Stack

_REMOVED = ("PREFECT_", "MLFLOW_", "RAY_", "SWEEPBENCH_")  # the user's own settings


def main(
    rounds: Annotated[int, typer.Option(min=1, help="how many kills")] = 100,
    seed: Annotated[int, typer.Option(help="of targets and moments")] = 0,
    servers: Annotated[bool, typer.Option(help="with the servers of `make up`, started for this")] = False,
    out: Annotated[Path, typer.Option(help="folder of rounds.jsonl and README.md")] = Path("build/test-kill"),
) -> None:
    """Kill, resume, check; then say how many rounds held."""
    for name in [name for name in os.environ if name.startswith(_REMOVED)]:
        del os.environ[name]
    out.mkdir(parents=True, exist_ok=True)
    record = out / "rounds.jsonl"
    common = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": _commit(), "machine": _machine()}
    work = Path(tempfile.mkdtemp(prefix="sb-kill-"))
    typer.echo(f"seed {seed}; runs of rounds that did not hold stay in {work}")
    held = fired = number = 0
    with ExitStack() as ends:
        made = ends.enter_context(stack(_folder(work, "stack"))) if servers else None
        bench = Bench(work, made)
        windows = bench.undisturbed()
        typer.echo("there, in an undisturbed sweep: " + ", ".join(f"{name} {a:.1f} to {b:.1f} s" for name, (a, b) in windows.items()))
        while fired < rounds:
            done = bench.round(draw(number, seed, windows, new_allowed=made is None))
            number += 1
            typer.echo(_line(done))
            if not done.fired and not done.violations:
                scale = done.seconds / windows["flow"][1]  # nobody disturbed it, and the machine does less, or more, than before
                windows = {name: (begin * scale, end * scale) for name, (begin, end) in windows.items()}
                continue
            fired += 1
            held += not done.violations
            with open(record, "a") as file:
                file.write(json.dumps({**common, **done.line()}) + "\n")
    page.write(out, record)
    typer.echo(f"{held} of {fired} rounds held; {out / 'README.md'}")
    raise typer.Exit(0 if held == fired else 1)


class Bench:
    """Where rounds run: a new folder for each, or the stack's."""

    def __init__(self, work: Path, made: Stack | None) -> None:
        self._work, self._stack = work, made
        self._targets = victims.WITH_SERVERS if made else victims.EMBEDDED
        if made is None:
            os.environ["SWEEPBENCH_RUNS"] = str(work)
            self._databases = [database_support.make(work, name) for name in (database_support.MLFLOW, database_support.PREFECT)]

    def undisturbed(self) -> dict[str, tuple[float, float]]:
        nothing = Draw(-1, 0, "nothing", (0.0, 0.0), new=False, whole=False, pause_s=0.0)
        return RoundRun(nothing, self._new("undisturbed", new=False), self._stack).undisturbed(self._targets)

    def round(self, drawn: Draw) -> Round:
        folder = self._new(f"round-{drawn.number}", new=drawn.new)
        done = RoundRun(drawn, folder, self._stack).run()
        if not done.violations:
            shutil.rmtree(folder, ignore_errors=True)
        return done

    def _new(self, name: str, *, new: bool) -> Path:
        folder = _folder(self._work, name)
        if self._stack is None and not new:
            with database_support.runs_in(folder / "runs"):
                for made in self._databases:
                    database_support.copy_to_runs(made)
        return folder


def _folder(work: Path, name: str) -> Path:
    (work / name).mkdir()
    return work / name


def _line(done: Round) -> str:
    when = f"at {done.moment_s:.2f} s" if done.fired else "did not happen"
    what = "held" if not done.violations else "; ".join(done.violations)
    how = f"statuses {done.first_status} and {done.resume_status}, {done.seconds:.0f} s"
    return f"round {done.number}: kill of {done.target}{' (new databases)' if done.new else ''} {when}, {how}: {what}"


def _commit() -> str:
    state: Any = git_state()
    return str(state.get("commit") or "unknown")[:12] + ("+changes" if state.get("dirty") else "")


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, Python {platform.python_version()}"


if __name__ == "__main__":
    typer.run(main)
