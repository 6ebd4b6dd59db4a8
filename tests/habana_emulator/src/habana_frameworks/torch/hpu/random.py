"""Random numbers come from the CPU's generator."""

from typing import Any

import torch


def manual_seed_all(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


manual_seed = manual_seed_all


def initial_seed() -> int:
    return torch.initial_seed()


def get_rng_state(device: Any = "hpu") -> Any:
    return torch.default_generator.get_state()


def get_rng_state_all() -> list[Any]:
    return [get_rng_state()]


def set_rng_state(state: Any, device: Any = "hpu") -> None:
    torch.default_generator.set_state(state)


def set_rng_state_all(states: Any) -> None:
    for state in states:
        set_rng_state(state)
