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

lesson, what = Path(sys.argv[1]), sys.argv[2]

def run(arguments):
    import colorsys
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
print(json.dumps([code, rank.poll(), "RANK" in os.environ, "colorsys" in forked_ranks.imported, flop_count.known_counts()]))
"""


@pytest.mark.parametrize(
    ("what", "code", "learnt"), [("end", 3, True), ("raise", 1, False), ("sleep", -15, False)], ids=["ends", "raises", "is told to end"]
)
def test_a_forked_rank_ends_as_a_process_of_its_own(tmp_path: Path, what: str, code: int, learnt: bool) -> None:
    lesson = tmp_path / "lesson.json"
    done = subprocess.run([sys.executable, "-c", SUPERVISOR, str(lesson), what], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(done.stdout) == [code, code, False, learnt, {"model": 2.5} if learnt else {}]
    assert Path(f"{lesson}.rank").read_text() == "1"
    assert ("a rank's own error" in done.stderr) is (what == "raise")
