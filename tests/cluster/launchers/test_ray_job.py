"""What the launcher of Ray clusters asks Ray for, without a cluster."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from ray._private.runtime_env import packaging
from ray.dashboard.modules import dashboard_sdk

from cluster.journal.object_store import Storage, StorageError
from cluster.launchers import Launch, LaunchError, code_package, ray_job
from cluster.launchers.code_package import Package
from cluster.launchers.ray_job import RayJobLauncher
from cluster.pools.pool import Pool
from cluster.process_marks import MARK
from cluster.trial_layout import attempt_result, attempt_trace, journal_segment, withdrawal
from tests.contracts import make_trial

KEY = "cafe000000000001"


class Head:
    """In place of Ray's client."""

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.status = "PENDING"
        self.error: Exception | None = None
        self.node: str | None = None

    def submit_job(self, **values: Any) -> None:
        self.submitted.append(values)

    def get_job_info(self, submission_id: str) -> SimpleNamespace:
        if self.error:
            raise self.error
        return SimpleNamespace(status=SimpleNamespace(value=self.status), driver_exit_code=None, message="waits", driver_node_id=self.node)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    made = Head()
    monkeypatch.setattr(RayJobLauncher, "_client", lambda self: made)
    monkeypatch.setattr(ray_job, "admit", lambda pool, placement: None)
    monkeypatch.setattr(code_package, "build", lambda root: Package(Path("/packages/0123"), {"SWEEPBENCH_COMMIT": "abc"}))
    return made


def launcher(**values: Any) -> RayJobLauncher:
    return RayJobLauncher(Pool(**{"name": "p", "device": "cpu", "address": "http://h:8265", **values}))


def entrypoint(head: Head, ray: RayJobLauncher, folder: Path, key: str = KEY, workload: str = "synthetic", **parameters: Any) -> list[str]:
    trial = make_trial(folder, key, workload, **parameters)
    trial = trial.model_copy(update={"device": ray.pool.device})
    ray.start(trial, folder, 1)
    words: list[str] = head.submitted[-1]["entrypoint"].split()
    return words


def test_a_trial_with_one_worker_is_forked_from_a_template(head: Head, tmp_path: Path) -> None:
    words = entrypoint(head, launcher(), tmp_path, threads=2)
    assert words[:4] == ["python", "-m", "cluster.worker.warm_job", "--template"] and words[5:8] == ["--workload", "synthetic", "--"]
    assert words[8:] == ["--trial", f"{tmp_path}/trial.json", "--out", str(tmp_path), "--attempt", "1"]
    (submitted,) = head.submitted
    assert (submitted["entrypoint_num_cpus"], submitted["entrypoint_num_gpus"], submitted["entrypoint_resources"]) == (2, None, None)
    assert submitted["runtime_env"]["env_vars"][MARK] == KEY


def test_on_request_and_on_hpu_and_with_several_workers_it_starts_afresh(head: Head, tmp_path: Path) -> None:
    fresh = ["python", "-m", "cluster.worker.main", "--trial"]
    words = entrypoint(head, launcher(start="fresh"), tmp_path)
    assert words[:4] == fresh and "--placement" not in words, "it runs in the job all the same, which holds its resources"
    assert head.submitted[-1]["entrypoint_num_cpus"] == 1
    for pool, devices in ((launcher(device="hpu", resources={"g": 1}), 1), (launcher(), 2)):
        words = entrypoint(head, pool, tmp_path, devices=devices)
        assert words[:4] == fresh and "--placement" in words
        assert "entrypoint_num_cpus" not in head.submitted[-1]


def test_trials_share_a_template_if_their_imports_are_the_same(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def template(pool: RayJobLauncher, **more: Any) -> str:
        return entrypoint(head, pool, tmp_path, **more)[4]

    key = template(launcher())
    assert len(key) == 16
    assert template(launcher(), key="cafe000000000002", steps=9) == key
    others = [
        template(launcher(python="python3.12")),
        template(launcher(env={"OMP_WAIT_POLICY": "active"})),
        template(launcher(), workload="canary"),
        template(launcher(), threads=2),  # Ray gives the job as many CPUs, and OMP_NUM_THREADS with them
    ]
    monkeypatch.setattr(code_package, "build", lambda root: Package(Path("/packages/4567"), {"SWEEPBENCH_COMMIT": "abc"}))
    others.append(template(launcher()))
    assert len({key, *others}) == 1 + len(others)


def test_a_job_that_ray_does_not_start_is_overdue(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(ray_job, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    ray, scales = launcher(start_timeout_s=60), launcher(start_timeout_s=60, autoscales=True)
    launch = ray.start(make_trial(tmp_path, KEY), tmp_path, 1)
    for passed, overdue in ((0.0, None), (60.0, None), (60.1, "no node of pool p had room for it within 60 s")):
        clock[0] = 1000.0 + passed
        status = ray.status(launch)
        assert (status.running, status.pending, status.overdue) == (True, True, overdue)
        assert scales.status(launch).overdue is None, "a node may be on its way"
    head.status = "RUNNING"
    assert ray.status(launch).overdue is None


def test_only_a_head_that_does_not_know_a_job_has_lost_it(head: Head) -> None:
    """The texts are those of Ray's client, whose errors of the network hold the URL, and so the trial's key and the port."""
    launch = Launch(launcher="ray_job", key="ab12404c5d6e7f80", attempt=1, id="ab12404c5d6e7f80-a1")
    where = f"HTTPConnectionPool(host='h', port=40404): Max retries exceeded with url: /api/jobs/{launch.id}"
    lasting = [
        requests.ConnectionError(f"{where} (Caused by NewConnectionError: Connection refused)"),
        requests.ReadTimeout(where),
        RuntimeError("Request failed with status code 500: the file of job 404 does not exist."),
        RuntimeError("Request failed with status code 503: status code 404"),
    ]
    for head.error in lasting:
        with pytest.raises(LaunchError, match="pool p at http://h:8265 does not answer: "):
            launcher().status(launch)
    head.error = RuntimeError(f"Request failed with status code 404: Job {launch.id} does not exist.")
    status = launcher().status(launch)
    assert (status.running, status.exit_code) == (False, None)
    assert status.message == f"pool p does not know job {launch.id}: its head was restarted"


def test_what_a_cluster_keeps_of_earlier_attempts_takes_their_numbers(head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial's folder was moved away: under the old number the old job, or its result on the storage, would be the new one's."""
    ray, trial = launcher(), make_trial(tmp_path, KEY)
    jobs = {f"{KEY}-a1": "SUCCEEDED", f"{KEY}-a2": "STOPPED", f"{KEY}-a3": "FAILED"}

    def info(submission_id: str) -> SimpleNamespace:
        if submission_id not in jobs:
            raise RuntimeError(f"Request failed with status code 404: Job {submission_id} does not exist.")
        return SimpleNamespace(status=SimpleNamespace(value=jobs[submission_id]))

    monkeypatch.setattr(head, "get_job_info", info)
    assert [ray.free_number(trial, tmp_path, attempt) for attempt in (1, 4, 7)] == [4, 4, 7]
    jobs[f"{KEY}-a2"] = "RUNNING"
    assert ray.free_number(trial, tmp_path, 1) == 2, "it is followed"
    jobs.clear()  # the head was restarted; the storage has what they wrote
    assert ray.free_number(trial, tmp_path, 1) == 1
    ray = launcher(storage=str(tmp_path / "store"))
    store = Storage(ray.files.folder(trial, tmp_path))
    assert ray.free_number(trial, tmp_path, 1) == 1
    for name in ("trial.json", attempt_result(1), journal_segment(2, 0, 3), attempt_trace(3), withdrawal(14)):
        store.put(name, b"")
    assert [ray.free_number(trial, tmp_path, attempt) for attempt in (1, 5, 14)] == [4, 5, 15]
    monkeypatch.setattr(Storage, "names", lambda storage: raise_(StorageError("storage s3://b: no answer")))
    with pytest.raises(LaunchError, match="pool p: storage s3://b: no answer"):
        ray.free_number(trial, tmp_path, 1)


def raise_(error: Exception) -> None:
    raise error


def test_a_job_that_was_about_to_be_submitted_is_asked_for(head: Head, tmp_path: Path) -> None:
    """Its id is known before."""
    ray, trial = launcher(), make_trial(tmp_path, KEY)
    starting = ray.starting(trial, tmp_path, 3)
    assert starting == ray.start(trial, tmp_path, 3).model_copy(update={"starting": True}) and starting.id == f"{KEY}-a3"
    for head.status in ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"):
        assert ray.find_started(starting) == starting.model_copy(update={"starting": False})
    head.error = requests.ReadTimeout("no answer")
    with pytest.raises(LaunchError, match="does not answer"):
        ray.find_started(starting)
    head.error = RuntimeError(f"Request failed with status code 404: Job {starting.id} does not exist.")
    assert ray.find_started(starting) is None and not ray.status(starting).running
    ray.stop(starting)


@pytest.mark.parametrize("name", [journal_segment(3, 0, 0), attempt_result(3), withdrawal(3)])
def test_what_an_attempt_left_on_the_storage_tells_of_it_where_the_head_was_restarted(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its flow was killed in its start: a second job of the same number would write over the first one's journal, or be withdrawn."""
    ray, trial = launcher(storage=str(tmp_path / "store")), make_trial(tmp_path, KEY)
    starting, store = ray.starting(trial, tmp_path, 3), Storage(ray.files.folder(trial, tmp_path))
    head.error = RuntimeError(f"Request failed with status code 404: Job {starting.id} does not exist.")
    for other in ("trial.json", journal_segment(2, 0, 0), attempt_result(4)):
        store.put(other, b"")
    assert ray.find_started(starting) is None
    store.put(name, b"")
    assert ray.find_started(starting) == starting.model_copy(update={"starting": False})
    monkeypatch.setattr(Storage, "names", lambda storage: raise_(StorageError("storage s3://b: no answer")))
    with pytest.raises(LaunchError, match="pool p: storage s3://b: no answer"):
        ray.find_started(starting)


def test_a_running_job_whose_node_ray_has_lost_is_over(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray says RUNNING for ever where the raylet of its head's node has died."""
    clock, asked, lost = [1000.0], list[str](), dict[str, str]()
    monkeypatch.setattr(ray_job, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(ray_job, "lost_node", lambda pool, node: asked.append(node) or lost.get(node))
    ray, launch = launcher(), Launch(launcher="ray_job", key=KEY, attempt=1, id=f"{KEY}-a1")
    head.node = "n1"
    assert ray.status(launch).pending and not asked, "it has not begun"
    head.status = "RUNNING"
    for passed, times in ((0.0, 1), (4.9, 1), (5.0, 2)):
        clock[0] = 1000.0 + passed
        assert ray.status(launch).running and asked == ["n1"] * times
    lost["n1"] = "Unexpected termination: health check failed"
    clock[0] += 5.0
    for _ in range(2):  # it stays lost
        status = ray.status(launch)
        assert (status.running, status.exit_code, len(asked)) == (False, None, 3)
        assert status.message == "pool p has lost its node: Unexpected termination: health check failed"
    ray.stop(launch)  # asks Ray for nothing: it would answer with status 500
    head.node = None
    assert launcher().status(launch).running, "an older Ray does not say where a job runs"


def test_rays_client_does_not_log_each_upload() -> None:
    """Two lines for each trial stood on the terminal, among those of the trials."""
    loggers = [dashboard_sdk.logger, packaging.default_logger]
    for logger in loggers:
        logger.setLevel("INFO")
    with pytest.raises(LaunchError, match="does not answer"):
        launcher(address="http://127.0.0.1:9")._client()
    assert [(logger.isEnabledFor(logging.INFO), logger.isEnabledFor(logging.WARNING)) for logger in loggers] == [(False, True)] * 2
