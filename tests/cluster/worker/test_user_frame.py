"""The reason of a crash says which line of the user's code it began at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback
from torch._utils import ExceptionWrapper

from cluster.worker.outcome import classify
from experiments.components.workload import DataError
from experiments.config.errors import ConfigError
from experiments.config.paths import REPOSITORY

Call = Callable[[], object]


@pytest.fixture
def workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """workloads/ of a $SWEEPBENCH_EXTRA folder."""
    folder = tmp_path / "mine" / "workloads"
    folder.mkdir(parents=True)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(folder.parent))
    return folder


def calling(path: Path, function: str, inner: Call, line: int = 2) -> Call:
    """A function of this file that calls `inner`, on this line."""
    names: dict[str, Call] = {"inner": inner}
    exec(compile(f"def {function}():{chr(10) * (line - 1)}    inner()", str(path), "exec"), names)
    return names[function]


def failing(error: BaseException) -> Call:
    def fail() -> None:
        raise error

    return fail


def raised(call: Call) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def reason(call: Call) -> str | None:
    return classify(raised(call)).reason


def test_the_deepest_line_of_the_users_own_file_is_named(workloads: Path) -> None:
    library = calling(
        Path("/venv/lib/python3.11/site-packages/torch/nn/functional.py"), "cross_entropy", failing(RuntimeError("0 classes"))
    )
    loss = calling(workloads / "flowers.py", "loss", library, line=42)
    again = calling(workloads / "flowers.py", "step", loss, line=9)
    ours = calling(REPOSITORY / "cluster/worker/measure/loop.py", "run_steps", again)
    assert reason(ours) == "flowers.py:42 in loss: RuntimeError: 0 classes"


def test_a_line_of_a_workload_here_is_named_where_none_is_of_the_users(workloads: Path) -> None:
    part = calling(REPOSITORY / "experiments/components/data/pairs.py", "collate", failing(KeyError("caption")), line=7)
    shipped = calling(REPOSITORY / "experiments/workloads/vit/model.py", "loss", part, line=5)
    assert reason(part) == "components/data/pairs.py:7 in collate: KeyError: 'caption'"
    assert reason(shipped) == "components/data/pairs.py:7 in collate: KeyError: 'caption'"
    assert reason(calling(REPOSITORY / "experiments/workloads/vit/model.py", "loss", failing(ValueError("x")), line=5)) == (
        "vit/model.py:5 in loss: ValueError: x"
    )
    assert reason(calling(workloads / "flowers" / "model.py", "loss", part, line=3)) == "flowers/model.py:3 in loss: KeyError: 'caption'"


def test_what_went_through_none_of_these_has_no_line(workloads: Path) -> None:
    beside = calling(workloads.parent / "venv" / "lib" / "torch.py", "loss", failing(ValueError("a bug")))
    assert reason(beside) == "ValueError: a bug"
    assert reason(calling(REPOSITORY / "cluster/worker/set_up.py", "set_up", beside)) == "ValueError: a bug"


def test_code_outside_functions_has_its_line_alone(workloads: Path) -> None:
    def module() -> None:
        exec(compile("\n\nraise ValueError('a bug')", str(workloads / "flowers.py"), "exec"), {})

    assert reason(module) == "flowers.py:3: ValueError: a bug"


def test_an_error_that_names_what_to_mend_needs_no_line(workloads: Path) -> None:
    for error in (DataError("train.parquet row 3: no image"), ConfigError.one(Path("s.yaml"), 3, "lr", "is 0", "more than 0")):
        assert reason(calling(workloads / "flowers.py", "loss", failing(error))) == " ".join(f"{type(error).__name__}: {error}".split())


def test_the_line_of_a_cause_goes_before_that_of_what_was_raised_from_it(workloads: Path) -> None:
    deep = calling(workloads / "flowers.py", "read", failing(KeyError("petals")), line=30)

    def wrapped() -> None:
        try:
            deep()
        except KeyError as error:
            raise RuntimeError("cannot be read") from error

    assert reason(calling(workloads / "flowers.py", "build", wrapped, line=8)) == "flowers.py:30 in read: KeyError: 'petals'"

    def of_a_library() -> None:
        try:
            failing(KeyError("petals"))()
        except KeyError as error:
            raise RuntimeError("cannot be read") from error

    assert reason(calling(workloads / "flowers.py", "build", of_a_library, line=8)) == "flowers.py:8 in build: KeyError: 'petals'"


def test_an_error_of_a_loader_process_has_the_line_there(workloads: Path) -> None:
    """torch raises it anew, with the traceback in the message."""
    item = calling(workloads / "flowers.py", "__getitem__", failing(ValueError("label 17 of 10 classes")), line=17)
    try:
        item()
    except ValueError:
        caught = ExceptionWrapper(where="in DataLoader worker process 0")
    batch = calling(workloads / "flowers.py", "batches", caught.reraise, line=50)
    said = "flowers.py:17 in __getitem__: ValueError: label 17 of 10 classes (in DataLoader worker process 0)"
    assert reason(batch) == said


def test_an_error_of_a_ray_worker_has_the_line_there(workloads: Path) -> None:
    """Ray sends the exception without its traceback, and that as text."""
    frames = f'Traceback (most recent call last):\n  File "{workloads}/flowers.py", line 42, in loss\n    x\nRuntimeError: no\n'
    wrapped = UserExceptionWithTraceback(RuntimeError("no"), traceback_str=frames)
    assert classify(WorkerGroupError("x", {0: wrapped})).reason == "flowers.py:42 in loss: RuntimeError: no"


def test_a_long_message_keeps_the_line(workloads: Path) -> None:
    said = reason(calling(workloads / "flowers.py", "loss", failing(ValueError("long " * 500)), line=42))
    assert said is not None and said.startswith("flowers.py:42 in loss: ValueError: long ") and len(said) == 500
