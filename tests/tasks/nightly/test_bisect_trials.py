"""The trials of `sweep bisect`: what is said of one that leaves no value, what is left of one, and which pairs are taken again."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from cluster.launchers import processes
from experiments.atomic_file import atomic_write
from experiments.trial import Outcome, Trial, TrialResult
from tasks.nightly import bisect_trials
from tasks.nightly.bisect import BisectError, Bisection, PairValues
from tasks.nightly.bisect_trials import BisectPairs, bisection_folder, question, run_once, save_end
from tests.cli_support import environment
from tests.contracts import make_trial

GOOD, BAD, OTHER = "a" * 40, "b" * 40, "c" * 40


# --- one trial


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tmp_path / "tree"


def trial_of(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Trial:
    """A trial whose worker, in this tree, is a program of the test's own. Its key is no other process's."""
    monkeypatch.setattr(bisect_trials, "told", lambda trial, tree: trial.model_dump_json())
    (tree / "cluster" / "worker").mkdir(parents=True)
    for path in (tree / "cluster" / "__init__.py", tree / "cluster" / "worker" / "__init__.py"):
        path.touch()
    (tree / "cluster" / "worker" / "main.py").write_text(program)
    return make_trial(tmp_path / "trial", secrets.token_hex(8))


def test_a_trial_that_leaves_no_result_is_told_with_its_log(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(tree, tmp_path, monkeypatch, "raise SystemExit('too old')")
    with pytest.raises(BisectError, match=r"a trial of abc left no result; its log is .*log\.txt"):
        run_once(tree, trial, tmp_path / "1-abc", "throughput")
    assert "too old" in (tmp_path / "1-abc" / "log.txt").read_text()


def runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


STARTS_ANOTHER = """
import subprocess
print(subprocess.Popen(["sleep", "77.25"], start_new_session=True).pid)
"""


def test_no_process_of_a_trial_is_left_beside_the_next_one(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = trial_of(tree, tmp_path, monkeypatch, STARTS_ANOTHER)
    with pytest.raises(BisectError, match="left no result"):
        run_once(tree, trial, tmp_path / "out", "throughput")
    assert not runs(int((tmp_path / "out" / "log.txt").read_text()))


STAYS = """
import signal, subprocess, sys, time
def told(number, frame):
    print("told to end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, told)
print(subprocess.Popen(["sleep", "77.25"], start_new_session=True).pid, flush=True)
time.sleep(77.25)
"""


@pytest.mark.parametrize(("interruption", "raised"), [(None, BisectError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_a_trial_that_is_cut_off_is_told_first_and_leaves_no_process(
    interruption: type[BaseException] | None,
    raised: type[BaseException],
    tree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its time, or by a signal; where it is ended no other signal may break that off."""
    trial, log = trial_of(tree, tmp_path, monkeypatch, STAYS), tmp_path / "out" / "log.txt"
    plain, inside = subprocess.Popen.wait, list[str]()

    def waits(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout == 3600.0:
            while "\n" not in log.read_text() and process.poll() is None:
                time.sleep(0.02)
            raise interruption() if interruption else subprocess.TimeoutExpired("trial", timeout)
        assert inside == ["begun"]
        return plain(process, timeout)

    @contextmanager
    def ending() -> Iterator[None]:
        inside.append("begun")
        yield
        inside.append("ended")
        assert processes.of_trial(trial.key) == []

    monkeypatch.setattr(bisect_trials, "_GRACE_S", 60.0)  # on a busy machine it may take long to hear of it
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "wait", waits)
        with pytest.raises(raised, match=r"took more than 3600 s; its log is .*log\.txt" if interruption is None else None):
            run_once(tree, trial, tmp_path / "out", "throughput", ending)
    assert inside == ["begun", "ended"]
    child, told = log.read_text().splitlines()
    assert told == "told to end" and not runs(int(child))


# A command that is killed between fork and exec of its trial
KILLED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from experiments.trial import Trial
from tasks.nightly import bisect_trials

def killed(command, cwd, env, **more):
    me = os.getpid()
    if os.fork() == 0:
        while os.getppid() == me:
            time.sleep(0.01)
        os.chdir(cwd)
        os.execve(command[0], command, env)
    os.kill(me, signal.SIGKILL)

subprocess.Popen = killed
bisect_trials.told = lambda trial, tree: trial.model_dump_json()
tree, trial, out = map(Path, sys.argv[1:])
bisect_trials.run_once(tree, Trial.model_validate_json(trial.read_text()), out, "throughput")
"""


def test_a_trial_whose_command_is_killed_as_it_starts_does_not_begin(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard cannot find it yet: it has no mark."""
    began, told = tmp_path / "began", tmp_path / "trial.json"
    trial = trial_of(tree, tmp_path, monkeypatch, f"import pathlib; pathlib.Path({str(began)!r}).touch()")
    told.write_text(trial.model_dump_json())
    command = [sys.executable, "-c", KILLED, str(tree), str(told), str(tmp_path / "out")]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False
    )  # until the trial's process has ended too
    assert done.returncode == -signal.SIGKILL and "which started this one, has ended" in done.stderr, done.stderr
    assert not began.exists() and processes.of_trial(trial.key) == []


# --- pairs that an interrupted bisection goes on with


class Commits:
    """In place of trials: results of 100 samples/s by `rates`, and which commits ran, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[str] = []
        self.keys: list[str] = []
        self.crashes: set[str] = set()
        self.disturbed: set[str] = set()
        monkeypatch.setattr(bisect_trials, "run_once", self.run_once)

    def run_once(self, tree: Path, trial: Trial, out: Path, metric: str, ending: object) -> None:
        out.mkdir(parents=True)
        self.ran.append(tree.name[0])
        self.keys.append(trial.key)
        if tree.name in self.crashes:
            raise KeyboardInterrupt
        result = TrialResult(key=trial.key, attempt=1, outcome=Outcome.OK, started_at=0.0, finished_at=1.0, environment={})
        told = {"summary": {"throughput": 100.0 + len(self.ran), "final_loss": 2.0}}
        told |= {"disturbed": "other work"} if tree.name in self.disturbed else {}
        atomic_write(out / "result.json", result.model_copy(update=told).model_dump_json())


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    return Commits(monkeypatch)


def pairs_in(folder: Path, tmp_path: Path, metric: str = "throughput") -> BisectPairs:
    return BisectPairs(folder, make_trial(tmp_path / "trial", "aaaa0000000000ff"), metric, Path)


def test_whole_pairs_are_taken_again_and_half_of_one_is_not(tmp_path: Path, commits: Commits) -> None:
    first = pairs_in(tmp_path / "b", tmp_path)
    measured = [first.measure(GOOD, BAD), first.measure(BAD, GOOD)]
    commits.crashes = {BAD}
    with pytest.raises(KeyboardInterrupt):
        first.measure(GOOD, BAD)
    assert "".join(commits.ran) == "abbaab"
    commits.crashes, commits.ran = set(), []
    again = pairs_in(tmp_path / "b", tmp_path)
    assert again.known == 2
    assert [again.measure(GOOD, BAD), again.measure(BAD, GOOD)] == measured and commits.ran == []
    again.measure(GOOD, BAD)
    assert commits.ran == ["a", "b"], "the trials of a pair are neighbours in time"
    assert [pair.name for pair in sorted((tmp_path / "b").iterdir())] == ["pair-001", "pair-002", "pair-003", "pair-004"]
    assert pairs_in(tmp_path / "b", tmp_path).known == 3


def test_its_trials_have_a_key_of_the_calls_own(tmp_path: Path, commits: Commits) -> None:
    """What ends them by their key ends no trial of a night that runs beside them, nor one of a later call of the same bisection."""
    one, again = (pairs_in(tmp_path / "b", tmp_path) for _ in range(2))
    assert len({one.trial.key, again.trial.key, "aaaa0000000000ff"}) == 3
    one.measure(GOOD, BAD)
    assert commits.keys == [one.trial.key] * 2


def test_pairs_of_another_search_are_not_taken(tmp_path: Path, commits: Commits) -> None:
    first = pairs_in(tmp_path / "b", tmp_path)
    for _ in range(2):
        first.measure(GOOD, BAD)
    again = pairs_in(tmp_path / "b", tmp_path)
    again.measure(GOOD, OTHER)
    again.measure(GOOD, BAD)
    assert "".join(commits.ran) == "abab" + "acab"


@pytest.mark.parametrize("disturbed", [GOOD, BAD])
def test_a_pair_with_a_disturbed_side_says_so_unless_the_metric_is_a_loss(disturbed: str, tmp_path: Path, commits: Commits) -> None:
    commits.disturbed = {disturbed}
    assert pairs_in(tmp_path / "b", tmp_path).measure(GOOD, BAD).disturbed == "other work"
    assert pairs_in(tmp_path / "b", tmp_path).known == 0, "what was disturbed is not taken again"
    loss = pairs_in(tmp_path / "l", tmp_path, "final_loss").measure(GOOD, BAD)
    assert loss == PairValues(loss.first, loss.first, None)


def test_the_folder_is_that_of_the_same_question_until_it_is_answered(tmp_path: Path) -> None:
    trial = make_trial(tmp_path / "trial", "aaaa0000000000ff")
    trial = trial.model_copy(update={"key_parts": {"code": "1", "libraries": "one"}})
    asked = question(trial, "cell", "throughput", GOOD, BAD, 12)
    root = tmp_path / "bisect"
    folder = bisection_folder(root, asked)
    assert bisection_folder(root, asked) == folder
    edited = trial.model_copy(update={"key_parts": {"code": "2", "libraries": "one"}})
    assert bisection_folder(root, question(edited, "cell", "throughput", GOOD, BAD, 12)) == folder, "commits run code of their own"
    others = [
        question(trial.model_copy(update={"key_parts": {"code": "1", "libraries": "two"}}), "cell", "throughput", GOOD, BAD, 12),
        question(trial, "other", "throughput", GOOD, BAD, 12),
        question(trial, "cell", "final_loss", GOOD, BAD, 12),
        question(trial, "cell", "throughput", OTHER, BAD, 12),
        question(trial, "cell", "throughput", GOOD, OTHER, 12),
        question(trial, "cell", "throughput", GOOD, BAD, 13),
    ]
    assert len({folder, *(bisection_folder(root, other) for other in others)}) == 1 + len(others)
    for day in ("20990101", "20990102"):
        (root / f"{day}-000000-0000").mkdir()
        (root / f"{day}-000000-0000" / "question.json").write_bytes((folder / "question.json").read_bytes())
    assert bisection_folder(root, asked).name.startswith("20990102"), "the newest"
    for day in ("20990101", "20990102"):
        save_end(root / f"{day}-000000-0000", Bisection("found"))
    save_end(folder, Bisection("found"))
    assert bisection_folder(root, asked) != folder
    (folder / "question.json").write_text("{")
    bisection_folder(root, asked)  # a damaged one is no reason to fail
