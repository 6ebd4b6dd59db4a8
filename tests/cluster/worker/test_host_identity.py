"""The opaque id of a host: what tells hosts apart, and that nothing of it can be read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cluster.devices.cpu import Cpu
from cluster.worker import host_identity
from cluster.worker.environment import environment
from cluster.worker.host_identity import host_id


def test_a_host_is_its_machine_id_and_all_its_accelerators(tmp_path: Path) -> None:
    machine = tmp_path / "machine-id"
    machine.write_text("0123abcd\n")
    found = host_id(["GPU-b", "GPU-a"], machine)
    assert found == hashlib.sha256(b"sweepbench host\x000123abcd\x00GPU-a\x00GPU-b").hexdigest()[:12]
    assert found == host_id(["GPU-a", "GPU-b"], machine), "in any order"
    others = [host_id(["GPU-a"], machine), host_id([], machine), host_id(["GPU-c", "GPU-a"], machine)]
    assert len({found, *others}) == 4, "machines of one image have other accelerators"


def test_without_a_machine_id_it_is_of_the_hosts_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("\n")
    found = {}
    for name in ("one", "two"):
        monkeypatch.setattr(host_identity.socket, "gethostname", lambda name=name: name)
        found[name] = host_id([], tmp_path / "none")
        assert found[name] == host_id([], tmp_path / "empty")
    assert found["one"] != found["two"] and "one" not in found["one"]


def test_every_trial_says_which_code_and_which_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_GIT_COMMIT", "c" * 40)
    facts = environment(Cpu(), 1, 1)
    assert (facts["git_commit"], facts["git_checked"]) == ("c" * 40, False)
    assert len(facts["tree"]) == 16 and len(facts["host_id"]) == 12
