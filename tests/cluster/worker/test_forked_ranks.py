"""Ranks that are forked from their supervisor: their ends, their variables, and what the supervisor learns of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPERVISOR = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
from cluster.worker import forked_ranks
from cluster.worker.forked_ranks import RankEntry, fork_rank, learn
from experiments.components import flop_count

def supervise(lesson, what):
    def run(arguments):
        import sched, colorsys
        flop_count.learn_counts({"model": 2.5})
        Path(arguments[0]).write_text(os.environ["RANK"])
        if what == "raise":
            raise ValueError("a rank's own error")
        if what == "sleep":
            time.sleep(600)
        return int(arguments[1])

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    rank = fork_rank(RankEntry(run, os._exit), [str(lesson) + ".rank", "3"], {"RANK": "1"}, socket.create_server(("127.0.0.1", 0)), lesson)
    if what == "sleep":
        while not (said := Path(str(lesson) + ".rank")).exists() or not said.read_text():  # it is made before it is written
            time.sleep(0.01)
        assert rank.poll() is None
        try:
            rank.wait(0.0)
        except subprocess.TimeoutExpired:
            rank.terminate()
    code = rank.wait(60)
    rank.kill()  # after its end: nobody is hit
    learn(lesson)
    imported = [name for name in forked_ranks.imported if name in ("colorsys", "sched")]
    found = [code, rank.poll(), "RANK" in os.environ, imported, flop_count.known_counts()]
    Path(str(lesson) + ".said").write_text(json.dumps(found))

for what in ("end", "raise", "sleep"):
    lesson = Path(sys.argv[1], what)
    supervisor = os.fork()  # each its own, of one process that imported torch
    if supervisor == 0:
        error = os.open(str(lesson) + ".error", os.O_WRONLY | os.O_CREAT)
        os.dup2(error, 2)
        supervise(lesson, what)
        os._exit(0)
    assert os.waitpid(supervisor, 0)[1] == 0, what
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what supervisors of ranks said that ended, raised and were told to end."""
    folder = tmp_path_factory.mktemp("ranks")
    done = subprocess.run([sys.executable, "-c", SUPERVISOR, str(folder)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + "".join(path.read_text() for path in folder.glob("*.error"))
    return folder


@pytest.mark.parametrize(
    ("what", "code", "learnt"), [("end", 3, True), ("raise", 1, False), ("sleep", -15, False)], ids=["ends", "raises", "is told to end"]
)
def test_a_forked_rank_ends_as_a_process_of_its_own(ended: Path, what: str, code: int, learnt: bool) -> None:
    said = json.loads((ended / f"{what}.said").read_text())
    assert said == [code, code, False, ["sched", "colorsys"] if learnt else [], {"model": 2.5} if learnt else {}]
    assert (ended / f"{what}.rank").read_text() == "1"
    assert ("a rank's own error" in (ended / f"{what}.error").read_text()) is (what == "raise")
