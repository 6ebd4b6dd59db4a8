"""What the listings import: each of these libraries takes from 15 ms to some seconds, and none is needed to read suites and plans."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"numpy", "scipy", "pandas", "pyarrow", "torch", "ray", "transformers", "prefect", "mlflow", "matplotlib", "PIL", "packaging"}
COMMANDS = (["suites"], ["plan", "bridgetower", "--profile", "smoke"], ["plan", "bridgetower"], ["plan", "vit", "--json"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_listings_import_no_heavy_library(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "sys.argv = ['sweep', *json.loads(sys.argv[1])]\n"
        "from flows.cli import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    print('RESULT' + json.dumps([end.code, sorted({name.partition('.')[0] for name in sys.modules})]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "SWEEPBENCH_RUNS": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert "RESULT" in done.stdout, done.stderr
    status, loaded = json.loads(done.stdout.rsplit("RESULT", 1)[1])
    assert (status, HEAVY & set(loaded)) == (0, set())
    assert {"flows", "pydantic"} <= set(loaded)  # the list is that of a process that did something


def test_what_shows_a_sweep_imports_nothing_that_plans_or_imports_one() -> None:
    code = "import sys, flows.cli.commands, flows.cli.show_sweeps, tasks.report.headline; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert {"tasks.sweep.plan", "tasks.imports.model", "experiments.spec.load", "flows.cli.show_imported"} & loaded == set()
    assert {"tasks.report.model", "tasks.sweep.store", "flows.cli.new"} <= loaded
