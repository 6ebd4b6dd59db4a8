"""What every test gets: folders of its own, no telemetry, no servers of the user's; and what no test may leave: processes, variables."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cluster import process_marks
from cluster.launchers import processes
from tests.clusters_support import clusters

__all__ = ["clusters"]  # a fixture that integration and faults share

MARK = "SWEEPBENCH_TEST"  # every process started by a test inherits it

_SET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",  # two cores may be busy
    "MPLBACKEND": "agg",
}
_PREFIXES_REMOVED = ("PREFECT_", "MLFLOW_", "RAY_", "SWEEPBENCH_")
_KEPT = ("SWEEPBENCH_SLOW", "SWEEPBENCH_GAUDI")

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
        if name.startswith(_PREFIXES_REMOVED) and name not in _KEPT:
            del os.environ[name]
    home = folder / "home"
    home.mkdir()
    cache = config.rootpath / ".pytest_cache" / "matplotlib"  # its font list takes seconds to make
    cache.mkdir(parents=True, exist_ok=True)
    os.environ.update(
        _SET
        | {"HOME": str(home), "PREFECT_HOME": str(folder / "prefect"), "SWEEPBENCH_RUNS": str(folder / "runs"), "MPLCONFIGDIR": str(cache)}
    )
    os.environ[MARK] = secrets.token_hex(8)


# Fixtures of a whole session that take long to make: the tests of each stay in one process
_SHARED = ("stack", "clusters")


def pytest_itemcollected(item: pytest.Item) -> None:
    """What may run beside what (pytest-xdist): tests of one stack stay together, fast tests stay with their file's fixtures."""
    slow = item.get_closest_marker("integration") or item.get_closest_marker("fault")
    alone = item.nodeid if slow else str(item.path)
    shared = [name for name in _SHARED if name in getattr(item, "fixturenames", ())]
    item.add_marker(pytest.mark.xdist_group(shared[0] if shared else alone))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the environment back."""
    before = getattr(config, "sweepbench_environment", None)
    if before is not None:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(config.sweepbench_folder, ignore_errors=True)  # type: ignore[attr-defined]


def started_here() -> dict[int, psutil.Process]:
    """Processes that tests of this session started and that still run, orphans included."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == os.environ.get(MARK) and _counts(process):
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue
    return found


def _is_of_a_stack(process: psutil.Process) -> bool:
    """True for what a stack's Ray head keeps for later; what it runs for a trial counts as the test's. The stack ends with its fixture."""
    try:
        environment = process.environ()
        return "SWEEPBENCH_STACK" in environment and (process_marks.MARK not in environment or processes.of_the_cluster(process))
    except (psutil.Error, OSError):
        return True  # gone


def _counts(process: psutil.Process) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    command = " ".join(process.cmdline())
    return not any(helper in command for helper in _INTERPRETER_HELPERS)


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
        _, still = psutil.wait_procs(list(left.values()), timeout=2.0)  # one that is just ending is no leak
        left = {process.pid: process for process in still}
    leaked = sorted(name for name in environment.keys() | changed.keys() if environment.get(name) != changed.get(name))
    for name in leaked:
        os.environ.pop(name, None)
        if name in environment:
            os.environ[name] = environment[name]
    os.environ["SWEEPBENCH_RUNS"] = outer_runs
    commands = [_end(process) for process in left.values()]
    assert not leaked, f"the test changed environment variables and did not restore them: {', '.join(leaked)}"
    assert not commands, f"the test left processes running (ended now): {commands}"


@pytest.fixture(autouse=True, scope="session")
def _no_process_left() -> Iterator[None]:
    """Fails the session whose wider fixtures left a process."""
    yield
    commands = [_end(process) for process in started_here().values()]
    assert not commands, f"fixtures left processes running (ended now): {commands}"


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """A Prefect server of the session's own, on loopback with its own database; gives its API's URL.

    Every test that calls a flow asks for it: Prefect would else start a server of its own, which stays.
    """
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield str(PREFECT_API_URL.value())


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_LIBRARIES_SET)}


def _end(process: psutil.Process) -> str:
    try:
        command = f"pid {process.pid}: {' '.join(process.cmdline())[:200]}"
        process.kill()
        process.wait(timeout=5)
    except psutil.Error as error:
        return str(error)
    return command
