"""The cross-entropy of a large vocabulary without the scores of all tokens at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from experiments.components.workload import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

SCORES = 2**27  # that a chunk has at most: half a GiB in fp32


def cross_entropy(how: str, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, *, compiled: bool = False) -> torch.Tensor:
    """The mean over tokens of -log softmax(weight hidden)[label], a scalar in fp32.

    hidden (tokens, width), weight (vocabulary, width), labels (tokens,). The scores are computed in autocast's type, else in that of
    hidden, their softmax in fp32. `how`: logits, all at once; chunked; or torch, by its linear_cross_entropy. `compiled`: whether
    chunked compiles what follows the product. Raises Unsupported where torch has no linear_cross_entropy.
    """
    if how == "logits":
        return functional.cross_entropy(functional.linear(hidden, weight).float(), labels)
    kind = torch.get_autocast_dtype(hidden.device.type) if torch.is_autocast_enabled(hidden.device.type) else hidden.dtype
    if how == "chunked":
        chunked: torch.Tensor = _chunked(hidden, weight, labels, kind, compiled)
        return chunked
    if not hasattr(functional, "linear_cross_entropy"):
        raise Unsupported(f"cross_entropy torch: torch {torch.__version__} has no linear_cross_entropy")
    options = torch.nn.LinearCrossEntropyOptions()
    loss: torch.Tensor = functional.linear_cross_entropy(hidden.to(kind), weight.to(kind), labels, options=options)
    return loss.float()


@torch.compiler.disable  # type: ignore[untyped-decorator]  # its loop and its gradients are as they should be; only what `compiled` names gains
def _chunked(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, kind: torch.dtype, compiled: bool) -> torch.Tensor:
    loss: torch.Tensor = _Chunked.apply(hidden, weight, labels, kind, compiled)  # type: ignore[no-untyped-call]
    return loss


class _Chunked(torch.autograd.Function):
    """Computes the gradients in the forward pass, chunk by chunk, as Liger Kernel's fused linear cross-entropy does (Hsu et al. 2024).

    Nothing is computed twice, and what is kept is as large as hidden and weight. The gradients are divided by the number of tokens last,
    so that they do not vanish in 16 bits.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, kind: torch.dtype, compiled: bool) -> Any:
        of_hidden, of_weight = ctx.needs_input_grad[:2]
        matrix = weight.to(kind)
        hidden_gradient = torch.empty_like(hidden, dtype=kind) if of_hidden else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if of_weight else None
        differentiate = _compiled() if compiled else loss_and_gradient
        rows = 1 << max(1, SCORES // len(weight)).bit_length() - 1  # a power of two: chunks are of one length then
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(hidden), rows):
            part, wanted = hidden[start : start + rows].to(kind), labels[start : start + rows]
            loss, gradient = differentiate(part @ matrix.T, wanted)
            total += loss
            if hidden_gradient is not None:
                torch.mm(gradient, matrix, out=hidden_gradient[start : start + rows])
            if weight_gradient is not None:
                weight_gradient += gradient.T @ part
        ctx.gradients, ctx.kinds, ctx.tokens = (hidden_gradient, weight_gradient), (hidden.dtype, weight.dtype), len(hidden)
        return total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        factor = gradients[0] / ctx.tokens  # in fp32: with fp16's loss scaler, either of the two alone may not fit into 16 bits
        of_hidden, of_weight = ctx.gradients
        ctx.gradients = None  # a second backward pass would scale them twice
        hidden_kind, weight_kind = ctx.kinds
        return (
            None if of_hidden is None else (of_hidden.float() * factor).to(hidden_kind),
            None if of_weight is None else of_weight.mul_(factor).to(weight_kind),
            *(None, None, None),
        )


def loss_and_gradient(scores: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of the tokens' cross-entropies in fp32, and its gradient for `scores` (tokens, vocabulary) in their type."""
    shares = scores.float().log_softmax(dim=-1)
    chosen = labels[:, None]
    loss = -shares.gather(1, chosen).sum()
    gradient = shares.exp().scatter_add(1, chosen, torch.full_like(chosen, -1.0, dtype=torch.float32))
    return loss, gradient.to(scores.dtype)


@cache
def _compiled() -> Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    return torch.compile(loss_and_gradient)
