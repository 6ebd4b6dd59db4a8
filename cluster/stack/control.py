"""Start and stop the stack, and report its status. Each may be called at any time and repeatedly."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from cluster.lease import server_at
from cluster.stack import deployments, ports, postgresql, process, sweeps
from cluster.stack.components import Component, components
from cluster.stack.empty_database import MLFLOW
from cluster.stack.errors import StackError
from cluster.stack.settings import DATABASES, PORTS, POSTGRESQL, Settings, load, stack_environment
from experiments.config.paths import REPOSITORY

Say = Callable[[str], None]

# The user's Prefect and Ray settings, which would point the stack's components at other servers
_NOT_INHERITED = ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "PREFECT_API_KEY", "PREFECT_API_AUTH_STRING", "PREFECT_PROFILE", process.MARK)


def up(root: Path = REPOSITORY, say: Say = print) -> list[dict[str, Any]]:
    """Start the components that do not run, restart dead ones, register the deployments and return `status`.

    Raises StackError and KeyboardInterrupt, after stopping what this call started, and DamagedFile. `say` prints a line for the user.
    """
    settings = load(root)
    with _locked(settings):
        parts = components(settings)
        _prepare(settings, say)
        environment = _environment(settings)
        started: list[Component] = []
        try:
            to_start = [part for part in parts if not _reuse(settings, part, say)]
            _check_ports(to_start)
            ready: set[str] = set()
            for part in parts:  # all that need nothing more start concurrently
                if part.name == "worker":
                    deployments.create_pool(settings)
                    deployments.end_pause(settings)
                    sweeps.settle_flow_runs(settings, say, worker_died=part in to_start)
                for one in [one for one in to_start if one not in started and ready.issuperset(one.needs)]:
                    started.append(one)
                    _start(settings, one, environment, say)
                _wait(settings, part, say)
                ready.add(part.name)
            say("deployments ...")
            names = deployments.register(settings, environment)
            for part in reversed(_everything(settings)):  # PostgreSQL, where SQLite was chosen instead
                if part.name not in ready and _stop(settings, part, say):
                    say(f"{part.title}: stopped; nothing uses it now")
            _after(settings, names, say)
        except BaseException:
            _stop_again(settings, started, say)
            raise
    return status(root)


def _stop_again(settings: Settings, started: list[Component], say: Say) -> None:
    """End what a failed `up` had started. What does not end keeps its record, by which `down` finds it."""
    stopped = []
    for part in reversed(started):
        try:
            _stop(settings, part, say, grace_s=5.0)
            stopped.append(part.name)
        except StackError as error:
            say(f"{part.title}: {error}; `make down` tries again")
    if stopped:
        say(f"stopped again what this call had started: {', '.join(reversed(stopped))}")


def down(root: Path = REPOSITORY, say: Say = print) -> list[str]:
    """Stop exactly what `up` started. Returns the names of the components that ran. Raises StackError if one does not end.

    Sweeps that deployments run end with the worker, in order; `say` names them first. So does it those that go on without the servers.
    """
    settings = load(root)
    if not settings.state.is_dir():
        say("the stack is not running")
        return []
    stopped, stubborn = [], []
    with _locked(settings):
        _name_users(settings, say)
        for part in reversed(_everything(settings)):
            record = process.read_record(settings.state, part.name)
            if record is None:
                continue
            was_alive = process.alive(record)
            try:
                if _stop(settings, part, say):
                    stopped.append(part.name)
            except StackError as error:
                stubborn.append(str(error))
                continue
            say(f"{part.title}: {'stopped' if was_alive else 'had died before'}")
        deployments.remove_prefect_toml(settings)
    if stubborn:
        raise StackError("; ".join(stubborn))
    if not stopped:
        say("the stack is not running")
    return stopped


def _name_users(settings: Settings, say: Say) -> None:
    """Say which sweeps that others started use the servers that run."""
    servers, worker = set(), list[psutil.Process]()
    for part in _everything(settings):
        record = process.read_record(settings.state, part.name)
        if record is None or not process.alive(record):
            continue
        if part.name == "worker":
            worker = process.members(record)
        if server := server_at(_as_recorded(settings, record, part).url or ""):
            servers.add(server)
    sweeps.name_users(settings, servers, worker, say)


def status(root: Path = REPOSITORY) -> list[dict[str, Any]]:
    """One row per component: name, title, state (running, not answering, dead or not started), pid, url and log."""
    settings = load(root)
    rows = []
    chosen = {part.name for part in components(settings)}
    for part in _everything(settings):
        record = process.read_record(settings.state, part.name)
        if record is None and part.name not in chosen:
            continue
        if record is None:
            state = "not started"
        elif not process.alive(record):
            state = "dead"
        else:
            state = "running" if _answers(_as_recorded(settings, record, part), record) else "not answering"
        rows.append(
            {
                "name": part.name,
                "title": part.title,
                "state": state,
                "pid": record.pid if record else None,
                "url": _as_recorded(settings, record, part).url if record else None,
                "log": str(settings.state / f"{part.name}.log") if record else None,
            }
        )
    return rows


def _as_recorded(settings: Settings, record: process.Record, part: Component) -> Component:
    """The component with the ports it was started with, which the current environment may not have."""
    recorded = replace(settings, ports={**settings.ports, **record.ports})
    return next(other for other in _everything(recorded) if other.name == part.name)


def _everything(settings: Settings) -> list[Component]:
    """Also what the current environment does not choose and an earlier `up` may have started."""
    return components(replace(settings, database=POSTGRESQL))


def _stop(settings: Settings, part: Component, say: Say, grace_s: float | None = None) -> bool:
    """End a component and forget its record; True if any process of it ran. Sweeps that the worker runs end first, in order.

    Raises StackError, and keeps the record, if a process goes on.
    """
    record = process.read_record(settings.state, part.name)
    if record is None:
        return False
    was_alive = process.alive(record)
    with contextlib.ExitStack() as until_it_ended:
        if part.name == "worker":
            until_it_ended.enter_context(deployments.pool_paused(settings))
            sweeps.end_sweeps(settings, process.members(record), say)
        ran = process.stop(record, part.stop_grace_s if grace_s is None else grace_s, part.stop_signal)
    process.forget(settings.state, part.name)
    if part.folder and was_alive:  # keep the logs of a Ray head that died
        shutil.rmtree(part.folder, ignore_errors=True)
    return ran


@contextlib.contextmanager
def _locked(settings: Settings) -> Iterator[None]:
    settings.state.mkdir(parents=True, exist_ok=True)
    settings.state.chmod(0o700)
    try:
        with FileLock(settings.state / "lock", timeout=0):
            yield
    except Timeout:
        raise StackError(f"another `up` or `down` is at work on {settings.runs}; wait for it") from None


def _environment(settings: Settings) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    commands = (
        f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}"  # so that `python` in a Ray job is this Python
    )
    return {**inherited, **stack_environment(settings), "PATH": commands, "PYTHONUNBUFFERED": "1"}


def _prepare(settings: Settings, say: Say) -> None:
    """Make the folders, the Ray token, and MLflow's empty database or, where it is to be used, PostgreSQL's files.

    The token's file is readable by its owner alone before anything is written to it. Raises StackError, DamagedFile.
    """
    for folder in (settings.runs / ".prefect", settings.artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(os.open(settings.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    settings.token.chmod(0o600)
    if len(settings.token.read_text().strip()) < 32:
        raise StackError(f"{settings.token} holds no token; remove it (after `make down`) and start again")
    if settings.database == POSTGRESQL:
        if find_spec("psycopg2") is None:
            raise StackError("MLflow needs psycopg2 for PostgreSQL, and it is not installed here: make setup; or DATABASE=sqlite")
        if postgresql.prepare(settings):
            say(f"PostgreSQL: new databases {' and '.join(DATABASES)} in {settings.postgresql_data}")
    else:
        MLFLOW.check(settings.runs / "mlflow.db")
        MLFLOW.give(settings.runs / "mlflow.db")


def _make_folder(part: Component) -> None:
    """Make the component's own folder anew, empty; only its user may enter. Raises StackError if another user owns it."""
    path = part.folder
    if path is None:
        return
    owner = pwd.getpwnam(part.user).pw_uid if part.user else os.getuid()
    if path.exists() or path.is_symlink():
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid not in (owner, os.getuid()):
            raise StackError(f"{path} is not a folder of ours; remove it, {part.title} needs it")
        shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700, exist_ok=True)
    if part.user:
        os.chown(path, owner, -1)


def _reuse(settings: Settings, part: Component, say: Say) -> bool:
    """True if the component runs properly. Otherwise stop what is left of it and return False."""
    record = process.read_record(settings.state, part.name)
    if record is None:
        return False
    if not process.alive(record):
        say(f"{part.title}: pid {record.pid} no longer runs: it died or the machine was restarted; starting it again")
    elif record.command != part.command:
        say(f"{part.title}: settings changed; restarting it")
    elif not _answers_soon(part, record):
        say(f"{part.title}: pid {record.pid} runs and does not answer; restarting it")
    else:
        say(f"{part.title}: already running (pid {record.pid})")
        return True
    _stop(settings, part, say)
    return False


def _answers(part: Component, record: process.Record) -> bool:
    try:
        return part.answers(record.started)
    except PermissionError:
        return False


def _answers_soon(part: Component, record: process.Record, patience_s: float = 5.0) -> bool:
    """Whether the component answers within `patience_s` seconds.

    For the worker a running process is enough: it sends a heartbeat every 30 s only, and its server may be restarting.
    """
    deadline = time.monotonic() + patience_s
    while not part.slow_pulse and not _answers(part, record):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _check_ports(parts: list[Component]) -> None:
    conflicts = [
        f"port {port} ({part.title}) is in use by {ports.holder(port)}: stop that, or choose another with {PORTS[name][0]}=..."
        for part in parts
        for name, port in part.ports.items()
        if ports.in_use(port)
    ]
    if conflicts:
        raise StackError("\n".join(conflicts))


def _start(settings: Settings, part: Component, environment: dict[str, str], say: Say) -> process.Record:
    _make_folder(part)
    log = settings.state / f"{part.name}.log"
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    say(f"{part.title} ...")
    inherited, directory = ({"PATH": os.defpath}, Path("/")) if part.user else (environment, settings.root)
    return process.start(settings.state, part.name, part.command, {**inherited, **part.environment}, directory, part.ports)


def _wait(settings: Settings, part: Component, say: Say) -> None:
    """Wait until the component answers. Raises StackError with the end of its log if it dies or takes too long."""
    record = process.read_record(settings.state, part.name)
    if record is None:
        raise StackError(f"{part.title}: its record in {settings.state} is gone")
    began = time.monotonic()
    while True:
        try:
            if part.answers(record.started):
                break
        except PermissionError as error:
            raise StackError(f"{part.title}: {error}") from None
        if not process.alive(record):
            raise StackError(f"{part.title} died while starting; {_log_tail(settings, part)}")
        if time.monotonic() - began > part.start_timeout_s:
            raise StackError(f"{part.title} did not answer within {part.start_timeout_s:.0f} s; {_log_tail(settings, part)}")
        time.sleep(0.2)
    say(f"{part.title}: {part.url or 'running'}")


def _log_tail(settings: Settings, part: Component, lines: int = 15) -> str:
    log = settings.state / f"{part.name}.log"
    tail = log.read_text(errors="replace").splitlines()[-lines:] if log.exists() else []
    return f"the end of {log}:\n" + "\n".join(f"  {line}" for line in tail)


def _after(settings: Settings, names: list[str], say: Say) -> None:
    for name in names:
        say(f"deployment {name}")
    if not deployments.write_prefect_toml(settings):
        say(f"{settings.root / 'prefect.toml'} is yours and stays; for the prefect command: PREFECT_API_URL={settings.prefect_url}/api")
    say(f"the Ray dashboard asks for its token: cat {os.path.relpath(settings.token)}")
    if names:
        example = next((name for name in names if name == "sweep/bridgetower"), names[0])
        say(f"run one, with .venv activated: prefect deployment run {example} --watch")
