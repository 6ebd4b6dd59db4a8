"""What only a GPU can show of BERT without padding: FlashAttention's varlen both ways, and that it learns what the padded batch does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cluster.devices.cuda import open_device
from cluster.worker.train.train_step import TrainStep
from experiments.components.data.masked_text import most_told_of, told
from experiments.components.data.unpadding import unpadded
from experiments.components.layers.document_attention import same_document, varlen_kernel, varlen_of
from experiments.components.workload import Context
from experiments.workloads import bert

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LENGTHS = (100, 1, 283, 128)


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def test_varlen_sees_all_of_a_sample_forward_and_backward() -> None:
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None].cuda()
    starts = torch.tensor([0, 100, 101, 384, 512, 512], dtype=torch.int32, device="cuda")
    draw = torch.Generator().manual_seed(1)
    drawn = [torch.randn(1, 8, 512, 64, generator=draw).bfloat16().cuda() for _ in range(3)]
    states, exact = ([each.clone().to(kind).requires_grad_() for each in drawn] for kind in (torch.bfloat16, torch.float32))
    kernel = varlen_kernel(causal=False)
    assert kernel is not None
    output, _ = varlen_of(*kernel)(torch.nn.Module(), *states, None, scaling=0.125, starts=starts, longest=512)
    mask = same_document(positions)[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.125).transpose(1, 2)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).cuda()
    output.backward(direction.bfloat16())
    expected.backward(direction)
    assert error(output, expected) < 0.01
    for state, wanted in zip(states, exact, strict=True):
        assert state.grad is not None and wanted.grad is not None
        assert error(state.grad, wanted.grad) < 0.02


def test_without_padding_it_learns_what_the_padded_batch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so it does where the head computes the masked tokens alone."""
    monkeypatch.setattr(bert, "Splits", lambda *_: None)
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, 4096, (4, 512), generator=draw)
    real = torch.arange(512) < torch.tensor(LENGTHS)[:, None]
    labels = torch.where(real & (torch.arange(512) % 7 == 0), tokens, -100)
    padded = {"input_ids": tokens, "labels": labels, "real": real}
    batches = {"kept": padded, "removed": unpadded(tokens, labels, real, pad=0)}
    losses, norms = [], []
    for padding, attention, prediction in (
        ("kept", "sdpa", "all"),
        ("removed", "sdpa", "all"),
        ("removed", "varlen", "all"),
        ("kept", "sdpa", "masked"),
        ("removed", "varlen", "masked"),
    ):
        given: dict[str, Any] = {"padding": padding, "attention": attention, "prediction": prediction, "lengths": "drawn"}
        parameters = bert.Parameters(**given, precision="bf16")
        batch = {**batches[padding], **(told(batches[padding]["labels"]) if prediction == "masked" else {})}
        one = bert.Bert(Context(parameters, None, "cuda", 0, 1, 4))
        monkeypatch.setattr(bert, "check_vocabulary", lambda *_: None)
        one.splits = type("Splits", (), {"tokenizer": lambda self: None})()  # type: ignore[assignment]
        torch.manual_seed(0)
        model = one.model().cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = one.loss(model, {name: value.cuda() for name, value in batch.items()})
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([weight.grad for weight in model.parameters() if weight.grad is not None]).item())
    assert losses[1:] == pytest.approx([losses[0]] * 4, rel=2e-3)
    assert norms[1:] == pytest.approx([norms[0]] * 4, rel=2e-2)


def test_steps_of_rounded_lengths_are_replayed_as_they_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph for each rounded number of tokens, whatever the samples' own lengths."""
    monkeypatch.setattr(bert, "Splits", lambda *_: None)
    monkeypatch.setattr(bert, "check_vocabulary", lambda *_: None)
    draw = torch.Generator().manual_seed(0)
    batches = []
    for at in range(10):
        tokens = torch.randint(5, 4096, (4, 512), generator=draw)
        real = torch.arange(512) < torch.tensor([100 + at, 1 + at, 283, (128, 400)[at % 2]])[:, None]
        labels = torch.where(real & (torch.arange(512) % 7 == 0), tokens, -100)
        batch = unpadded(tokens, labels, real, pad=0, multiple=1024, longest=512)
        batches.append(batch | told(batch["labels"], most_told_of(batch["input_ids"].numel(), 4)))
    assert {batch["input_ids"].numel() for batch in batches} == {1024}
    losses = []
    for recorded in (False, True):
        given: dict[str, Any] = {"padding": "removed", "attention": "varlen", "prediction": "masked", "lengths": "drawn"}
        parameters = bert.Parameters(**given, precision="bf16", round_tokens_to=1024, cuda_graph=recorded, batch_size=4, learning_rate=1e-3)
        device = open_device(0)
        one = bert.Bert(Context(parameters, None, "cuda", 0, 1, 4))
        one.splits = type("Splits", (), {"tokenizer": lambda self: None})()  # type: ignore[assignment]
        torch.manual_seed(0)
        step = TrainStep(one, one.model(), parameters, device)
        found = []
        for number, batch in enumerate(batches, 1):
            found.append(step.forward_backward(step.place(dict(batch))))
            step.update(number)
        losses.append([loss.item() for loss in found])
        assert step.launched == (2 if recorded else 0)
    assert losses[1] == pytest.approx(losses[0], rel=0.02) and len(set(losses[1])) == 10
