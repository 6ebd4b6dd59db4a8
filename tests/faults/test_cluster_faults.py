"""What happens to trials on a cluster: hangs, heads and nodes that die, hosts out of memory, orphans (rows 2, 4, 5, 6, 22, 23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cluster import launchers
from cluster.launchers import processes, ray_job
from cluster.launchers.local import LocalLauncher
from cluster.pools.pool import Pool
from cluster.process_marks import MARK, NO_TRIAL
from cluster.process_variables import variables
from experiments.trial import Outcome
from tests.clusters_support import Cluster, Clusters
from tests.process_support import commands_of
from tests.running_support import Running, follow, launcher
from tests.shared_support import kept
from tests.stack_support import until

__all__ = ["follow"]  # a fixture
pytestmark = [pytest.mark.fault, pytest.mark.timeout(900)]
EXTRA = str(Path(__file__).parents[1] / "workloads_for_tests")


def test_row_4_two_ranks_that_wait_for_each_other_for_ever_are_a_hang(follow: Callable[..., Running], tmp_path: Path) -> None:
    embedded = LocalLauncher(Pool(name="cpu", device="cpu", address="embedded"))
    hung = follow(embedded, "ffff000000000004", devices=2, fault="hang", fault_rank=1)
    hung.until((tmp_path / "fault-fired").exists)  # rank 1 sleeps; rank 0 is inside a collective
    hung.until_step(2)
    hung.impatient(2.0)  # not earlier: on a busy machine two seconds without a record are normal before the first step
    result = hung.end()
    embedded.close()
    assert (result.outcome, result.reason) == (Outcome.HANG, "no progress for 2 s after step 2")
    assert processes.of_trial(hung.trial.key) == []


def test_row_1_a_rank_that_is_killed_while_its_loader_hangs_is_a_lost_worker(
    clusters: Clusters, follow: Callable[..., Running], tmp_path: Path
) -> None:
    """The loader's process has the sockets by which Ray knows the rank. Without its end the trial would be a hang, after ten minutes."""
    ray = launcher(clusters.b, resources={"bench_b": 1})
    running = follow(ray, "ffff000000000001", retries=0, devices=2, fault="kill_loading", steps=1_000_000)
    result = running.end()
    assert "kill_loading at step 3" in (tmp_path / "fault-fired").read_text()
    assert result.outcome is Outcome.INFRA and str(result.reason).startswith("worker_lost: "), result
    assert processes.of_trial(running.trial.key) == []


def test_row_23_a_cancelled_job_leaves_no_process(clusters: Clusters, follow: Callable[..., Running], tmp_path: Path) -> None:
    running = follow(launcher(clusters.b), "ffff000000000023", fault="setsid_child", steps=1_000_000)
    running.until((tmp_path / "fault-fired").exists)
    running.until_step(5)
    assert any("time.sleep(600)" in " ".join(command) for command in commands_of(running.trial.key).values())  # in its own session
    running.stop.set()
    assert running.end().outcome is Outcome.CANCELLED
    until(lambda: clusters.b.jobs()[f"{running.trial.key}-a1"] == "STOPPED")  # a launcher does not wait for long until Ray says so
    assert processes.of_trial(running.trial.key) == []


def template_of(running: Running) -> psutil.Process:
    """The process from which the trial was forked."""
    found = commands_of(running.trial.key).items()
    trial = next(process for process, command in found if "cluster.worker.template" in command)
    template = trial.parent()
    assert template is not None and variables(template)[MARK] == NO_TRIAL
    return template


def test_a_template_that_is_killed_costs_an_attempt(clusters: Clusters, follow: Callable[..., Running], tmp_path: Path) -> None:
    running = follow(launcher(clusters.b, resources={"bench_b": 1}), "ffff000000000024", retries=1, fault="hang")
    running.until((tmp_path / "fault-fired").exists)  # it does not come to its end before it is killed
    template_of(running).kill()
    result = running.end()
    first, second = running.store.results
    assert (first.outcome, first.attempt) == (Outcome.INFRA, 1)
    assert first.reason is not None and "the template process was ended, and its trial with it" in first.reason
    assert (second.outcome, second.attempt) == (Outcome.OK, 2) and result == second
    assert result.environment["start"] == "warm"
    assert processes.of_trial(running.trial.key) == []


@contextmanager
def ended(cluster: Cluster) -> Iterator[None]:
    """What a cluster without a head still runs ends with the block."""
    try:
        yield
    finally:
        if not cluster.has_head():
            cluster.stop()


def test_row_6_a_head_that_dies_under_a_trial_and_comes_back(clusters: Clusters, follow: Callable[..., Running], tmp_path: Path) -> None:
    """The trial waits for it, and runs again from the start."""
    with ended(clusters.b):
        running = follow(launcher(clusters.b), "ffff000000000006", fault="hang", steps=20)
        running.until((tmp_path / "fault-fired").exists)  # it does not come to its end before the head dies
        running.until_step(1)
        assert clusters.b.kill("gcs_server") == 1
        running.until(lambda: clusters.b.get("/api/jobs/")[0] != 200)
        clusters.b.stop()
        clusters.b.start()
        result = running.end()
    assert (result.outcome, result.attempt) == (Outcome.OK, 2)
    assert [step["step"] for step in running.journal().steps] == list(range(1, 23))


SPOT, SMALL = "bench_spot", "bench_small"  # nodes of a third cluster: one that a cloud takes back, one whose memory is always used up


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """A head and two nodes. Ray's monitor of the second kills what runs there: more than 1 % of a host's memory is always in use."""
    with kept("nodes") as ends:
        made = Cluster("nodes", nodes=True)
        ends.callback(made.close)
        made.start()
        made.add_node({SPOT: 2})
        made.add_node({SMALL: 2}, RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="100")
        yield made


def test_row_2_a_host_out_of_memory_is_bounded(nodes: Cluster, follow: Callable[..., Running]) -> None:
    running = follow(launcher(nodes, resources={SMALL: 1}), "ffff000000000002", retries=1, steps=1_000_000)
    result = running.end(240)
    assert result.outcome is Outcome.INFRA and result.attempt == 2  # bounded: as often as it may be tried
    assert [str(each.reason)[:8] for each in running.store.results] == ["host_oom"] * 2, running.store.results  # the fault fired


def test_row_5_a_drained_node_has_attempts_of_its_own_and_then_is_infra(nodes: Cluster, follow: Callable[..., Running]) -> None:
    ray = launcher(nodes, resources={SPOT: 1})
    running = follow(ray, "ffff000000000005", retries=0, wait_s=3, steps=1_000_000, step_sleep_s=0.01)
    running.until_step(3)
    ray.pool = ray.pool.model_copy(update={"start_timeout_s": 3.0})  # not earlier: on a busy machine Ray needs longer for the first
    assert nodes.drain(SPOT) == 1  # as a cloud announces that it takes a node back
    result = running.end(240)
    first, last = running.store.results  # without any retry there was a second attempt, which found no node in the time that it had
    assert (first.outcome, first.attempt) == (Outcome.INFRA, 1) and str(first.reason).startswith("preempted: "), first
    assert (result, last.outcome, last.attempt) == (last, Outcome.INFRA, 2)
    assert last.reason is not None and ("no node has room" in last.reason or "had room for it within 3 s" in last.reason), last


def test_row_22_two_sweeps_on_one_pool_never_share_a_node(clusters: Clusters, follow: Callable[..., Running]) -> None:
    """Two flows, each with its own idea of what is free (as on two machines): Ray gives the node to one after the other."""
    one, two = (
        follow(launcher(clusters.b, resources={"bench_b": 1}), f"ffff00000000022{number}", steps=20, step_sleep_s=0.2) for number in (1, 2)
    )
    one.until(lambda: all(launchers.load(each.folder) is not None for each in (one, two)))
    assert one.result is None and two.result is None  # both ask for the node at the same time
    assert (one.end().outcome, two.end().outcome) == (Outcome.OK, Outcome.OK)
    spans = sorted((journal.steps[0]["t"], journal.steps[-1]["t"]) for journal in (one.journal(), two.journal()))
    assert spans[0][1] < spans[1][0]
    assert one.journal().attempt == two.journal().attempt == 1


# Last: the head that it ends is started again only for a test that comes after
def test_row_6_a_head_that_dies_under_a_trial_and_stays_away(
    clusters: Clusters, follow: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detected, and the trial ends as infra after the stated time. Once the node's Ray is gone too, neither trial nor template is left."""
    with ended(clusters.b):
        running = follow(launcher(clusters.b), "ffff000000000060", wait_s=3, lost_after_s=1, steps=1_000_000, step_sleep_s=0.05)
        running.until_step(3)
        template = template_of(running)
        assert clusters.b.kill("gcs_server") == 1
        monkeypatch.setattr(ray_job, "_TIMEOUT_S", (1.0, 1.0))  # its dashboard takes requests for another minute
        running.until(lambda: clusters.b.get("/api/jobs/")[0] != 200)  # the fault is there
        result = running.end()
        (raylet,) = [process for process in clusters.b.processes() if process.name() == "raylet"]
        raylet.kill()
        template.wait(60)
        until(lambda: processes.of_trial(running.trial.key) == [])  # the shell by which Ray watches over a job sleeps up to a second
    assert result.outcome is Outcome.INFRA
    assert result.reason is not None and result.reason.endswith("(waited 3 s for the pool)"), result
    assert len(running.journal().steps) >= 3  # what was measured is kept
