"""Pools on two real Ray clusters: one sweep over both, a pool that is down, a flow that is killed, and what a pool refuses."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster import launchers, process_marks
from cluster.journal.journal import read_journal
from cluster.journal.object_store import Storage, join
from cluster.launchers import LaunchError, LaunchRefused
from cluster.launchers.ray_job import RayJobLauncher
from cluster.pools.pool import Pool
from cluster.pools.probe import probe
from experiments.trial import Outcome
from tasks.sweep.store import SweepStore
from tests.cli_support import only_store, start, sweep, sweep_json, until
from tests.clusters_support import Clusters, write_pools
from tests.contracts import make_trial
from tests.mlflow_support import check_projection
from tests.ports_support import free_port

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def steps(store: SweepStore, pool: str) -> int:
    trial = next(trial for trial in store.load_plan().trials if trial.pool == pool)
    return len(read_journal(store.trial_dir(trial.key) / "journal.jsonl").steps)


def jobs_of(store: SweepStore, clusters: Clusters, pool: str) -> dict[str, str]:
    keys = {trial.key for trial in store.load_plan().trials if trial.pool == pool}
    cluster = clusters.a if pool == "a" else clusters.b
    return {name: state for name, state in cluster.jobs().items() if name.split("-")[0] in keys}


@pytest.mark.usefixtures("mlflow_database")
def test_one_sweep_over_two_clusters_with_a_third_that_is_down_and_a_flow_that_is_killed(
    clusters: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: str
) -> None:
    entries = clusters.entries()
    port = free_port()
    down = {**clusters.b.entry(storage=str(tmp_path / "nfs")), "address": f"http://127.0.0.1:{port}"}
    pools = write_pools(tmp_path / "pools.yaml", {**entries, "c": down})
    elsewhere = {"RAY_API_SERVER_ADDRESS": down["address"], "RAY_ADDRESS": clusters.b.url}  # what Ray's client prefers to a given address
    more = {"SWEEPBENCH_POOLS": str(pools), "PREFECT_API_URL": prefect_server, **clusters.credentials, **elsewhere}
    orphan = subprocess.Popen(
        ["sleep", "600"], env={**os.environ, process_marks.MARK: "0" * 16, process_marks.POOL_MARK: "a"}, start_new_session=True
    )

    # Long enough to run on while the flow is killed and both heads are asked for their jobs
    slow = ["slow", "--only", "seed=0", "--set", "step_sleep_s=1.0"]
    flow = start("run", *slow, *("--pool", "a", "--pool", "b", "--pool", "c"), "--pool-wait", "10", folder=tmp_path, **more)

    def under_way() -> SweepStore | None:
        store = only_store()
        if store is None:
            return None
        plan = store.load_plan()
        lost = next(trial for trial in plan.trials if trial.pool == "c")
        begun = all(launchers.load(store.trial_dir(trial.key)) for trial in plan.trials if trial is not lost)
        return store if begun and store.result(lost.key) and max(steps(store, "a"), steps(store, "b")) > 2 else None

    store = until(under_way, flow)  # both at once, followed live: a over S3
    os.kill(flow.pid, signal.SIGKILL)
    text, _ = flow.communicate()
    assert flow.returncode == -signal.SIGKILL
    url = down["address"]
    assert f"pool c: at {url} does not answer" in text and "its trials wait until" in text  # the board says what is wrong
    plan = store.load_plan()
    by_pool = {trial.pool: trial for trial in plan.trials}
    lost = store.result(by_pool["c"].key)
    assert lost is not None and lost.outcome is Outcome.INFRA
    assert lost.reason is not None and lost.reason.startswith(f"not started: pool c at {url} does not answer")
    assert lost.reason.endswith("(waited 10 s for the pool)")
    for pool in ("a", "b"):
        assert list(jobs_of(store, clusters, pool).values()) == ["RUNNING"]  # the fault left them running

    write_pools(pools, {**entries, "c": clusters.b.entry(storage=str(tmp_path / "nfs"))})  # the third is back
    status, text = sweep("resume", "last", folder=tmp_path, **more)
    assert status == 0, text
    results = {trial.pool: store.result(trial.key) for trial in plan.trials}
    assert {pool: (result.outcome, result.attempt) for pool, result in results.items() if result} == dict.fromkeys(
        ("a", "b", "c"), (Outcome.OK, 1)
    )
    for pool, trial in by_pool.items():
        assert list(jobs_of(store, clusters, pool)) == [f"{trial.key}-a1"]  # followed by its id: nothing ran twice
        journal = read_journal(store.trial_dir(trial.key) / "journal.jsonl")
        assert [step["step"] for step in journal.steps] == list(range(1, 25))
    check_projection(store)

    s3 = Storage(join(clusters.storage, store.sweep_id, by_pool["a"].key))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    names = s3.names()
    assert {"trial.json", "result-a1.json", "journal-a1/0-00000000.jsonl", "steps.parquet"} <= set(names)
    assert len([name for name in names if name.startswith("journal-a1/")]) > 3  # sent while it ran
    assert (tmp_path / "nfs" / store.sweep_id / by_pool["c"].key / "result-a1.json").exists()

    assert orphan.wait(timeout=120) == -signal.SIGKILL
    notes = [note["text"] for note in read_journal(store.trial_dir(by_pool["a"].key) / "journal.jsonl").notes]
    assert any(f"ended process {orphan.pid} (sleep 600), which trial {'0' * 16} had left" in note for note in notes)


def launcher(clusters: Clusters, pool: str, **changes: Any) -> RayJobLauncher:
    return RayJobLauncher(Pool.model_validate({"name": pool, **clusters.entries()[pool], **changes}))


def test_what_sweep_pools_says(clusters: Clusters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = clusters.entries()
    entries["c"] = {**entries["b"], "resources": {"absent": 1}}
    entries["d"] = {**entries["b"], "nodes": 2}
    entries["e"] = {**entries["b"], "token_file": str(clusters.a.token)}
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(write_pools(tmp_path / "pools.yaml", entries)))

    def asked() -> dict[str, Any] | None:
        found = {row["name"]: row for row in sweep_json("pools", folder=tmp_path)}
        late = any("did not answer within" in str(row["problem"]) for row in found.values())
        return None if late or None in (found["a"]["free"], found["b"]["free"]) else found

    rows = until(asked, None)  # a busy head answers late, and one that has just started does not know yet what is in use
    for name in ("a", "b"):
        row = rows[name]
        assert (row["reachable"], row["total"], row["problem"]) == (True, 4, None)
        assert 0 <= row["free"] <= 4  # of what other tests ran something may just be ending
        assert row["ray"] and row["python"]
    assert rows["c"]["problem"] == "no node has CPU and absent now; trials wait until one joins"
    assert rows["d"]["problem"] == "1 of 2 nodes are there"
    assert not rows["e"]["reachable"] and "refuses the token" in rows["e"]["problem"]


def test_a_wrong_token_and_a_request_that_no_node_can_meet(clusters: Clusters, tmp_path: Path) -> None:
    trial = make_trial(tmp_path, "eeee000000000001", devices=1)
    before = clusters.b.jobs()
    with pytest.raises(LaunchRefused, match=rf"pool b at {clusters.b.url} refuses the token of {clusters.a.token}"):
        launcher(clusters, "b", token_file=str(clusters.a.token)).start(trial, tmp_path, 1)
    with pytest.raises(LaunchError, match=r"no node has room for 1 worker\(s\) with CPU 1, absent 1\.99 each"):
        launcher(clusters, "b", resources={"absent": 1}).start(trial, tmp_path, 1)
    wide = make_trial(tmp_path, "eeee000000000001", devices=2, threads=64)
    with pytest.raises(LaunchError, match=r"no node has room for 2 worker\(s\) with CPU 64, bench_b 0\.995 each") as caught:
        launcher(clusters, "b").start(wide, tmp_path, 1)
    assert not isinstance(caught.value, LaunchRefused)  # a node may still join
    assert clusters.b.jobs() == before


@contextmanager
def speaking_of(url: str, path: str, changes: dict[str, Any]) -> Iterator[str]:
    """A proxy before a real head that changes what it says of itself."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {"Authorization": self.headers.get("Authorization", "")}
            try:
                with urllib.request.urlopen(urllib.request.Request(url + self.path, headers=headers), timeout=120) as reply:
                    status, body = reply.status, reply.read()
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read()
            if self.path.startswith(path):
                found = json.loads(body)
                found.get("data", found).update(changes)
                body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "changes", "problem"),
    [
        ("/api/version", {"ray_version": "2.44.1"}, r"it runs Ray 2\.44\.1, sweepbench here \S+; put ray\[default,train\]==2\.60\.\* into"),
        ("/api/v0/cluster_metadata", {"pythonVersion": "3.10.12"}, r"it runs Python 3\.10\.12; the worker needs 3\.11 or 3\.12 in"),
    ],
)
def test_another_version_is_named_before_anything_is_submitted(
    clusters: Clusters, tmp_path: Path, path: str, changes: dict[str, str], problem: str
) -> None:
    trial = make_trial(tmp_path, "eeee000000000002")
    before = clusters.b.jobs()
    with speaking_of(clusters.b.url, path, changes) as url:
        other = launcher(clusters, "b", address=url)
        with pytest.raises(LaunchRefused, match=rf"pool b at {url}: {problem}"):
            other.start(trial, tmp_path, 1)
        state = probe(other.pool, timeout_s=120.0)
        assert state.reachable and state.problem is not None and "it runs" in state.problem
    assert clusters.b.jobs() == before


def test_a_job_that_is_stopped_while_it_is_pending_never_runs(clusters: Clusters, tmp_path: Path) -> None:
    """Ray says that it stopped such a job, and keeps it: what it starts later must see that it was withdrawn."""
    ray = launcher(clusters, "b", resources={"absent": 1}, autoscales=True)
    trial = make_trial(tmp_path, "eeee000000000003")
    launch = ray.start(trial, tmp_path, 1)
    status = ray.status(launch)
    assert status.running and status.pending  # the fault is there
    ray.stop(launch, grace_s=0.5)
    left = clusters.b.jobs()[launch.id]
    arguments = ["--trial", str(tmp_path / "trial.json"), "--out", str(tmp_path), "--attempt", "1", "--placement", "{}"]
    done = subprocess.run([sys.executable, "-m", "cluster.worker.main", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "was stopped before it began" in done.stderr
    assert not (tmp_path / "journal.jsonl").exists() and not (tmp_path / "result.json").exists()
    assert left in ("PENDING", "STOPPED")
