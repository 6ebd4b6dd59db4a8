"""The floors hold: imports point down, workers stay free of Prefect and MLflow, the flow side of torch and Ray at import."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORKER_SIDE = ("cluster/worker", "cluster/devices", "experiments/components", "experiments/workloads")
# Networks: they import torch. That nothing else loads them at import is what is checked
NETWORKS = re.compile(r"experiments\.(components\.layers|workloads\.\w+\.(model|bridges)\b)")
FLOW_SIDE = ("flows", "tasks", "cluster", "experiments")


def _modules(*folders: str) -> list[str]:
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py") if "__pycache__" not in file.parts)
    names = (file.relative_to(ROOT).with_suffix("") for file in files if file.name != "__main__.py")
    return sorted(".".join(name.parts).removesuffix(".__init__") for name in names)


def _imported(file: Path) -> set[str]:
    """Top-level packages that a file imports anywhere, inside functions too."""
    packages = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            packages |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.split(".")[0])
    return packages


def _loaded(*walks: tuple[list[str], set[str]]) -> list[dict[str, list[str]]]:
    """Import the modules of the walks one after the other in one fresh interpreter; for each walk, which module was the first to load what
    of that walk's packages. Something loaded in an earlier walk is not blamed on a later one: the earlier one must watch for it."""
    code = (
        "import importlib, json, sys\n"
        "blames = []\n"
        "for modules, wanted in json.loads(sys.argv[1]):\n"
        "    blame, seen = {}, {w for w in wanted if w in sys.modules}\n"
        "    for module in modules:\n"
        "        importlib.import_module(module)\n"
        "        new = {w for w in wanted if w in sys.modules} - seen\n"
        "        seen |= new\n"
        "        if new: blame[module] = sorted(new)\n"
        "    blames.append(blame)\n"
        "print('RESULT' + json.dumps(blames))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([(modules, sorted(wanted)) for modules, wanted in walks])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    blames: list[dict[str, list[str]]] = json.loads(done.stdout.split("RESULT", 1)[1])
    return blames


@dataclass(frozen=True)
class Walked:
    """By whom something was loaded that must not be: module -> packages."""

    experiments: dict[str, list[str]]
    listings: dict[str, list[str]]
    flow_side: dict[str, list[str]]


@pytest.fixture(scope="module")
def walked() -> Walked:
    """One interpreter imports them all, seconds of CPU time, from those that may load the least on: each walk watches also for what a
    later one must not load."""
    experiments = [name for name in _modules("experiments") if not NETWORKS.match(name)]
    listings = [name for name in _modules("flows/cli", "tasks") if not name.endswith((".prefect_tasks", ".notify"))]
    assert {"flows.cli.commands", "flows.cli.show_plan", "tasks.sweep.plan", "tasks.tracking.projection"} <= set(listings)
    worker_side = ("cluster.worker", "cluster.devices")
    flow_side = [name for name in _modules(*FLOW_SIDE) if not name.startswith(worker_side) and not NETWORKS.match(name)]
    heavy = {"torch", "ray", "transformers"}
    return Walked(*_loaded((experiments, {"prefect", "mlflow", *heavy}), (listings, {"prefect", *heavy}), (flow_side, heavy)))


def test_import_linter_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("cluster/pools/pool.py", "from cluster.pools.probe import PoolState", "No import circle"),
        ("cluster/pools/pool.py", "if TYPE_CHECKING:\n    from cluster.pools.probe import PoolState", "No import circle"),
        ("experiments/stats/estimate.py", "from experiments.spec.schema import Suite", "Inside experiments"),
        ("tasks/sweep/store.py", "from tasks.report.model import Report", "Inside tasks"),
        ("cluster/launchers/local.py", "def f():\n    from cluster.worker.main import main", "Nothing above imports the worker side"),
    ],
)
def test_import_linter_finds_a_planted_import(tmp_path: Path, file: str, line: str, broken: str) -> None:
    """A circle, also one of annotations alone, an import that runs up, and one of the worker side: each breaks a contract."""
    for folder in FLOW_SIDE:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    planted = tmp_path / file
    planted.write_text(f"{planted.read_text()}\nfrom typing import TYPE_CHECKING\n{line}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode != 0
    assert any(broken in row and "BROKEN" in row for row in done.stdout.splitlines()), done.stdout


@pytest.mark.parametrize("folder", WORKER_SIDE)
def test_worker_side_never_imports_prefect_or_mlflow(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    wrong = {str(file.relative_to(ROOT)): found for file in files if (found := _imported(file) & {"prefect", "mlflow", "flows", "tasks"})}
    assert not wrong


def test_worker_side_loads_neither_prefect_nor_mlflow() -> None:
    """Also not through something it imports."""
    apart = (".hpu", ".triton_kernels", ".adamw_kernel")  # they need Gaudi's packages, and Triton
    modules = [name for name in _modules(*WORKER_SIDE) if not name.endswith(apart)]
    assert _loaded((modules, {"prefect", "mlflow"})) == [{}]


def test_flow_side_loads_neither_torch_nor_ray(walked: Walked) -> None:
    """Workloads included: a whole suite is validated on a machine without torch."""
    assert walked.flow_side == {}


def test_what_only_lists_starts_without_prefect(walked: Walked) -> None:
    """Prefect takes a second to import: `sweep plan` and the other listings do without, as does what `sweep stop` publishes."""
    assert walked.listings == {}


def test_experiments_need_only_the_small_libraries(walked: Walked) -> None:
    assert walked.experiments == {}


def test_the_checks_can_fail(tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("def f():\n    from mlflow.entities import Run\n    import prefect.flows\n")
    assert _imported(file) == {"mlflow", "prefect"}
    walks = ((["json", "filelock"], {"filelock"}), (["filelock", "sqlite3"], {"filelock", "sqlite3"}))
    assert _loaded(*walks) == [{"filelock": ["filelock"]}, {"sqlite3": ["sqlite3"]}]


def test_files_and_functions_stay_short() -> None:
    """A reader takes in a file in five minutes, of tests too. Whoever needs more says why in a comment and names the place here.

    A test may be longer than a function: it tells one story, from its beginning to its end.
    """
    files = [file for folder in FLOW_SIDE for file in (ROOT / folder).rglob("*.py")]
    beside = [file for folder in ("tests", "benchmarks", ".ci") for file in (ROOT / folder).rglob("*.py")]
    assert files and beside
    long_files = {str(file.relative_to(ROOT)): lines for file in [*files, *beside] if (lines := len(file.read_text().splitlines())) > 400}
    functions = {
        f"{file.relative_to(ROOT)}: {node.name}": lines
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > 60
    }
    assert (long_files, functions) == ({}, {})
