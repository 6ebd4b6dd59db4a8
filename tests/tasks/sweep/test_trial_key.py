"""Which code a trial's key depends on: this tree's own files, and what a change of one does on a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.config.paths import REPOSITORY
from tasks.sweep import trial_key
from tasks.sweep.trial_key import code_files, code_version

EXTRA = REPOSITORY / "tests" / "workloads_for_tests"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test as in a new process."""
    code_version.cache_clear()
    yield
    code_version.cache_clear()


@pytest.fixture(scope="module")
def files() -> dict[tuple[str, str], dict[str, Path]]:
    kinds = [(name, "cpu") for name in workloads.names()] + [("synthetic", "cuda"), ("synthetic", "hpu")]
    return {(name, device): code_files(name, device) for name, device in kinds}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The code of this tree in another place, which is then what keys are made of."""
    root = tmp_path / "copy"
    for name in ("cluster", "experiments"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(REPOSITORY / "tasks" / "report", root / "tasks" / "report", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(trial_key, "code_files", lambda workload, device, here: code_files(workload, device, root))
    return root


def version(workload: str, device: str = "cpu") -> str:
    code_version.cache_clear()
    return code_version(workload, device)


# --- this tree


def test_every_workload_has_the_measured_loop_and_its_clock(files: dict[tuple[str, str], dict[str, Path]]) -> None:
    always = {
        "cluster.worker.main": "cluster/worker/main.py",
        "cluster.worker.measure.loop": "cluster/worker/measure/loop.py",
        "cluster.worker.trial_session": "cluster/worker/trial_session.py",  # main imports it inside a function, by way of ray_train
        "cluster.worker.train.engine_habana": "cluster/worker/train/engine_habana.py",
        "cluster.devices": "cluster/devices/__init__.py",  # a package that holds a module that is imported
        "cluster.devices.clock": "cluster/devices/clock.py",
        "cluster.devices.peaks": "cluster/devices/peaks.py",
        "cluster.devices.peaks.csv": "cluster/devices/peaks.csv",  # MFU comes from it
        "experiments.summary": "experiments/summary.py",  # result.json has one
        "experiments.workloads": "experiments/workloads/__init__.py",
    }
    for found in files.values():
        assert {name: found[name] for name in always} == {name: REPOSITORY / path for name, path in always.items()}


def test_a_trial_depends_on_its_own_device_alone(files: dict[tuple[str, str], dict[str, Path]]) -> None:
    for device in ("cpu", "cuda", "hpu"):
        kinds = {f"cluster.devices.{kind}" for kind in ("cpu", "cuda", "hpu")} & set(files["synthetic", device])
        assert kinds == {f"cluster.devices.{device}"}


@pytest.mark.parametrize(
    ("workload", "module", "counts"),
    [
        ("bridgetower", "experiments.components.data.parquet", True),
        ("vit", "experiments.components.data.parquet", True),
        ("synthetic", "experiments.components.data.parquet", False),
        ("bridgetower_inference", "experiments.workloads.bridgetower.model", True),  # of which it takes parts
        ("bridgetower", "experiments.workloads.bridgetower_inference", False),
        ("bert_inference", "experiments.workloads.bert", True),
        ("t5_inference", "experiments.workloads.t5", True),
        ("winoground", "experiments.datasets.winoground", True),
        ("stable_diffusion", "experiments.datasets.scenes", True),
        ("clip", "experiments.components.layers.layer_scale", True),
        ("vit", "experiments.components.layers.layer_scale", False),
        ("vit", "experiments.components.layers.low_precision", True),  # a train step imports it, for any workload
        ("vit", "experiments.workloads.vit.model", True),  # imported inside functions
    ],
)
def test_a_workload_depends_on_what_it_imports(
    files: dict[tuple[str, str], dict[str, Path]], workload: str, module: str, counts: bool
) -> None:
    assert (module in files[workload, "cpu"]) == counts


def test_what_no_trial_imports_is_in_no_key(files: dict[tuple[str, str], dict[str, Path]]) -> None:
    """Launchers, pools and the suite language decide which trials run and where, not what one measures."""
    apart = ("tasks", "flows", "cluster.stack", "cluster.launchers", "cluster.pools.pool", "cluster.pools.probe")
    apart += ("experiments.spec", "experiments.regression", "experiments.literature", "experiments.config.yaml_document")
    for found in files.values():
        assert [name for name in found if name.startswith(apart)] == []


def test_the_synthetic_workload_depends_on_no_other(files: dict[tuple[str, str], dict[str, Path]]) -> None:
    names = {name for name in files["synthetic", "cpu"] if name.startswith("experiments.workloads")}
    assert names == {"experiments.workloads", "experiments.workloads.synthetic"}


# --- a change


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("cluster/devices/clock.py", True),
        ("cluster/devices/cpu.py", True),
        ("cluster/devices/peaks.csv", True),
        ("cluster/worker/measure/loop.py", True),
        ("experiments/__init__.py", True),
        ("experiments/workloads/vit/__init__.py", True),
        ("experiments/workloads/vit/model.py", True),
        ("cluster/devices/hpu.py", False),
        ("cluster/devices/cuda.py", False),
        ("cluster/pools/pools.yaml", False),
        ("experiments/spec/load.py", False),
        ("experiments/suites/vit.yaml", False),
        ("experiments/components/data/parquet.py", True),
        ("experiments/components/data/text.py", False),
        ("experiments/workloads/synthetic.py", False),
        ("tasks/report/html.py", False),
    ],
)
def test_one_more_byte_changes_the_key_of_the_trials_that_import_the_file(copy: Path, path: str, changes: bool) -> None:
    before = version("vit")
    with open(copy / path, "ab") as file:
        file.write(b"\n")
    assert (version("vit") != before) == changes


def test_a_copy_of_the_code_elsewhere_has_the_same_key(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = version("bridgetower", "cuda")
    monkeypatch.undo()
    assert version("bridgetower", "cuda") == there


def test_an_import_that_is_added_brings_its_file_in(copy: Path) -> None:
    loop, report = copy / "cluster/worker/measure/loop.py", copy / "experiments/literature/reader.py"
    loop.write_text(loop.read_text() + "\n\ndef late():\n    from experiments.literature import reader\n")
    before = version("vit")
    report.write_text(report.read_text() + "# changed\n")
    assert version("vit") != before


def test_two_files_that_change_places_change_the_key(copy: Path) -> None:
    before = version("vit")
    one, two = copy / "experiments/workloads/vit/model.py", copy / "experiments/workloads/vit/parameters.py"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert version("vit") != before


def test_devices_and_workloads_have_keys_of_their_own() -> None:
    assert len({version(name, device) for name in ("vit", "synthetic") for device in ("cpu", "cuda", "hpu")}) == 6


def test_a_file_that_is_not_python_is_named_with_its_line(copy: Path) -> None:
    path = copy / "experiments/workloads/vit/model.py"
    path.write_text("x = 1\ndef (:\n")
    with pytest.raises(ConfigError) as caught:
        version("vit")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(path), 2) and "is not Python" in problem.problem
    path.write_bytes(b"x = 1\0")
    with pytest.raises(ConfigError, match=r"model\.py.*is not Python"):
        version("vit")
    version("synthetic")  # which does not import it


@pytest.mark.parametrize(("workload", "device"), [("no_such", "cpu"), ("vit", "tpu")])
def test_a_workload_or_device_that_is_not_there_is_named(workload: str, device: str) -> None:
    with pytest.raises(ConfigError, match="no_such" if workload == "no_such" else "tpu"):
        version(workload, device)


# --- the user's own workloads


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A $SWEEPBENCH_EXTRA folder: a file and a folder of workloads, and code that they share."""
    folder = tmp_path / "extra" / "workloads"
    for name, text in {
        "mine.py": "from experiments.workloads._shared import x\nclass Parameters: pass\n",
        "beside.py": "from . import _shared\n",
        "other.py": "x = 1\n",
        "_shared.py": "from experiments.workloads._deeper import x\n",
        "_deeper.py": "x = 1\n",
        "net/__init__.py": "from .workload import build\n",
        "net/workload.py": "from experiments.workloads import synthetic\ndef f():\n    from .model import make\n    from ..other import x",
        "net/model.py": "make = None\n",
        "net/notes.py": "x = 1\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(folder.parent))
    return folder


def own(workload: str, folder: Path) -> set[str]:
    """The files of the extra folder that count for a workload in it."""
    return {str(path.relative_to(folder)) for path in code_files(workload, "cpu").values() if path.is_relative_to(folder)}


def test_a_workload_from_elsewhere_counts_with_what_it_imports_there(extra: Path) -> None:
    assert own("mine", extra) == {"mine.py", "_shared.py", "_deeper.py"}
    assert own("beside", extra) == {"beside.py", "_shared.py", "_deeper.py"}
    assert own("other", extra) == {"other.py"}
    assert own("vit", extra) == set()
    before = version("mine"), version("other")
    (extra / "_deeper.py").write_text("x = 2\n")
    assert version("mine") != before[0] and version("other") == before[1]


def test_a_workload_that_is_a_folder_counts_with_its_parts_and_its_relative_imports(extra: Path) -> None:
    assert own("net", extra) == {"net/__init__.py", "net/workload.py", "net/model.py", "other.py"}
    assert "experiments.workloads.synthetic" in code_files("net", "cpu")


def test_where_the_users_folder_lies_does_not_matter(extra: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = version("mine")
    shutil.copytree(extra, tmp_path / "moved" / "workloads")
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path / "moved"))
    assert version("mine") == before


def test_the_tests_own_workloads_are_found_as_their_processes_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(EXTRA))
    assert own("watched_bridgetower", EXTRA / "workloads") == {"watched_bridgetower.py", "_watched.py"}
    assert "experiments.workloads.bridgetower.workload" in code_files("watched_bridgetower", "cpu")
