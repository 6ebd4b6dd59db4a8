"""After a traced trial: how long its matrix products take in a bare loop, and so the rate that their shapes attain on this device.

This runs last in a trial, on rank 0 while the others wait, and for a few seconds only: products with the most FLOPs first, and none whose
time an earlier trial has kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.kept_files import kept_folder
from cluster.trial_layout import RATES
from cluster.worker.rate_file import About, kept_rates
from cluster.worker.set_up import SessionContext

if TYPE_CHECKING:
    from cluster.worker.measure.matrix_shapes import Called, Product, TracedProducts

LIMIT_S = 5.0  # of a trial; a product that was begun before it is measured
LOOP = 2  # which loop a kept rate is of: the first had launches in small products' times where the host was slow
ROWS = 12  # products that the window record names: those whose kernels took longest


@dataclass(frozen=True)
class Found:
    """Seconds of a call of each product that is known; how many were measured now; the others, by why there is no time of them."""

    seconds: Mapping[Product, float]
    measured: int
    left_out: Mapping[str, int]


def add_rates(context: SessionContext, traced: Sequence[TracedProducts | None], window: dict[str, Any], locked_mhz: int | None) -> None:
    """Add what the products of the traced steps attain to the `profile` of `window`, for each rank.

    `traced`: of every rank. `locked_mhz`: what the clocks are locked at. A trial that was measured goes on without rates; what fails is
    said.
    """
    if not any(traced):
        return
    profile = window.get("profile") or {}
    if context.ranks.rank == 0 and profile.get("ranks"):
        try:
            _add(context, traced, profile, locked_mhz)
        except Exception as error:
            context.recorder.note(f"attainable rates: not measured: {type(error).__name__}: {str(error)[:200]}")
    context.ranks.meet()


def _add(context: SessionContext, traced: Sequence[TracedProducts | None], profile: dict[str, Any], locked_mhz: int | None) -> None:
    from cluster.worker.measure.matrix_rates import seconds_of

    device, say = context.device, context.recorder.note
    context.recorder.phase("rates")
    device.release_memory()  # what the trial's allocator keeps for itself
    began = time.monotonic()
    with kept_rates(kept_folder(RATES), about_of(device.describe(), locked_mhz), say) as kept:
        called = [one for rank in traced if rank for one in rank.called]
        found = measured_rates(called, kept, lambda product: seconds_of(product, device.torch_device))
    known, missing = len(found.seconds), sum(found.left_out.values())
    why = ", ".join(f"{count} ({reason})" for reason, count in found.left_out.items())
    say(
        f"attainable rates: of {known + missing} matrix products (operator, shapes, type, layout) {found.measured} were measured in "
        f"{time.monotonic() - began:.1f} s and {known - found.measured} were known" + (f"; not measured: {why}" if why else "")
    )
    vary = getattr(context.workload, "steps_vary", False)  # then the traced steps' FLOPs are not those of the mean step
    for rank in profile["ranks"]:
        told = attained(traced[rank["rank"]], rank["matrix_s"], found.seconds)
        if vary:
            told.pop("product_flops", None)
        rank.update(told)
    first = traced[profile["ranks"][0]["rank"]]
    profile["products"] = rows_of(first.called, found.seconds) if first else []
    profile["not_measured"] = dict(found.left_out)


def about_of(facts: Mapping[str, Any], locked_mhz: int | None) -> About:
    """What a rate depends on beside its product. `facts`: what the device says of itself."""
    import torch

    told = {name: facts.get(name) for name in ("device_name", "application_clocks_mhz", "power_limit_w")}
    return {
        **told,
        "loop": LOOP,
        "locked_clocks_mhz": locked_mhz,
        "torch": torch.__version__,
        "tf32": torch.backends.cuda.matmul.allow_tf32,
    }


def measured_rates(
    called: Sequence[Called],
    kept: dict[str, float],
    measure: Callable[[Product], float],
    now: Callable[[], float] = time.monotonic,
    limit_s: float = LIMIT_S,
) -> Found:
    """The seconds of a call of each product, from `kept` or by `measure`, which are then added to `kept`.

    Those with the most FLOPs, over all their calls, come first. After `limit_s` none is begun. What `measure` raises leaves its product
    out.
    """
    flops: dict[Product, float] = {}
    for one in called:
        flops[one.product] = flops.get(one.product, 0.0) + one.calls * one.product.flops
    until, seconds, measured = now() + limit_s, {}, 0
    left_out: dict[str, int] = {}
    for product in sorted(flops, key=lambda product: (-flops[product], product.key)):
        if product.key not in kept:
            reason = None if now() < until else f"{limit_s:g} s were over"
            try:
                if reason is None:
                    kept[product.key] = measure(product)
                    measured += 1
            except Exception as error:  # no memory for it, or a type that this torch has not
                reason = type(error).__name__
            if reason is not None:
                left_out[reason] = left_out.get(reason, 0) + 1
                continue
        seconds[product] = kept[product.key]
    return Found(seconds, measured, left_out)


def attained(traced: TracedProducts | None, matrix_s: float, seconds: Mapping[Product, float]) -> dict[str, float]:
    """Of one rank's traced step, in s; {} where no product of it is known.

    `covered_s`: the part of `matrix_s` in which products of a known rate ran. `attainable_s`: how long `matrix_s` would be if each of them
    took its time in the bare loop, and the rest the time that it took. Kernels beside each other count in `matrix_s` once, so both are
    scaled. `product_flops`: of all products of the step that have a shape, also of those that checkpointing repeats.
    """
    known = [one for one in traced.called if one.product in seconds] if traced else []
    if traced is None or not known or not traced.kernels_s > 0:
        return {}
    scale = matrix_s / traced.kernels_s
    took = math.fsum(one.seconds for one in known) * scale
    would = math.fsum(one.calls * seconds[one.product] for one in known) * scale
    flops = math.fsum(one.calls * one.product.flops for one in traced.called)
    return {"covered_s": took, "attainable_s": matrix_s - took + would, "product_flops": flops}


def rows_of(called: Sequence[Called], seconds: Mapping[Product, float]) -> list[dict[str, Any]]:
    """The products whose kernels took longest, as the report shows them: seconds and attainable seconds of a step, FLOPs of a call."""
    longest = sorted(called, key=lambda one: (-one.seconds, one.product.key))[:ROWS]
    return [
        {
            "product": str(one.product),
            "calls": one.calls,
            "flops": one.product.flops,
            "seconds": one.seconds,
            "attainable_s": one.calls * seconds[one.product] if one.product in seconds else None,
        }
        for one in longest
    ]
