"""What is forked from a process in which a flow has run, as a DataLoader's processes are from one of the tests."""

from __future__ import annotations

import multiprocessing

from prefect._internal.concurrency.services import QueueService


class Service(QueueService[int]):
    """As those by which a flow sends its log and its events."""

    async def _handle(self, item: int) -> None:
        pass


def test_a_process_that_is_forked_beside_prefects_services_ends_well() -> None:
    service = Service.instance()
    service.send(1)
    child = multiprocessing.get_context("fork").Process(target=int)
    child.start()
    child.join(60)
    service.drain()
    assert child.exitcode == 0
