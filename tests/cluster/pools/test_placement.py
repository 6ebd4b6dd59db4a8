"""What a trial asks Ray for follows from its pool's entry: devices, custom resources, accelerator type, whole nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pools.placement import needs, nodes_for, of_job, place, room
from cluster.pools.pool import Pool


def pool(**values: Any) -> Pool:
    return Pool(**{"name": "p", "device": "cuda", "address": "http://h:8265", **values})


A100 = pool(accelerators_per_node=8, nodes=2, accelerator_type="A100")
GAUDI2 = pool(device="hpu", accelerators_per_node=8, nodes=2, resources={"gaudi2": 1})


def test_gpus_of_a_type() -> None:
    asked = place(A100, {"devices": 4, "threads": 3})
    assert (asked.workers, asked.use_gpu, asked.accelerator_type, asked.strategy) == (4, True, "A100", "STRICT_PACK")
    assert asked.per_worker == {"CPU": 3.0, "accelerator_type:A100": 0.2475}
    assert needs(asked)["GPU"] == 1
    assert asked.driver == {"accelerator_type:A100": 0.0001}


def test_gaudi_has_a_custom_resource_in_place_of_a_type() -> None:
    asked = place(GAUDI2, {"devices": 8})
    assert (asked.use_gpu, asked.accelerator_type) == (False, None)
    assert asked.per_worker == {"CPU": 1.0, "HPU": 1.0, "gaudi2": 0.9987}
    assert asked.driver == {"gaudi2": 0.0001}


def test_an_emulated_gaudi_is_asked_for_like_a_real_one() -> None:
    assert place(GAUDI2.model_copy(update={"emulated": True}), {"devices": 8}) == place(GAUDI2, {"devices": 8})


def test_a_pool_without_resources_asks_for_cpus() -> None:
    asked = place(pool(device="cpu", accelerators_per_node=8), {"devices": 2, "threads": None})
    assert (asked.per_worker, asked.driver) == ({"CPU": 1.0}, {})


def test_a_pool_that_is_not_exclusive_takes_what_it_needs() -> None:
    shared = {"accelerators_per_node": 8, "exclusive": False}
    assert place(pool(device="hpu", resources={"gaudi2": 1}, **shared), {"devices": 2}).per_worker["gaudi2"] == 1
    assert place(pool(accelerator_type="A100", **shared), {"devices": 2}).per_worker["accelerator_type:A100"] == 0.001


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 7, 8])
@pytest.mark.parametrize("of", [A100, GAUDI2])
def test_two_trials_never_fit_on_one_node(of: Pool, devices: int) -> None:
    node = {"CPU": 96.0, "GPU": 8.0, "HPU": 8.0, "gaudi2": 8.0, "accelerator_type:A100": 1.0}
    asked = place(of, {"devices": devices})
    assert room(asked, node) >= devices  # the trial itself does,
    drivers = 50 * 0.0001
    token = "gaudi2" if of is GAUDI2 else "accelerator_type:A100"
    assert room(asked, {**node, token: node[token] - drivers}) >= devices  # also where drivers of other trials are,
    left = {**node, token: node[token] - devices * asked.per_worker[token]}
    assert left[token] > drivers  # and then a driver still does,
    assert all(room(place(of, {"devices": other}), left) < other for other in (1, 2, 4, 8))  # and no other trial


def test_nodes_of_wide_trials() -> None:
    assert [nodes_for(A100, devices) for devices in (1, 8, 9, 16)] == [1, 1, 2, 2]
    wide = place(A100, {"devices": 16})
    assert (wide.nodes, wide.strategy) == (2, "PACK")
    assert wide.per_worker["accelerator_type:A100"] == 0.1237
    assert nodes_for(pool(), 64) == 1  # nothing is said about its nodes


@pytest.mark.parametrize(
    ("of", "devices", "held"),
    [
        (A100, 1, {"entrypoint_num_cpus": 2.0, "entrypoint_num_gpus": 1, "entrypoint_resources": {"accelerator_type:A100": 0.99}}),
        (A100, 2, {"entrypoint_resources": {"accelerator_type:A100": 0.0001}}),
        (GAUDI2, 1, {"entrypoint_resources": {"gaudi2": 0.0001}}),
        (pool(device="cpu"), 1, {"entrypoint_num_cpus": 2.0, "entrypoint_num_gpus": None, "entrypoint_resources": None}),
        (pool(device="cpu"), 2, {"entrypoint_resources": None}),
    ],
)
def test_a_job_with_one_worker_holds_what_the_worker_needs(of: Pool, devices: int, held: dict[str, Any]) -> None:
    """And one with several only what places its driver: its TorchTrainer asks for the rest."""
    asked = place(of, {"devices": devices, "threads": 2})
    assert asked.in_job == ("entrypoint_num_cpus" in held)
    assert of_job(asked) == held
