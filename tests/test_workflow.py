"""The workflow for pull requests in docs/operating.md: it is YAML, its scripts are bash, its command has these options, and it is safe."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from flows.cli.commands import app

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    text = (ROOT / "docs" / "operating.md").read_text()
    found = re.findall(r"^```yaml\n(name: sweep-ab\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return dict(yaml.load(found[0], yaml.BaseLoader))  # no objects, and `on` stays text


def scripts(workflow: dict[str, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


def test_its_scripts_are_bash_and_take_nothing_from_the_request_as_code(workflow: dict[str, Any]) -> None:
    assert len(scripts(workflow)) == 3
    for script in scripts(workflow):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        assert "${{" not in script, "a branch's name or a title would be run"


def test_its_command_has_the_options_that_it_uses(workflow: dict[str, Any]) -> None:
    (line,) = re.findall(r"\.venv/bin/sweep (ab .*) \|\| status=\$\?", "\n".join(scripts(workflow)))
    command = typer.main.get_command(app).commands["ab"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in line.split() if word.startswith("--")} <= known
    assert "--changed" in line and "--markdown result/comment.md" in line
    assert re.search(r"^setup:", (ROOT / "Makefile").read_text(), re.MULTILINE) and "make setup" in "\n".join(scripts(workflow))


def test_forks_do_not_reach_the_runner_and_it_may_write_nothing(workflow: dict[str, Any]) -> None:
    assert set(workflow["on"]) == {"pull_request"}, "not pull_request_target, which has rights that a fork must not have"
    assert workflow["permissions"] == {"contents": "read"}
    measure, comment = workflow["jobs"]["measure"], workflow["jobs"]["comment"]
    assert measure["if"] == "github.event.pull_request.head.repo.full_name == github.repository"
    assert "self-hosted" in measure["runs-on"] and "permissions" not in measure
    assert comment["permissions"] == {"pull-requests": "write"} and "self-hosted" not in comment["runs-on"]
    checkout = measure["steps"][0]["with"]
    assert (checkout["fetch-depth"], checkout["persist-credentials"]) == ("0", "false")
    assert all("actions/checkout" not in step.get("uses", "") for step in comment["steps"])
