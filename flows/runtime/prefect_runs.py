"""Prefect's view of the flow runs that worked on a sweep: one that died by SIGKILL stays Running there until somebody says otherwise."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from experiments.config.error_text import first_line
from flows.runtime.open_flow_runs import OPEN
from tasks.sweep.store import SweepStore


def rename(run_id: str, name: str, log: Any) -> None:
    """Name a flow run after its sweep, which is known only once it runs."""
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(run_id), name=name)
    except Exception as error:
        log.warning("Prefect: flow run %s could not be renamed (%s)", run_id, first_line(error))


def being_cancelled(run_id: str) -> bool:
    """True if somebody cancelled the flow run in Prefect; False also where Prefect cannot be asked."""
    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run_id)).state
    except Exception:
        return False
    return state is not None and state.type in (StateType.CANCELLING, StateType.CANCELLED)


def reconcile(store: SweepStore, log: Any) -> None:
    """Mark earlier flow runs of this sweep that are still open as Crashed. For the holder of the lease: no other process works on it."""
    for run_id in store.flow_runs():
        try:
            with get_client(sync_client=True) as client:
                state = client.read_flow_run(UUID(run_id)).state
                if state is not None and state.type in OPEN:
                    message = "its process died; another flow run went on with the sweep"
                    client.set_flow_run_state(UUID(run_id), Crashed(message=message), force=True)
                    log.info("flow run %s was left open by a process that died: marked Crashed", run_id)
        except ObjectNotFound:
            continue  # another Prefect server's
        except Exception as error:  # Prefect's bookkeeping must not keep a sweep from going on
            log.warning("Prefect: flow run %s could not be settled (%s)", run_id, first_line(error))


def page(run_id: str) -> str:
    """Address of a flow run's page in Prefect's UI."""
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

    base = str(PREFECT_UI_URL.value() or str(PREFECT_API_URL.value() or "").removesuffix("/api"))
    return f"{base}/runs/flow-run/{run_id}"
