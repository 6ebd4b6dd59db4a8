"""What every test gets: folders of its own, no telemetry, no servers of the user's; and what no test may leave: processes, variables."""

from __future__ import annotations

import gc
import itertools
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO

import psutil
import pytest

from cluster import process_marks
from cluster.launchers import processes
from cluster.process_variables import variables
from tests import database_support, shared_support
from tests.clusters_support import clusters, started_clusters
from tests.figure_support import figures_are_drawn_once
from tests.process_support import command_of

__all__ = ["clusters", "figures_are_drawn_once", "started_clusters"]  # fixtures; two are what integration and faults share

MARK = "SWEEPBENCH_TEST"  # every process started by a test inherits it

_SET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # two cores may be busy
    "MPLBACKEND": "agg",
    "OMP_NUM_THREADS": "1",  # of each process: pytest-xdist's and those that tests start share the cores
    "OMP_WAIT_POLICY": "passive",  # a session on the CPU takes all cores: its threads would wait for each other spinning, on cores in use
}
_PREFIXES_REMOVED = ("PREFECT_", "MLFLOW_", "RAY_", "SWEEPBENCH_")
_KEPT = ("SWEEPBENCH_GAUDI",)
# What a terminal, a CI or a git hook may have set: how wide and coloured output is, and which repository git takes for that of any folder
_OF_TERMINALS = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TERM", "COLORTERM")  # a `dumb` one shows no colours
_REMOVED = (*_OF_TERMINALS, "GITHUB_ACTIONS", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
# Some containers ask for no bytecode: each of some hundred processes would compile the code again, and pytest rewrite its tests
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"

# Variables that libraries set for good when they are first imported or used; anything else is the test's own leak
_LIBRARIES_SET = (
    "PYTEST_",
    "KMP_",
    "RAY_",
    "CUDA_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "PREFECT__",
    "TOKENIZERS_PARALLELISM",
    "MLFLOW_",
    "LC_CTYPE",
)
_FAULTS = Path(__file__).parent / "faults"
# Helpers of the interpreter that live as long as it does
_INTERPRETER_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported: Prefect reads its settings once, at import."""
    if hasattr(config, "sweepbench_environment"):
        return
    config.sweepbench_environment = dict(os.environ)  # type: ignore[attr-defined]
    folder = Path(tempfile.mkdtemp(prefix="sweepbench-tests-"))
    config.sweepbench_folder = folder  # type: ignore[attr-defined]
    for name in list(os.environ):
        if name in _REMOVED or (name.startswith(_PREFIXES_REMOVED) and name not in _KEPT):
            del os.environ[name]
    os.environ.pop(_NO_BYTECODE, None)
    sys.dont_write_bytecode = False
    home = folder / "home"
    home.mkdir()
    cache = config.rootpath / ".pytest_cache" / "matplotlib"  # its font list takes seconds to make
    cache.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        _SET
        | {"HOME": str(home), "PREFECT_HOME": str(folder / "prefect"), "SWEEPBENCH_RUNS": str(folder / "runs"), "MPLCONFIGDIR": str(cache)}
    )
    os.environ[MARK] = secrets.token_hex(8)
    os.register_at_fork(after_in_child=_without_prefects_end)
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist would begin with the files that have the most tests, not the longest
        config.option.loadscopereorder = False


def _without_prefects_end() -> None:
    """A process that was forked from this one does nothing for Prefect when it ends. Once a flow has run here, it would: Prefect (3.8)
    resets its services in such a process and then fails to end them, so that torch finds each DataLoader process ended with status 1.
    """
    calls = threading._threading_atexits  # type: ignore[attr-defined]  # of the standard library, which has no other way to take one back
    calls[:] = [call for call in calls if not str(getattr(getattr(call, "func", call), "__module__", "")).startswith("prefect.")]


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their parameter: those that are compressed hold the time, and each process would name its tests by another."""
    return argname if isinstance(val, bytes) else None


# Fixtures of a whole session that take long to make: the tests of each stay in one process
_SHARED = ("started_stack", "clusters", "nodes", "trial_template")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What may run beside what (pytest-xdist): tests of one stack stay together, fast tests stay with their file's fixtures."""
    alone = item.nodeid if _is_slow(item) else str(item.path)
    shared = _shared_by(item)
    item.add_marker(pytest.mark.xdist_group(shared[0] if shared else alone))


def _shared_by(item: pytest.Item | None) -> list[str]:
    return [name for name in _SHARED if name in getattr(item, "fixturenames", ())]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports make no garbage, and what they made is no test's: each later collection would go through it, for a second where all is."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Who shares what (a group of pytest-xdist's is not divided)."""
    shared_support.expect(name for item in session.items for name in _shared_by(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """After the test's own fixtures."""
    try:
        yield
    finally:
        for name in _shared_by(item):
            shared_support.used(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Nothing that this process writes needs to outlive a power cut. What a test breaks does; what it starts waits for the disk as ever."""
    if _FAULTS in item.path.parents:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _without_waiting)
        return (yield)


def _without_waiting(file: int | IO[bytes]) -> None:
    """As os.fsync, of a file that is not open an error too."""
    os.fstat(file if isinstance(file, int) else file.fileno())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Beside each other (pytest-xdist), what takes longest begins: the run's end is then short tests, which all processes share."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = sorted((item for item in items if _shared_by(item)), key=_begins)
        slow = sorted((item for item in items if _is_slow(item) and not _shared_by(item)), key=_begins)
        fast = sorted((item for item in items if not _is_slow(item) and not _shared_by(item)), key=_is_of_a_part)
        items[:] = [*shared, *_in_turns(slow, [list(tests) for _, tests in itertools.groupby(fast, key=lambda item: item.path)])]


def _in_turns(slow: list[pytest.Item], files: list[list[pytest.Item]]) -> Iterator[pytest.Item]:
    """Slow tests spread over the first three quarters of the files of fast ones. Slow ones wait for servers much of their time: beside each
    other they leave cores idle, and fast ones, which compute, would afterwards share too few.
    """
    between = len(files) * 3 // (4 * max(1, len(slow)))
    for number, test in enumerate(slow):
        yield test
        yield from itertools.chain(*files[number * between : (number + 1) * between])
    yield from itertools.chain(*files[len(slow) * between :])


def _is_slow(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("integration", "fault"))


def _is_of_a_part(item: pytest.Item) -> bool:
    """False for files of the whole repository, which lie above the others. They take longest: test_docs.py alone a minute and more."""
    return item.path.parent != Path(__file__).parent


def _begins(item: pytest.Item) -> tuple[int, float]:
    """By the shared fixture, and of one what injects faults last; what starts servers of its own by the time that it may take."""
    if shared := _shared_by(item):
        return _SHARED.index(shared[0]), float(item.get_closest_marker("fault") is not None)  # what a fault ended need not start again
    timeout = item.get_closest_marker("timeout")
    return len(_SHARED), -float(timeout.args[0]) if timeout else 0.0


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the environment back."""
    before = getattr(config, "sweepbench_environment", None)
    if before is not None:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(config.sweepbench_folder, ignore_errors=True)  # type: ignore[attr-defined]


_BEGAN = psutil.Process().create_time()
_others: set[psutil.Process] = set()  # processes that are of no test of this session: asked about twice a test, they are looked at once


def started_here() -> dict[int, psutil.Process]:
    """Processes that tests of this session started and that still run, orphans included."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process in _others:
                continue
            mark = variables(process).get(MARK) if process.create_time() > _BEGAN else "of before the session"
            if mark == os.environ.get(MARK):
                if _counts(process):
                    found[process.pid] = process
            elif mark is not None:  # without one it may yet become ours: what was forked from here has its own once it runs a program
                _others.add(process)
        except (psutil.Error, OSError):
            continue
    return found


def _is_of_a_stack(process: psutil.Process) -> bool:
    """True for what a stack's Ray head keeps for later; what it runs for a trial counts as the test's. The stack ends with its fixture."""
    try:
        environment = variables(process)
        return "SWEEPBENCH_STACK" in environment and (
            environment.get(process_marks.MARK, process_marks.NO_TRIAL) == process_marks.NO_TRIAL or processes.of_the_cluster(process)
        )
    except (psutil.Error, OSError):
        return True  # gone


def _counts(process: psutil.Process) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    command = " ".join(command_of(process))
    return not any(helper in command for helper in _INTERPRETER_HELPERS)


def _left_running(found: Collection[psutil.Process]) -> list[psutil.Process]:
    """Those that do not end by themselves. One that is just ending is no leak, nor is one that has ended and that its parent, init
    perhaps, has not noticed yet."""
    _, still = psutil.wait_procs(found, timeout=30.0)
    return [process for process in started_here().values() if process in still] if still else []


_folders = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's, which looks for a free number among the folders of all tests before: after thousands, longer than a test takes."""
    name = re.sub(r"\W", "_", request.node.name)[:25]
    path = tmp_path_factory.getbasetemp() / f"{name}_{next(_folders):04}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path) -> Iterator[None]:
    """A runs/ of the test's own; fails a test that leaves a process running or an environment variable changed.

    What wider fixtures started before the test may stay until they end it themselves.
    """
    outer_runs = os.environ["SWEEPBENCH_RUNS"]
    os.environ["SWEEPBENCH_RUNS"] = str(tmp_path / "runs")
    environment, before = _environment(), started_here()
    yield
    changed = _environment()
    left = {pid: process for pid, process in started_here().items() if pid not in before and not _is_of_a_stack(process)}
    if left:
        left = {process.pid: process for process in _left_running(left.values())}
    leaked = sorted(name for name in environment.keys() | changed.keys() if environment.get(name) != changed.get(name))
    for name in leaked:
        os.environ.pop(name, None)
        if name in environment:
            os.environ[name] = environment[name]
    os.environ["SWEEPBENCH_RUNS"] = outer_runs
    commands = [_end(process) for process in left.values()]
    assert not leaked, f"the test changed environment variables and did not restore them: {', '.join(leaked)}"
    assert not commands, f"the test left processes running (ended now): {commands}"


@pytest.fixture(autouse=True)
def _threads_are_given_back() -> Iterator[None]:
    """A session on the CPU gives torch a thread for each core. Left so, tests after it would compute by as many beside pytest-xdist's other
    process, and threads wait for each other spinning: what takes 0.4 s of CPU time alone takes many times as much.
    """
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != int(_SET["OMP_NUM_THREADS"]):
        torch.set_num_threads(int(_SET["OMP_NUM_THREADS"]))


@pytest.fixture(autouse=True, scope="session")
def _no_process_left() -> Iterator[None]:
    """Fails the session whose wider fixtures left a process."""
    yield
    commands = [_end(process) for process in _left_running(started_here().values())]
    assert not commands, f"fixtures left processes running (ended now): {commands}"


@pytest.fixture(autouse=True, scope="session")
def _commands_are_made_once() -> Iterator[None]:
    """Typer's CliRunner makes all commands of an app anew for each call: some 30 ms for `sweep`, whose own process makes them once."""
    testing = sys.modules.get("typer.testing")  # imported by the tests that use it
    with pytest.MonkeyPatch.context() as patch:
        if testing is not None:
            patch.setattr(testing, "_get_command", cache(testing._get_command))
        yield


@pytest.fixture(scope="session")
def _shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def new_mlflow_database(_shared_folder: Path) -> Path:
    """A database with MLflow's tables and nothing in them, to be copied."""
    return database_support.make(_shared_folder, database_support.MLFLOW)


@pytest.fixture
def mlflow_database(_isolated: None, new_mlflow_database: Path) -> None:
    """A new database of MLflow's in this test's runs folder."""
    database_support.copy_to_runs(new_mlflow_database)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server of the session's own, on loopback with its own database; gives its API's URL.

    Every test that calls a flow asks for it: Prefect would else start a server of its own, which stays.
    """
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows.runtime.prefect_server import own_server

    with ExitStack() as stack:
        with database_support.runs_in(tmp_path_factory.mktemp("prefect")):
            url = stack.enter_context(own_server()).wait()
        stack.enter_context(temporary_settings({PREFECT_API_URL: url}))
        yield url


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_LIBRARIES_SET)}


def _end(process: psutil.Process) -> str:
    try:
        command = f"pid {process.pid}: {' '.join(process.cmdline())[:200]}"
        process.kill()
        process.wait(timeout=30)
    except psutil.Error as error:
        return str(error)
    return command


@pytest.fixture
def one_thread() -> Iterator[None]:
    """torch computes with one thread, so that losses are the same on every machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
