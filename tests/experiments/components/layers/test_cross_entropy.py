"""The cross-entropy of a large vocabulary: chunked and torch's own against float64, and what a loss scaler makes of it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from experiments.components.layers import cross_entropy as module
from experiments.components.layers.cross_entropy import cross_entropy
from experiments.components.workload import Unsupported

TOKENS, WIDTH, VOCABULARY = 37, 24, 301


def drawn(kind: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    hidden = torch.randn(TOKENS, WIDTH, generator=draw).to(kind).requires_grad_()
    weight = (torch.randn(VOCABULARY, WIDTH, generator=draw) / WIDTH**0.5).to(kind).requires_grad_()
    return hidden, weight, torch.randint(0, VOCABULARY, (TOKENS,), generator=draw)


def exact(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden, weight = (each.detach().double().requires_grad_() for each in (hidden, weight))
    loss = functional.cross_entropy(hidden @ weight.T, labels)
    return loss, *torch.autograd.grad(loss, (hidden, weight))


@pytest.mark.parametrize("scores", [2**27, 8 * VOCABULARY, 1])
@pytest.mark.parametrize("how", ["logits", "chunked", "torch"])
def test_loss_and_gradients_are_those_of_float64(how: str, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "torch" and not hasattr(functional, "linear_cross_entropy"):
        pytest.skip("this torch has no linear_cross_entropy")
    monkeypatch.setattr(module, "SCORES", scores)
    hidden, weight, labels = drawn()
    loss = cross_entropy(how, hidden, weight, labels)
    (3 * loss).backward()
    wanted = exact(hidden, weight, labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wanted[0].item(), rel=1e-6)
    assert hidden.grad is not None and weight.grad is not None
    torch.testing.assert_close(hidden.grad.double(), 3 * wanted[1], rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(weight.grad.double(), 3 * wanted[2], rtol=1e-4, atol=1e-7)


def test_a_chunk_holds_a_power_of_two_of_tokens_and_no_more_scores_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    plain = module.loss_and_gradient

    def counted(scores: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(len(scores))
        return plain(scores, labels)

    monkeypatch.setattr(module, "loss_and_gradient", counted)
    monkeypatch.setattr(module, "SCORES", 15 * VOCABULARY)
    cross_entropy("chunked", *drawn())
    assert sizes == [8, 8, 8, 8, 5]


def test_under_autocast_scores_are_in_16_bits_and_gradients_in_the_type_of_what_they_are_of() -> None:
    hidden, weight, labels = drawn()
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy("chunked", hidden, weight, labels)
    loss.backward()
    wanted = exact(hidden, weight, labels)
    assert loss.item() == pytest.approx(wanted[0].item(), rel=5e-3) and loss.item() != pytest.approx(wanted[0].item(), rel=1e-6)
    assert weight.grad is not None and weight.grad.dtype == torch.float32
    assert functional.cosine_similarity(weight.grad.double().flatten(), wanted[2].flatten(), dim=0) > 0.999


def test_a_loss_scaler_neither_overflows_nor_underflows_in_fp16() -> None:
    hidden, weight, labels = drawn(torch.float16)
    (65536.0 * cross_entropy("chunked", hidden, weight, labels)).backward()
    wanted = exact(hidden, weight, labels)
    assert hidden.grad is not None and weight.grad is not None
    assert hidden.grad.dtype == weight.grad.dtype == torch.float16
    torch.testing.assert_close(hidden.grad.double() / 65536, wanted[1], rtol=0.02, atol=1e-5)
    torch.testing.assert_close(weight.grad.double() / 65536, wanted[2], rtol=0.02, atol=1e-4)


def test_frozen_weights_get_no_gradient() -> None:
    hidden, weight, labels = drawn()
    weight.requires_grad_(False)
    cross_entropy("chunked", hidden, weight, labels).backward()
    assert hidden.grad is not None and weight.grad is None
    with torch.no_grad():
        assert not cross_entropy("chunked", hidden, weight, labels).requires_grad


def test_torchs_own_is_unsupported_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(functional, "linear_cross_entropy", raising=False)
    with pytest.raises(Unsupported, match=r"cross_entropy torch: torch .* has no linear_cross_entropy"):
        cross_entropy("torch", *drawn())
