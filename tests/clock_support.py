"""A host and a device in virtual seconds, for tests of everything that times steps."""

from __future__ import annotations

HOST_LAUNCH = 0.001  # s that the host needs to give the device one part of a step


class Simulation:
    """A host and a device with a queue, in virtual seconds."""

    def __init__(self) -> None:
        self.host = 0.0
        self.device_free_at = 0.0
        self.deepest = 0.0  # how far the host ran ahead of the device, s
        self.events = 0  # that were made

    def launch(self, seconds: float) -> None:
        self.host += HOST_LAUNCH
        self.device_free_at = max(self.device_free_at, self.host) + seconds
        self.deepest = max(self.deepest, self.device_free_at - self.host)

    def event(self) -> FakeEvent:
        self.events += 1
        return FakeEvent(self)


class FakeEvent:
    """A torch.cuda.Event with timing."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.at = simulation, -1.0

    def record(self) -> None:
        self.at = max(self.simulation.device_free_at, self.simulation.host)

    def synchronize(self) -> None:
        self.simulation.host = max(self.simulation.host, self.at)

    def elapsed_time(self, other: FakeEvent) -> float:
        assert other.at <= self.simulation.host + 1e-12, "read before the device had passed it"
        return (other.at - self.at) * 1000
