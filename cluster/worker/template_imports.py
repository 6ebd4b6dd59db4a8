"""What a template process imports, so that trials forked from it need not, and when it may no longer be forked from."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from cluster.worker.torch_internals import compute_cache_keys
from experiments.components import flop_count

BASE = ("cluster.worker.trial_session", "cluster.worker.ray_train", "ray.train.torch")
# What every trial comes to import: for its optimizer, Ray Train's context and its figures. Here that is done while the flow starts; else
# the first trial does it while it is waited for, and the template again after it
EVERY_TRIAL = ("torch._dynamo", "scipy.optimize", "ray.tune")
# Not imported in the template: they ask for a device, are an entry point, or belong to one process
_NOT_HERE = (
    "torch._inductor.compile_worker.__main__",
    "torchao",
    "__main__",
    "__mp_main__",
    "multiprocessing.resource_tracker",
)


def import_modules(names: Iterable[str]) -> None:
    """Import modules that are not yet there, with no device to be had. One that cannot be imported here is left to the trials."""
    wanted = [name for name in names if name not in sys.modules and not name.startswith(_NOT_HERE)]
    gc.disable()  # imports make no garbage, and collections that look for some take a sixth of their time
    with _no_device():
        for name in wanted:
            with suppress(Exception):
                importlib.import_module(name)
        compute_cache_keys()  # each trial would read thousands of files for them; computed once, they are not computed again
    gc.freeze()  # a collection in a forked process must not write to, and so copy, what it shares with the template
    gc.enable()


class Lesson:
    """What this process imports, and of which models it counts FLOPs, from now on: for the template to learn."""

    def __init__(self) -> None:
        self._modules, self._counts = set(sys.modules), flop_count.known_counts()

    @property
    def modules(self) -> set[str]:
        return set(sys.modules) - self._modules

    @property
    def counts(self) -> dict[str, flop_count.Counted]:
        return {name: count for name, count in flop_count.known_counts().items() if name not in self._counts}


@contextmanager
def _no_device() -> Iterator[None]:
    """Let no import initialise CUDA: a process forked after that cannot use it."""
    import torch.cuda

    def refuse() -> NoReturn:
        raise RuntimeError("the template process opens no device")

    before = torch.cuda._lazy_init
    torch.cuda._lazy_init = refuse
    try:
        yield
    finally:
        torch.cuda._lazy_init = before


def spoiled() -> str | None:
    """Why no trial may be forked from this process any more; None if one may."""
    import torch.cuda

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "an import has initialised CUDA"
    if threading.active_count() > 1:
        return f"an import has started a thread ({threading.enumerate()[-1].name})"
    return None
