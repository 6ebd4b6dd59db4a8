"""What a change between two commits can touch: on copies of this code, one of which was changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.commits.resolve import CommitError
from experiments.config.errors import ConfigError
from experiments.config.paths import REPOSITORY
from experiments.spec.load import list_suites
from experiments.workloads import winoground
from tasks.sweep import touched
from tasks.sweep.store import Request
from tasks.sweep.touched import Change, Touched, change_between

ALL = [info.name for info in list_suites()]
REQUEST = Request(suite="", profile="smoke")
LOOP = Path("cluster/worker/measure/loop.py")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of this tree."""
    root = tmp_path_factory.mktemp("base")
    for name in ("cluster", "experiments"):
        shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.fixture
def head(base: Path, tmp_path: Path) -> Path:
    """Another copy, to be changed."""
    return Path(shutil.copytree(base, tmp_path / "head"))


Between = Callable[..., Change]


@pytest.fixture
def between(base: Path, head: Path, monkeypatch: pytest.MonkeyPatch) -> Between:
    """What differs between the two, as commits `main` and `HEAD`."""
    commits = {"main": "a" * 40, "HEAD": "b" * 40}

    def resolved(name: str) -> str:
        if name not in commits:
            raise CommitError(f"{name!r} is no commit")
        return commits[name]

    monkeypatch.setattr("tasks.sweep.variants.resolve_clean", resolved)
    monkeypatch.setattr(touched, "tree_of", lambda commit: base if commit == "a" * 40 else head)
    monkeypatch.setattr(touched, "differing", lambda a, b: ["docs/x.md", "experiments/suites/bert.yaml", "requirements.lock"])
    return lambda *suites, a="main", b="HEAD", request=REQUEST: change_between(request, a, b, suites)


def change(root: Path, path: str | Path) -> None:
    (root / path).write_text((root / path).read_text() + "\n# changed\n")


def test_documents_and_what_only_the_flow_reads_touch_nothing(between: Between, head: Path) -> None:
    change(head, "experiments/suites/bert.yaml")
    change(head, "cluster/launchers/local.py")
    found = between()
    assert [one.suite for one in found.suites] == ALL and found.measured == [] and found.left_out == []
    assert found.commits == ("a" * 40, "b" * 40) and (found.installed, found.asked) == (
        ["requirements.lock"],
        ["experiments/suites/bert.yaml"],
    )


def test_a_workload_touches_the_suites_that_run_it_or_take_parts_of_it(between: Between, head: Path) -> None:
    change(head, "experiments/workloads/bert.py")
    found = between()
    assert [one.suite for one in found.measured] == ["bert", "bert_inference"]
    assert found.measured[0] == Touched("bert", frozenset({"cpu"}), ("experiments/workloads/bert.py",))


def test_the_measured_loop_touches_all_and_what_cannot_run_here_is_left_out_with_the_reason(
    between: Between, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winoground.Parameters, "lacking", lambda parameters: {"dataset": "a folder"})
    change(head, LOOP)
    found = between()
    assert {one.files for one in found.suites} == {(str(LOOP),)}
    assert [one.suite for one in found.left_out] == ["winoground"] and "is not set" in str(found.left_out[0].left_out)
    assert between("winoground").left_out == [], "it is named: whoever names it is told what it lacks when it is to start"


def test_a_kind_of_device_is_touched_alone(between: Between, head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(head, "cluster/devices/cuda.py")
    monkeypatch.setenv("SWEEPBENCH_A100_ADDRESS", "http://127.0.0.1:1")
    assert between("synthetic").measured == []
    both = Request(suite="", profile="smoke", pools=["cpu", "a100"])
    assert between("synthetic", request=both).measured == [Touched("synthetic", frozenset({"cuda"}), ("cluster/devices/cuda.py",))]


def test_files_that_one_side_lacks_differ_and_a_new_workload_has_nothing_to_compare_with(between: Between, base: Path, head: Path) -> None:
    (head / "experiments/components/flop_count.csv").write_text("x\n")  # a table beside a module
    assert between("synthetic").measured[0].files == ("experiments/components/flop_count.csv",)
    kept = (base / "experiments/workloads/canary.py").read_bytes()
    (base / "experiments/workloads/canary.py").unlink()
    try:
        assert between("canary").suites == [Touched("canary", left_out="A has no workload canary to compare with")]
    finally:
        (base / "experiments/workloads/canary.py").write_bytes(kept)


def test_the_code_here_may_be_a_side(between: Between, base: Path, head: Path) -> None:
    change(head, LOOP)
    assert between("synthetic", b="worktree").measured == [] and between("synthetic", b="worktree").commits == ("a" * 40, None)
    assert between("synthetic", a="worktree").measured[0].files == (str(LOOP),)


def test_what_is_wrong_is_said(between: Between) -> None:
    with pytest.raises(ConfigError, match="--changed: A and B are settings; name two commits"):
        between(a="steps=1", b="steps=2")
    with pytest.raises(CommitError, match="'nowhere' is no commit"):
        between(a="nowhere")
    with pytest.raises(ConfigError, match="unknown suite"):
        between("nope")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"profile": "no-such-profile"}, "--profile: no-such-profile: the suite bert has no such profile"),
        ({"pools": ["cpuu"]}, "--pool: unknown pool 'cpuu'; did you mean 'cpu'"),
    ],
)
def test_an_option_that_is_wrong_for_every_suite_is_an_error(between: Between, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        between(request=REQUEST.model_copy(update=options))


def test_a_suite_that_the_options_do_not_fit_is_left_out_beside_others(between: Between) -> None:
    found = between(request=Request(suite="", profile="tune"))
    assert {"synthetic"} <= {one.suite for one in found.suites if one.left_out is None}
    assert {"canary"} <= {one.suite for one in found.left_out}


def test_a_suite_can_be_left_out_later() -> None:
    made = Change("a", "b", (None, None), [Touched("x", frozenset({"cpu"}), ("f",)), Touched("y", frozenset({"cpu"}), ("f",))], [])
    later = made.without("x", "too old")
    assert [one.suite for one in later.measured] == ["y"] and later.left_out == [
        Touched("x", frozenset({"cpu"}), ("f",), left_out="too old")
    ]
