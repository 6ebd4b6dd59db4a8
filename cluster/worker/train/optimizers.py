"""The update rules: AdamW from torch, with states in 8 bits from torchao or in bf16 from bf16_states.py, and StableAdamW from optimi.

StableAdamW (Wortsman et al. 2023, algorithm 2) is AdamW with the update clipping of Adafactor. For each tensor, with gradient g_t:

    v_t = b1 v_{t-1} + (1 - b1) g_t,   u_t = b2 u_{t-1} + (1 - b2) g_t^2,   b = beta (1 - beta^{t-1}) / (1 - beta^t)
    RMS_t = sqrt(mean(g_t^2 / max(u_t, eps^2))),   rate_t = lr / max(1, RMS_t)
    p_t = p_{t-1} - rate_t (weight_decay p_{t-1} + v_t / (sqrt(u_t) + eps))

The betas hold the bias correction: with b in place of beta, v_t and u_t equal Adam's averages after their division by 1 - beta^t. The
update therefore is AdamW's wherever RMS_t <= 1. Weight decay is multiplied by the clipped rate, as AdamW's is by its rate; optimi's
decouple_lr, which would change this, is off.

torchao's AdamW8bit is AdamW computed in fp32, whose two averages are kept in 8 bits with a scale for each 256 values (Dettmers et al.
2021): 2 bytes a parameter instead of 8. Tensors of fewer than 4096 values, or of a number that 256 does not divide, keep theirs in full.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from functools import partial

import torch

from experiments.components.workload import Unsupported
from experiments.parameters import LOW_STATES, STATES_8BIT, STATES_BF16, TrainingParameters

BETA1 = 0.9


def why_not(parameters: TrainingParameters, kind: str) -> str | None:
    """Why the update rule, or measuring RMS_t, cannot be combined with the other parameters on this kind of device; None if it can."""
    sharded = parameters.parallel != "ddp" and parameters.devices > 1
    whole = f"RMS_t is over a whole tensor, with parallel {parameters.parallel} a device has a part of it; use ddp"
    if parameters.optimizer in LOW_STATES and (reason := _why_not_low(parameters, kind, sharded=sharded)):
        return f"optimizer {parameters.optimizer}: {reason}"
    if parameters.update_rule == "stable_adamw" and (reason := _why_not_stable(parameters, kind, whole if sharded else None)):
        return f"update_rule stable_adamw: {reason}"
    if parameters.rms_tensors is not None:
        if parameters.engine != "native":
            return f"rms_tensors: only with engine native, which knows its optimiser's state, not with {parameters.engine}"
        if sharded:
            return f"rms_tensors: {whole}"
    return None


def _why_not_stable(parameters: TrainingParameters, kind: str, sharded: str | None) -> str | None:
    if parameters.engine != "native":
        return f"only with engine native, {parameters.engine} brings optimisers of its own"
    if parameters.optimizer == "fused" and kind != "cuda":
        return f"optimizer fused is a Triton kernel, and this is {kind}; use foreach or per_parameter"
    return sharded


def _why_not_low(parameters: TrainingParameters, kind: str, *, sharded: bool) -> str | None:
    """Of states in 8 bits and in bf16."""
    if kind not in (kinds := ("cuda",) if parameters.optimizer == STATES_8BIT else ("cuda", "cpu")):
        return f"only on {' and '.join(kinds)}, and this is {kind}"
    if parameters.engine != "native":
        return f"only with engine native, {parameters.engine} brings optimisers of its own"
    if parameters.update_rule != "adamw":
        return f"there is AdamW with such states, and no {parameters.update_rule}"
    if parameters.optimizer == STATES_8BIT and sharded and parameters.parallel == "fsdp1":
        return "torchao takes the shards of fsdp2, and not the flat ones of fsdp1"
    if parameters.rms_tensors is not None:
        return "rms_tensors would read second moments that were rounded"
    return None


def build(parameters: TrainingParameters, trained: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser that the parameters name. Raises Unsupported if its library, or Triton, is not installed.

    With states in 8 bits the first step compiles an update for each shape of a parameter. StableAdamW's `foreach` and `per_parameter` wait
    in each step for the device to return every RMS_t; its `fused` (Triton) does not.
    """
    make = _stable_adamw(parameters) if parameters.update_rule == "stable_adamw" else _adamw(parameters)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="optimi")  # its foreach, in favour of Triton: needs a GPU
        return make(
            trained,
            lr=parameters.learning_rate,
            betas=(BETA1, parameters.beta2),
            eps=parameters.adam_eps,
            weight_decay=parameters.weight_decay,
        )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next update."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):  # torchao's, which its compiled update reads
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _adamw(parameters: TrainingParameters) -> Callable[..., torch.optim.Optimizer]:
    kind = parameters.optimizer
    if kind == STATES_BF16:
        from cluster.worker.train.bf16_states import AdamWBf16States

        return AdamWBf16States
    if kind != STATES_8BIT:
        return partial(torch.optim.AdamW, foreach=kind == "foreach", fused=kind == "fused")
    try:
        from torchao.optim import AdamW8bit
    except ImportError as error:
        raise Unsupported(f"optimizer {STATES_8BIT}: torchao is not installed ({error})") from error
    return AdamW8bit  # type: ignore[no-any-return]


def _stable_adamw(parameters: TrainingParameters) -> Callable[..., torch.optim.Optimizer]:
    kind = parameters.optimizer
    try:
        from optimi import StableAdamW
    except ImportError as error:
        raise Unsupported(f"update_rule stable_adamw: the library torch-optimi cannot be imported here ({error})") from error
    if kind == "fused" and importlib.util.find_spec("triton") is None:
        raise Unsupported("update_rule stable_adamw: optimizer fused needs Triton, which is not installed; use foreach or per_parameter")
    return partial(StableAdamW, foreach=kind == "foreach", triton=kind == "fused")
