"""What of a command line is published."""

from __future__ import annotations

import pytest

from tests.kill.command_line import shown


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("/usr/bin/python3", "python3"),
        ("kill.yaml", "kill.yaml"),
        ("--log_dir=/tmp/ray/session_1/logs", "--log_dir=logs"),
        ("--log_dir=/tmp/ray/logs/", "--log_dir=logs"),
        ("sqlite:////tmp/sb-kill-x/runs/mlflow.db", "sqlite:mlflow.db"),
        ("file:///tmp/runs/mlartifacts", "file:mlartifacts"),
        ("http://127.0.0.1:5000/api/2.0", "http://127.0.0.1:5000/api/2.0"),
        ("postgresql://sb@/prefect?host=/tmp/sb/socket", "postgresql://sb@/prefect?host=socket"),
        ("--folders=/tmp/a/b:/home/me/c", "--folders=b:c"),
        ("open('/home/me/x.txt')", "open('x.txt')"),
        ("runs/one/log.txt", "runs/one/log.txt"),
        ("/", ""),
    ],
)
def test_paths_are_shown_by_their_last_name(word: str, said: str) -> None:
    assert shown([word]) == said


def test_words_are_joined_and_cut() -> None:
    assert shown(["/usr/bin/python", "-m", "ray", "--temp-dir=/tmp/x"]) == "python -m ray --temp-dir=x"
    assert shown(["a" * 200], 7) == "a" * 7
