"""Where this process stands among a trial's workers, and what they do together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process's rank, in the trial and on its node. The collectives must be called by every rank; alone they do nothing."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def from_ray(cls) -> Ranks:
        """As Ray Train says it, in local mode too."""
        from ray.train import get_context

        context = get_context()
        return cls(context.get_world_rank(), context.get_world_size(), context.get_local_rank(), context.get_local_world_size())

    def meet(self) -> None:
        """All ranks reach this point."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.barrier()

    def gather(self, mine: T) -> list[T]:
        """What every rank has, by rank."""
        if self.world_size == 1:
            return [mine]
        import torch.distributed

        everyone: list[T] = [mine] * self.world_size
        torch.distributed.all_gather_object(everyone, mine)
        return everyone

    def largest(self, mine: float, place: torch.device) -> float:
        """The largest of all ranks' numbers, exchanged by the devices."""
        if self.world_size == 1:
            return mine
        import torch

        value = torch.tensor(mine, device=place)
        torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX)
        return float(value)
