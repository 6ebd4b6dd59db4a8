"""This process's rank among a trial's workers, and the collective operations of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

AGREE_S = 30.0  # ranks that fail alike fail within a step of each other

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process's rank, in the trial and on its node. Every rank must call a collective; with one rank it does nothing."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def from_ray(cls) -> Ranks:
        """The ranks that Ray Train reports, also in local mode."""
        from ray.train import get_context

        context = get_context()
        return cls(context.get_world_rank(), context.get_world_size(), context.get_local_rank(), context.get_local_world_size())

    def meet(self) -> None:
        """Wait until all ranks have called this (a barrier)."""
        if self.world_size > 1:
            import torch.distributed

            torch.distributed.barrier()

    def as_rank_0_says(self, question: str, own: int) -> int:
        """Rank 0's `own`, on every rank. `question` names it, once in a process group's life.

        It goes through the process group's store, between hosts, so no device waits for it. A rank waits until rank 0 has said it.
        """
        if self.world_size == 1:
            return own
        from cluster.worker.torch_internals import process_group_store

        store = process_group_store()
        if self.rank == 0:
            store.set(question, str(own))
            return own
        return int(store.get(question))

    def all_say(self, what: str) -> bool:
        """Tell the other ranks that this one says `what`, once in a process group's life. Whether all of them say so within AGREE_S.

        For ranks that cannot meet, since one of them may be in a collective of which this one is not. All get the same answer: the first
        that has one gives it. Else a rank that says so later, as one that is freed by the end of another, would take for agreement what
        the other has given up. Raises nothing of the store's.
        """
        if self.world_size == 1:
            return True
        from cluster.worker.torch_internals import process_group_store

        store = process_group_store()
        try:
            store.set(f"{what}/{self.rank}", "1")
            answer = "all"
            try:
                store.wait([f"{what}/{rank}" for rank in range(self.world_size)], timedelta(seconds=AGREE_S))
            except RuntimeError:  # DistStoreError: the time is over
                answer = "not all"
            return bytes(store.compare_set(what, "", answer)) == b"all"
        except RuntimeError:  # who kept the store is gone
            return False

    def gather(self, own: T) -> list[T]:
        """The values of all ranks, in the order of ranks. `own` must be picklable."""
        if self.world_size == 1:
            return [own]
        import torch.distributed

        values: list[T] = [own] * self.world_size
        torch.distributed.all_gather_object(values, own)
        return values

    def largest(self, own: float, device: torch.device) -> float:
        """The largest number of all ranks, exchanged through `device`."""
        if self.world_size == 1:
            return own
        import torch

        value = torch.tensor(own, device=device)
        torch.distributed.all_reduce(value, torch.distributed.ReduceOp.MAX)
        return float(value)
