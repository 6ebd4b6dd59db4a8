"""habana_frameworks.torch.hpu, which is also torch.hpu."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

import torch

from .. import _hpu_device
from .graphs import HPUGraph, ModuleCacher, wrap_in_hpu_graph
from .random import get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, set_rng_state, set_rng_state_all

__all__ = ["HPUGraph", "ModuleCacher", "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all"]
__all__ += ["set_rng_state", "set_rng_state_all", "wrap_in_hpu_graph"]

LIMIT = int(float(os.environ.get("HABANA_EMU_MEM_GB", "94.6")) * 2**30)  # what a Gaudi2 reports of its 96 GB
_initialised = False


def init() -> None:
    global _initialised  # noqa: PLW0603
    _initialised = True


_lazy_init = init


def device_count() -> int:
    visible = os.environ.get("HABANA_VISIBLE_MODULES", "all")
    return int(os.environ.get("HABANA_EMU_DEVICES", "8")) if visible == "all" else len([one for one in visible.split(",") if one])


def is_available() -> bool:
    return device_count() > 0


def is_initialized() -> bool:
    return _initialised


def _is_in_bad_fork() -> bool:
    return False


def current_device() -> int:
    return 0  # a process owns exactly one module


def set_device(device: Any) -> None:
    init()


def get_device_name(device: Any = None) -> str:
    return "GAUDI2"


def get_device_capability(device: Any = None) -> str:
    return "GAUDI2"


def synchronize(device: Any = None) -> None:
    """Nothing is pending."""


def empty_cache() -> None:
    """Nothing is cached."""


def is_bf16_supported() -> bool:
    return True


def get_amp_supported_dtype() -> list[Any]:
    return [torch.bfloat16, torch.float16]


def is_autocast_hpu_enabled() -> bool:
    return torch.is_autocast_enabled("hpu")


def get_autocast_hpu_dtype() -> Any:
    return torch.get_autocast_dtype("hpu")


def enable_dynamic_shape() -> None:
    """Nothing is compiled."""


disable_dynamic_shape = enable_dynamic_shape


def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes."""
    used, peak, allocated, freed = _hpu_device.stats()
    return {"Limit": LIMIT, "InUse": used, "MaxInUse": peak, "NumAllocs": allocated, "NumFrees": freed, "ActiveAllocs": allocated - freed}


def memory_allocated(device: Any = None) -> int:
    return memory_stats()["InUse"]


def max_memory_allocated(device: Any = None) -> int:
    return memory_stats()["MaxInUse"]


def reset_peak_memory_stats(device: Any = None) -> None:
    _hpu_device.reset_peak()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    return LIMIT - memory_stats()["InUse"], LIMIT


class Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        """One stream, in order."""

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait_stream(self, other: Any) -> None:
        """In order already."""


@contextlib.contextmanager
def stream(chosen: Any = None) -> Iterator[Any]:
    yield chosen


def current_stream(device: Any = None) -> Stream:
    return Stream()


default_stream = current_stream


class Event:
    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.timed, self.at = enable_timing, 0.0

    def record(self, on: Any = None) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing is pending."""

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds."""
        if not (self.timed and other.timed):
            raise RuntimeError("both events need enable_timing")
        return float((other.at - self.at) * 1e3)


@contextlib.contextmanager
def device(chosen: Any) -> Iterator[None]:
    yield
