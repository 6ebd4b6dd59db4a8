"""The launcher of Ray clusters: each trial is a job of the cluster's Job Submission API.

A trial with several workers runs a stock TorchTrainer; one with a single worker runs in the job itself, which holds the worker's resources.

The job outlives the process that submitted it and is found again by its submission id, `<trial key>-a<attempt>`. Submitting the same
attempt twice starts one job, also if the first process died before it could note that the job was submitted.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import time
from collections.abc import Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

from cluster import trial_layout
from cluster.journal.lines import Record
from cluster.journal.object_store import StorageError
from cluster.launchers import Launch, LaunchError, LaunchRefused, Status, code_package, processes
from cluster.launchers.code_package import Package
from cluster.launchers.command import WARM_DEVICES, job_environment, trial_command, warm_command
from cluster.launchers.shared_files import SharedFiles
from cluster.launchers.variant import variant_of
from cluster.pools.errors import PoolError, PoolRefused
from cluster.pools.placement import Placement, of_job, place
from cluster.pools.pool import Pool
from cluster.pools.probe import admit, lost_node
from cluster.process_marks import MARK
from experiments.atomic_file import atomic_write
from experiments.config.error_text import first_line
from experiments.config.paths import REPOSITORY
from experiments.trial import Trial, digest

_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
_TIMEOUT_S = (5.0, 10.0)  # to connect, to answer
_ASK_NODE_S = 5.0  # from one look at a running job's node to the next; Ray itself takes some 15 s to give a node up
_UNKNOWN_JOB = "Request failed with status code 404:"  # Ray's client has no type for it; other errors may hold a URL, and any number in it


class RayJobLauncher:
    """Runs trials as Ray jobs on the cluster at `pool.address`, with the pool's token."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.files = SharedFiles(pool)
        self._client_: Any = None
        self._pending_since: dict[str, float] = {}
        self._nodes: dict[str, tuple[float, str | None]] = {}  # launch -> when its node was asked for, and why it is lost

    def free_number(self, trial: Trial, trial_dir: Path, attempt: int) -> int:
        """A job that runs keeps its number: it is followed. One that is over would be taken for the new one, and so would its files."""
        kept = self._on_storage(self.files.folder(trial, trial_dir))
        while True:
            job = self._details(self._launch(trial, trial_dir, attempt))
            if (attempt not in kept) if job is None else (job.status.value not in _OVER):
                return attempt
            attempt += 1

    def _on_storage(self, folder: str) -> set[int]:
        """The numbers of the attempts of which the pool's storage has something. Raises LaunchError."""
        try:
            return self.files.attempts(folder)
        except StorageError as error:
            raise LaunchError(f"pool {self.pool.name}: {error}") from error

    def starting(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        return self._launch(trial, trial_dir, attempt).model_copy(update={"starting": True})

    def end_earlier(self, trial: Trial) -> None:
        """Nothing: a job's id has its attempt's number, and it waits itself for the end of those before it, which may be on other hosts."""

    def start(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        launch = self._launch(trial, trial_dir, attempt)
        folder = self.files.folder(trial, trial_dir)
        client, variant = self._client(), variant_of(trial, self.pool)
        placement = place(self.pool, trial.parameters)
        try:
            admit(self.pool, placement)
            self.files.send(trial, folder, variant.text)
            code = code_package.build(variant.tree or REPOSITORY)
        except PoolRefused as error:
            raise LaunchRefused(str(error)) from error
        except (PoolError, StorageError) as error:
            raise LaunchError(str(error)) from error
        except code_package.PackageError as error:
            raise LaunchRefused(str(error)) from error
        store = folder if self.pool.storage else None
        arguments = trial_command(trial_dir, attempt, store=store, told=variant.write(trial, trial_dir))
        environment = {**job_environment(trial, self.pool), **code.environment}
        if not placement.in_job:
            arguments += ["--placement", placement.model_dump_json()]
        elif self.pool.start == "warm" and trial.device in WARM_DEVICES and variant.has("warm_job"):
            arguments = warm_command(self._template_key(trial, placement, code, environment), trial.workload, arguments)
        try:
            client.submit_job(
                entrypoint=shlex.join([self._python, *arguments]),
                submission_id=launch.id,
                runtime_env={"working_dir": str(code.folder), "env_vars": environment},
                metadata={"job_name": trial.name, "sweep.id": trial.sweep_id, "trial.key": trial.key},  # the dashboard shows job_name
                **of_job(placement),
            )
        except Exception as error:
            if "already exists" in str(error):  # the reply to an earlier submission was lost: the job is ours
                return launch
            raise self._failed("cannot submit a job", error) from error
        return launch

    def status(self, launch: Launch) -> Status:
        details = self._details(launch)
        if details is None:
            return Status(running=False, message=f"pool {self.pool.name} does not know job {launch.id}: its head was restarted")
        state = details.status.value
        if state == "RUNNING" and (lost := self._lost(launch, details.driver_node_id)):
            return Status(running=False, message=f"pool {self.pool.name} has lost its node: {lost}")
        pending = state == "PENDING"
        return Status(
            running=state not in _OVER,
            pending=pending,
            overdue=self._overdue(launch) if pending else None,
            exit_code=details.driver_exit_code if state in _OVER else None,
            message=details.message if state in ("FAILED", "PENDING") else None,
        )

    def _details(self, launch: Launch) -> Any:
        """What the cluster knows of the job; None where it does not know it. Raises LaunchError."""
        try:
            return self._client().get_job_info(launch.id)
        except LaunchError:
            raise
        except Exception as error:
            if str(error).startswith(_UNKNOWN_JOB):
                return None
            raise self._failed("does not answer", error) from error

    def _lost(self, launch: Launch, node: str | None) -> str | None:
        """Why the node of a running job is lost; None while it is not.

        Ray follows a job from its head's node: where that one's raylet has died, the job stays RUNNING for ever, and cannot be stopped.
        """
        asked_at, why = self._nodes.get(launch.id, (-math.inf, None))
        if node is None or why is not None or time.monotonic() - asked_at < _ASK_NODE_S:
            return why
        why = lost_node(self.pool, node)
        self._nodes[launch.id] = time.monotonic(), why
        return why

    def _overdue(self, launch: Launch) -> str | None:
        """Why a pending job is waited for no longer; None while it is. Counts from when this process first saw it pending."""
        limit_s, now = self.pool.start_timeout_s, time.monotonic()
        if self.pool.autoscales or now - self._pending_since.setdefault(launch.id, now) <= limit_s:
            return None
        return f"no node of pool {self.pool.name} had room for it within {limit_s:g} s"

    def fetch(self, launch: Launch, trial_dir: Path, *, last: bool = False) -> None:
        try:
            self.files.fetch(launch, trial_dir, last=last)
        except StorageError as error:
            raise LaunchError(f"pool {self.pool.name}: {error}") from error

    def keep(self, launch: Launch, trial_dir: Path) -> None:
        try:
            self.files.keep(launch, trial_dir)
        except StorageError as error:
            raise LaunchError(f"pool {self.pool.name}: {error}") from error

    def stop(self, launch: Launch, grace_s: float = 5.0) -> None:
        status = self.status(launch)
        if status.pending:  # Ray reports a pending job as stopped and still starts it later
            self._withdraw(launch)
        if status.running:
            try:
                self._client().stop_job(launch.id)
            except LaunchError:
                raise
            except Exception as error:
                raise self._failed("cannot stop a job", error) from error
            deadline = time.monotonic() + grace_s
            while self.status(launch).running and time.monotonic() < deadline:
                time.sleep(0.1)
        processes.end_all(launch.key)  # on this machine; elsewhere: Ray's supervisor, worker/leftovers.py

    def stop_lost(self, trial: Trial, trial_dir: Path, attempt: int) -> None:
        self.stop(self._launch(trial, trial_dir, attempt))

    def find_started(self, launch: Launch) -> Launch | None:
        """A head that was restarted knows no job that began before. What the attempt wrote to the pool's storage then tells of it: the next
        one of the same number would write over that, and be taken for it."""
        if self._details(launch) is None and (launch.folder is None or launch.attempt not in self._on_storage(launch.folder)):
            return None
        return launch.model_copy(update={"starting": False})

    def find_lost(self, trial: Trial, trial_dir: Path, begun: Record) -> Launch:
        return self._launch(trial, trial_dir, begun["attempt"])

    def log(self, launch: Launch, trial_dir: Path) -> str:
        try:
            text: str = self._client().get_job_logs(launch.id)
        except Exception as error:
            return f"(the log of job {launch.id} cannot be read: {first_line(error)})\n"
        return text

    def close(self) -> None:
        """Nothing is kept: each trial is a job of its own."""

    def _launch(self, trial: Trial, trial_dir: Path, attempt: int) -> Launch:
        folder = self.files.folder(trial, trial_dir)
        return Launch(launcher="ray_job", key=trial.key, attempt=attempt, id=f"{trial.key}-a{attempt}", folder=folder)

    @property
    def _python(self) -> str:
        return self.pool.python or "python"

    def _template_key(self, trial: Trial, placement: Placement, code: Package, environment: Mapping[str, str]) -> str:
        """What a template may share: jobs with the same Python, code, workload and variables. Ray derives OMP_NUM_THREADS from the CPUs."""
        shared = {name: value for name, value in environment.items() if name != MARK}
        return digest([self._python, code.folder.name, trial.workload, shared, placement.per_worker["CPU"]])

    def _withdraw(self, launch: Launch) -> None:
        name = trial_layout.withdrawal(launch.attempt)
        try:
            if self.pool.storage and launch.folder:
                self.files.storage(launch.folder).put(name, b"")
            elif launch.folder:
                atomic_write(Path(launch.folder) / name, json.dumps({"at": time.time()}))
        except (StorageError, OSError) as error:
            raise LaunchError(f"pool {self.pool.name}: job {launch.id} waits to be started and cannot be withdrawn: {error}") from error

    def _client(self) -> Any:
        if self._client_ is None:
            from ray.job_submission import JobSubmissionClient  # takes about a second to import

            class Client(JobSubmissionClient):  # type: ignore[misc]
                """With a timeout: Ray's client waits for ever if the head accepts a request and does not answer, as without its GCS."""

                def _do_request(self, method: str, endpoint: str, **more: Any) -> Any:
                    return super()._do_request(method, endpoint, **{"timeout": _TIMEOUT_S, **more})

            try:
                url, token = self.pool.url(), self.pool.token()
            except PoolError as error:
                raise LaunchRefused(str(error)) from error
            for name in ("ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env.packaging"):
                getLogger(name).setLevel("WARNING")  # they log the upload of the code before each trial, also into the live table
            for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):  # Ray's client prefers them to the address it is given
                os.environ.pop(name, None)
            try:
                self._client_ = Client(url, headers={"Authorization": f"Bearer {token}"} if token else {})
            except Exception as error:
                raise self._failed("does not answer", error) from error
        return self._client_

    def _failed(self, what: str, error: Exception) -> LaunchError:
        """The exception to raise for an error of Ray's client, which has no type of its own for a wrong token."""
        where, text = f"pool {self.pool.name} at {self.pool.address}", first_line(error)
        if "authentication" in text.lower() or "unauthorized" in text.lower():
            source = self.pool.token_env or self.pool.token_file
            return LaunchRefused(f"{where} refuses {f'the token of {source}' if source else 'trials without a token'}: {text}")
        return LaunchError(f"{where} {what}: {text}")
