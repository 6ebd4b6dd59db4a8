"""The folder of compiled graphs: which one a trial uses, when it is trusted, and when it is removed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.worker import compile_cache, torch_internals
from cluster.worker.compile_cache import CompileCache, Lookups, compilation, tidy

FACTS = {"python": "3.11", "torch": "2.13", "device_name": "a"}
INDUCTOR, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWEEPBENCH_KEPT", str(tmp_path))
    monkeypatch.delenv("SWEEPBENCH_POOL", raising=False)
    monkeypatch.setenv(INDUCTOR, "before")
    monkeypatch.delenv(TRITON, raising=False)
    monkeypatch.setattr(torch_internals, "graph_lookups", lambda: (0, 1))
    return tmp_path


def used() -> Path:
    return Path(os.environ[INDUCTOR])


def fill(folder: Path, size: int = 100) -> None:
    (folder / "fxgraph").mkdir(exist_ok=True)
    (folder / "fxgraph" / "graph").write_bytes(b"x" * size)


def test_trials_of_a_pool_in_one_environment_share_a_folder_and_others_do_not(runs: Path) -> None:
    folders = []
    for pool, facts in (("cpu", FACTS), ("cpu", FACTS), ("gpu", FACTS), *(("cpu", {**FACTS, name: "x"}) for name in FACTS)):
        with CompileCache(pool) as cache:
            assert cache.use(facts) is None
            folders.append(used())
            assert os.environ[TRITON] == str(used() / "triton") and used().stat().st_mode & 0o077 == 0
            assert cache.lookups() == Lookups(0, 1, empty=len(folders) != 2)
            fill(used())
        assert os.environ[INDUCTOR] == "before" and TRITON not in os.environ
    assert folders[0] == folders[1] and len(set(folders)) == 5
    assert folders[0].parent == runs / ".compile-cache" / "cpu" and folders[2].parent == runs / ".compile-cache" / "gpu"
    assert all(folder.is_dir() for folder in folders)


def test_a_fresh_cache_is_empty_and_its_own_and_goes_with_the_trial(runs: Path) -> None:
    with CompileCache("cpu") as kept:
        kept.use(FACTS)
        fill(used())
    with CompileCache("cpu", fresh=True) as one, CompileCache("cpu", fresh=True) as two:
        one.use(FACTS)
        first = used()
        two.use(FACTS)
        assert first != used() and one.lookups().empty and two.lookups().empty and first.name.startswith("fresh-")
    names = sorted(path.name.partition(".")[2] for path in (runs / ".compile-cache" / "cpu").iterdir())
    assert names == ["", "lock"], "the kept folder and its lock"


def test_a_trial_by_hand_leaves_torchs_own_cache_and_can_still_have_a_fresh_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SWEEPBENCH_KEPT")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    other = tmp_path / "tmp" / "another program's"
    other.mkdir(parents=True)
    with CompileCache("cpu") as cache:
        assert cache.use(FACTS) is None and os.environ[INDUCTOR] == "before"
    with CompileCache("cpu", fresh=True) as cache:
        assert cache.use(FACTS) is None and used().parent == tmp_path / "tmp"
    assert list((tmp_path / "tmp").iterdir()) == [other]


def test_a_folder_that_cannot_be_had_is_said_and_the_trial_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compile_cache, "make_private", full)
    with CompileCache("cpu") as cache:
        assert cache.use(FACTS) == "compiled graphs are not kept: [Errno 28] No space left on device"
        assert os.environ[INDUCTOR] == "before"


KILLED = """
import os, signal, sys
from pathlib import Path
from cluster.worker.compile_cache import CompileCache
cache = CompileCache("cpu", fresh=sys.argv[1] == "fresh")
cache.use({"python": "3.11", "torch": "2.13", "device_name": "a"})
(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "half.so").write_bytes(b"half a library")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["kept", "fresh"])
def test_what_a_killed_trial_left_is_not_used(runs: Path, kind: str) -> None:
    with CompileCache("cpu") as cache:
        cache.use(FACTS)
        fill(used())
    ended = subprocess.run([sys.executable, "-c", KILLED, kind], env={**os.environ, "PYTHONPATH": os.getcwd()}, check=False)  # noqa: PTH109
    assert ended.returncode == -9 and list((runs / ".compile-cache" / "cpu").rglob("half.so")), "the fault fired"
    with CompileCache("cpu") as cache:
        cache.use(FACTS)
        assert not (used() / "half.so").exists() and cache.lookups().empty is (kind == "kept")
    assert not list((runs / ".compile-cache" / "cpu").rglob("half.so"))
    assert sorted(path.suffix for path in (runs / ".compile-cache" / "cpu").iterdir()) == ["", ".lock"]


def test_an_exception_is_no_kill(runs: Path) -> None:
    def fail() -> None:
        with CompileCache("cpu") as cache:
            cache.use(FACTS)
            fill(used())
            raise ValueError("the trial failed")

    with pytest.raises(ValueError, match="the trial failed"):
        fail()
    with CompileCache("cpu") as cache:
        cache.use(FACTS)
        assert not cache.lookups().empty


def test_folders_used_longest_ago_go_first_and_one_in_use_stays(runs: Path) -> None:
    root = runs / ".compile-cache" / "cpu"
    for place, name in enumerate(("b", "a", "c")):
        folder = root / name
        folder.mkdir(parents=True)
        fill(folder)
        folder.with_name(f"{name}.lock").touch()
        os.utime(folder.with_name(f"{name}.lock"), (1000 + place,) * 2)
    tidy(root, 300)
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["a", "b", "c"], "exactly the limit"
    with compile_cache._in_use(root / "b"):
        os.utime(root / "b.lock", (1000, 1000))
        tidy(root, 299)
        assert sorted(path.name for path in root.iterdir() if path.is_dir()) == ["b", "c"]
        tidy(root, 0)
        assert [path.name for path in root.iterdir() if path.is_dir()] == ["b"]


def test_only_a_trial_that_compiled_something_looks_at_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(compile_cache, "tidy", looked.append)
    for missed in (0, 1):
        monkeypatch.setattr(torch_internals, "graph_lookups", lambda missed=missed: (3, missed))
        with CompileCache("cpu") as cache:
            cache.use(FACTS)
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("ranks", "how"),
    [
        ([(0, 2, True)], "cold"),
        ([(0, 2, False)], "cold"),
        ([(5, 2, True)], "cold"),
        ([(5, 2, False)], "partly cached"),
        ([(5, 0, False)], "cached"),
        ([(0, 0, True)], "unknown"),
        ([(0, 2, True), (2, 0, False)], "cold"),
        ([(2, 0, False), (2, 0, False)], "cached"),
        ([(2, 0, False), (0, 2, False)], "partly cached"),
    ],
)
def test_how_graphs_were_made(ranks: list[tuple[int, int, bool]], how: str) -> None:
    assert compilation([Lookups(*rank) for rank in ranks]) == how


def test_inductors_counters_are_read_and_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    counters = {"inductor": {"fxgraph_cache_hit": 3, "fxgraph_cache_miss": 2, "fxgraph_cache_bypass": 4, "cudagraph_skips": 5}}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters=counters))  # type: ignore[arg-type]
    assert torch_internals.graph_lookups() == (3, 6) and torch_internals.cuda_graphs_left_out() == 5
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils")
    assert torch_internals.graph_lookups() == (0, 0) and torch_internals.cuda_graphs_left_out() == 0


def test_this_torch_counts_under_these_names_and_reads_these_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect

    from torch._inductor import codecache, cudagraph_utils
    from torch._inductor.runtime.cache_dir_utils import cache_dir, triton_cache_dir

    source = inspect.getsource(codecache)
    assert all(f'["{name}"]' in source for name in ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass"))
    assert '["cudagraph_skips"]' in inspect.getsource(cudagraph_utils)
    monkeypatch.setenv(INDUCTOR, str(tmp_path / "one"))
    assert cache_dir() == str(tmp_path / "one")
    monkeypatch.setenv(TRITON, str(tmp_path / "two"))
    assert triton_cache_dir(0) == str(tmp_path / "two")
