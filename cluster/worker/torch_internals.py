"""Undocumented parts of torch that a trial needs. tests/cluster/worker/test_internals.py fails on a torch that moved them.

ray_train.py holds the uses of Ray's internals, and of torch's on Ray's behalf.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn

_CACHE_KEYS = (
    ("torch._inductor.codecache", "torch_key"),
    ("torch._inductor.codecache", "triton_key"),  # torch 2.13; before, inductor calls the next one
    ("torch._inductor.runtime.triton_compat", "triton_key"),  # Triton's own, which our kernels need too
)


def compile_seconds() -> float | None:
    """Seconds that torch.compile has spent in this process, as dynamo counts them; None if torch does not report them."""
    spent = _spent()
    return float(sum(spent)) if spent else None


def compilations() -> int:
    """How many pieces of code torch.compile has compiled in this process, or taken from its cache, as dynamo counts them."""
    return len(_spent())


def _spent() -> list[float]:
    """Seconds of each piece of code that was compiled in this process; early torch has the second name for it."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # not imported: nothing was compiled
    times = getattr(dynamo, "compilation_time_metrics", {})
    return times.get("_compile.compile_inner") or times.get("compile_inner") or []


def graph_lookups() -> tuple[int, int]:
    """Graphs that inductor has found in its cache in this process, and those that it had to compile, as it counts them itself.

    A graph that it does not keep (`bypass`) counts as compiled. Graphs of the same code that AOTAutograd finds are found here too.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")  # not imported: nothing was compiled
    if dynamo is None:
        return 0, 0
    counted = dynamo.counters["inductor"]
    return counted["fxgraph_cache_hit"], counted["fxgraph_cache_miss"] + counted["fxgraph_cache_bypass"]


def options_of(mode: str) -> dict[str, Any]:
    """Inductor's options that a mode of torch.compile stands for; none of the default one."""
    from torch._inductor import list_mode_options

    found: dict[str, dict[str, Any]] = list_mode_options()
    return dict(found[mode])


def choose_kernels_anew() -> None:
    """Let each process choose between the kernels of inductor's triton.multi_kernel, instead of reading what an earlier one chose.

    That is looked up under a key of the kernels' sources, which those of a graph that came from the cache do not have: a TypeError in torch
    2.11. Choosing takes milliseconds a kernel, at its first call.
    """
    os.environ["TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE"] = "1"


def compute_cache_keys() -> None:
    """Let inductor and Triton compute now, once for this process and those forked from it, what each of their cache keys begins with.

    Those are hashes over the sources of torch and the files of Triton, its library among them. Of what is not imported none is computed,
    and neither is one that this torch has under another name. Asks for no device.
    """
    for name, function in _CACHE_KEYS:
        compute = getattr(sys.modules.get(name), function, None)
        if compute is not None:
            with suppress(Exception):  # a trial would meet it again, and say so
                compute()


def cuda_graphs_left_out() -> int:
    """How often inductor has run something in this process without the CUDA graph that was asked for, as it counts it itself."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["inductor"]["cudagraph_skips"])


def let_segments_grow() -> None:
    """Let the CUDA allocator of this process map further memory to the end of a segment, instead of a new segment for what fits nowhere.

    Of what is allocated from now on. As PYTORCH_ALLOC_CONF=expandable_segments:True does, which is read once, when torch is imported: in a
    process from which this one was forked. What that variable says beside it is said again, since torch forgets what it is not told.
    """
    told = [one for one in (alloc_conf() or "").split(",") if one.strip() and not one.strip().startswith("expandable_segments")]
    settings = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # before torch 2.10 another one
    (settings or torch.cuda.memory._set_allocator_settings)(",".join([*told, "expandable_segments:True"]))


def alloc_conf() -> str | None:
    """How a user has set torch's allocator; None where nobody has."""
    return os.environ.get("PYTORCH_ALLOC_CONF", os.environ.get("PYTORCH_CUDA_ALLOC_CONF"))  # the former counts


def process_group_store() -> Any:
    """The key-value store through which the default process group was formed: `set` and `get`, the latter waits until there is a value."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def count_cycles(cycles: int) -> None:
    """Keep the current CUDA stream busy for `cycles` cycles of the device's clock. Returns at once."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def checkpoint(model: nn.Module, layers: Iterable[nn.Module], contexts: Callable[[], Any] | None = None) -> None:
    """Wrap the layers in place, so that the backward pass recomputes their activations.

    `contexts`: `context_fn` of torch.utils.checkpoint, which may have some of them kept.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper

    layer_ids = {id(layer) for layer in layers}
    wrap = partial(checkpoint_wrapper, context_fn=contexts) if contexts else checkpoint_wrapper
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda module: id(module) in layer_ids)


def checkpoint_wrappers(model: nn.Module) -> dict[int, nn.Module]:
    """id of each module that `checkpoint` wrapped -> its wrapper."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

    return {id(module._checkpoint_wrapped_module): module for module in model.modules() if isinstance(module, CheckpointWrapper)}


def plain_parts(tensor: Any) -> Iterator[torch.Tensor]:
    """The tensors that hold a tensor's values on this device: itself, or the parts of a DTensor or of a quantised tensor."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        part = getattr(tensor, name)
        if isinstance(part, torch.Tensor):  # a DTensor has its mesh of devices among them
            yield from plain_parts(part)
