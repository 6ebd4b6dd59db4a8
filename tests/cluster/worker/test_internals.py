"""What the worker uses of Ray and torch without a promise of theirs: it is where it was, in the versions that are installed here."""

from __future__ import annotations

import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions
import ray.train
import ray.train.v2._internal.exceptions as ray_train_exceptions
import torch
import torch.distributed
from ray.train.v2._internal import constants
from ray.train.v2._internal.callbacks import placement_group_callback
from ray.train.v2._internal.execution.local_mode import torch as local_mode
from ray.train.v2.api import data_parallel_trainer
from torch import nn

from cluster.worker import main, outcome, rank_group, ray_train, torch_internals
from cluster.worker.rank_group import Ranks
from tests.contracts import make_trial


def test_the_cleaner_of_placement_groups_can_be_made_prompt() -> None:
    own = placement_group_callback.PlacementGroupCleanerCallback
    interval = inspect.signature(own.__init__).parameters["check_interval_s"]
    assert interval.default == 1.0, "polled faster by Ray itself, the patch is not needed"
    assert data_parallel_trainer.PlacementGroupCleanerCallback is own
    assert "PlacementGroupCleanerCallback()" in inspect.getsource(data_parallel_trainer), "made without arguments, by that name"
    with ray_train.prompt_cleaner():
        prompt = data_parallel_trainer.PlacementGroupCleanerCallback()
        assert isinstance(prompt, own) and vars(prompt)["_check_interval_s"] == ray_train.CLEANER_POLL_S == 0.05
    assert data_parallel_trainer.PlacementGroupCleanerCallback is own


def test_the_patch_of_the_cleaner_is_taken_back_after_an_error() -> None:
    own = data_parallel_trainer.PlacementGroupCleanerCallback
    with pytest.raises(KeyError), ray_train.prompt_cleaner():
        raise KeyError
    assert data_parallel_trainer.PlacementGroupCleanerCallback is own


def test_local_mode_asks_torch_for_its_process_group_by_the_name_that_is_patched() -> None:
    calls = inspect.getsource(local_mode.LocalTorchController)
    assert calls.count("torch.distributed.init_process_group(") == 1
    assert local_mode.torch.distributed is torch.distributed
    assert "backend" in inspect.signature(torch.distributed.init_process_group).parameters


def test_on_a_gaudi_local_mode_is_given_hccl_and_torch_its_own_function_back() -> None:
    from cluster.devices import hpu

    own = torch.distributed.init_process_group
    assert hpu._init_process_group is own
    with pytest.raises(KeyError), ray_train.local_hccl():
        assert torch.distributed.init_process_group is hpu.init_process_group
        raise KeyError
    assert torch.distributed.init_process_group is own


def test_rays_variables_have_the_names_that_the_worker_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    main._set_defaults(make_trial(tmp_path, "aaaa00000000000e"))
    known = {value for name, value in vars(constants).items() if name.endswith("_ENV_VAR")}
    ours = {name for name in os.environ if name.startswith("RAY_TRAIN_")} | {ray_train.START_TIMEOUT}
    assert len(ours) == 4 and ours <= known, ours - known


def test_rays_exceptions_have_the_names_that_outcomes_are_told_by() -> None:
    where = (ray.exceptions, ray.train, ray_train_exceptions)
    named = {*outcome._RAY_LOST, "OutOfMemoryError", "OutOfDiskError", "PreemptionError"}
    assert {name for name in named if not any(hasattr(module, name) for module in where)} == set()


def test_torch_takes_the_options_that_a_mode_stands_for_with_others() -> None:
    assert torch_internals.options_of("default") == {}
    tuned = torch_internals.options_of("max-autotune-no-cudagraphs")
    assert tuned["max_autotune"] is True
    torch.compile(torch.sin, options={**tuned, "triton.multi_kernel": 1})
    with pytest.raises(RuntimeError, match=r"optimization option triton\.no_such"):
        torch.compile(torch.sin, options={**tuned, "triton.no_such": 1})


def test_kernels_are_chosen_without_a_key_of_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codegen.multi_kernel import MultiKernelCall

    class FromTheCache:
        """As a kernel of a graph that came from the cache."""

        @property
        def fn(self) -> None:
            raise TypeError("'NoneType' object does not support the context manager protocol")

    monkeypatch.setenv("TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE", "0")
    with pytest.raises(TypeError, match="context manager"):
        MultiKernelCall("multi_kernel_0", [FromTheCache()], {})
    torch_internals.choose_kernels_anew()
    assert MultiKernelCall("multi_kernel_0", [FromTheCache()], {}).picked_kernel is None


def test_dynamo_counts_the_seconds_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import utils

    assert isinstance(utils.compilation_time_metrics, dict)
    monkeypatch.setattr(utils, "compilation_time_metrics", {"_compile.compile_inner": [1.5, 0.25]})
    assert torch_internals.compile_seconds() == 1.75
    monkeypatch.setattr(utils, "compilation_time_metrics", {"compile_inner": [2.0]})
    assert torch_internals.compile_seconds() == 2.0
    monkeypatch.setattr(utils, "compilation_time_metrics", {})
    assert torch_internals.compile_seconds() is None


@pytest.mark.parametrize(
    ("spent", "seconds"),
    [
        ({"_compile.compile_inner": [1.0, 2.5], "compile_inner": [9.0]}, 3.5),
        ({"compile_inner": [9.0]}, 9.0),
        ({}, None),
        (None, None),
    ],
)
def test_seconds_of_compilation_as_dynamo_counts_them(monkeypatch: pytest.MonkeyPatch, spent: Any, seconds: float | None) -> None:
    utils = SimpleNamespace() if spent is None else SimpleNamespace(compilation_time_metrics=spent)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", utils)  # type: ignore[arg-type]
    assert torch_internals.compile_seconds() == seconds


def test_a_compilation_is_counted_under_a_name_that_is_read() -> None:
    from torch._dynamo import utils

    before = dict(utils.compilation_time_metrics)
    utils.compilation_time_metrics.clear()
    try:
        assert torch_internals.compilations() == 0
        compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
        counts = [(compiled(torch.ones(size)), torch_internals.compilations())[1] for size in (2, 2, 3, 2, 3)]
        assert counts == [1, 1, 2, 2, 2], "once for each shape"
        assert (torch_internals.compile_seconds() or 0) > 0
    finally:
        utils.compilation_time_metrics.clear()
        utils.compilation_time_metrics.update(before)


def test_checkpoint_wrappers_are_found_by_what_they_wrap() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    first, second = model
    torch_internals.checkpoint(model, [second])
    assert model[0] is first and torch_internals.checkpoint_wrappers(model) == {id(second): model[1]}


def test_cuda_can_count_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(inspect.signature(torch.cuda._sleep).parameters) == ["cycles"]
    seen: list[Any] = []
    monkeypatch.setattr(torch.cuda, "_sleep", seen.append)
    torch_internals.count_cycles(7)
    assert seen == [7]


def test_ranks_agree_through_the_store_that_their_process_group_was_formed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        Ranks(0, 2).as_rank_0_says("steps after 10", 7)
        assert Ranks(1, 2).as_rank_0_says("steps after 10", 99) == 7
        torch_internals.process_group_store().set("x", "3")
        assert int(torch_internals.process_group_store().get("x")) == 3
    finally:
        torch.distributed.destroy_process_group()
    assert Ranks().as_rank_0_says("anything", 5) == 5, "alone it asks nobody"


class Gone:
    """A store whose keeper has ended."""

    def set(self, key: str, value: str) -> None:
        raise torch.distributed.DistStoreError("Broken pipe")


def test_ranks_that_cannot_meet_learn_whether_all_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_group, "AGREE_S", 0.05)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        assert Ranks(1, 2).all_say("it failed") is False, "the other has not said so in time"
        assert Ranks(0, 2).all_say("it failed") is False, "which says so once the first has ended: they may not go on by different answers"
        monkeypatch.setattr(rank_group, "AGREE_S", 60.0)
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(lambda rank: Ranks(rank, 2).all_say("something else"), (0, 1))) == [True, True]
        monkeypatch.setattr(torch_internals, "process_group_store", Gone)
        assert Ranks(0, 2).all_say("that its store is gone") is False
    finally:
        torch.distributed.destroy_process_group()
    assert Ranks().all_say("anything") is True, "alone it asks nobody"


def test_cache_keys_are_computed_of_what_is_imported_and_one_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = list[str]()

    def fail() -> None:
        computed.append("torch")
        raise RuntimeError

    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", SimpleNamespace(torch_key=fail))  # type: ignore[arg-type]
    triton = SimpleNamespace(triton_key=lambda: computed.append("triton"))
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.triton_compat", triton)  # type: ignore[arg-type]
    torch_internals.compute_cache_keys()
    assert computed == ["torch", "triton"]


def test_inductor_has_its_cache_key_of_torch_where_it_is_looked_for() -> None:
    from torch._inductor import codecache

    assert ("torch._inductor.codecache", "torch_key") in torch_internals._CACHE_KEYS
    assert len(codecache.torch_key()) == 32


def test_the_allocator_is_told_by_the_name_that_this_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert callable(torch._C._accelerator_setAllocatorSettings) and callable(torch.cuda.memory._set_allocator_settings)
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", said.append)
    torch_internals.let_segments_grow()
    monkeypatch.delattr(torch._C, "_accelerator_setAllocatorSettings")
    monkeypatch.setattr(torch.cuda.memory, "_set_allocator_settings", said.append)
    torch_internals.let_segments_grow()
    assert said == ["expandable_segments:True"] * 2
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:512,expandable_segments:False")
    torch_internals.let_segments_grow()
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "garbage_collection_threshold:0.8")
    torch_internals.let_segments_grow()
    assert said[2:] == ["max_split_size_mb:512,expandable_segments:True", "garbage_collection_threshold:0.8,expandable_segments:True"]
