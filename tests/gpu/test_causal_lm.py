"""What only a GPU can show of language models: its attention kernels, and decoding from a CUDA graph. `make test-gpu` runs them."""

from __future__ import annotations

import pytest
import torch

from experiments.components.layers.causal_attention import cudnn, document_mask, eager, sdpa
from experiments.components.layers.document_attention import varlen_kernel, varlen_of
from experiments.workloads.causal_lm.model import Learner, cast, make
from experiments.workloads.causal_lm.parameters import Parameters
from experiments.workloads.causal_lm_inference.model import Decoder, Reader, StaticCache

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LENGTHS = (100, 300, 112)


def drawn() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(2, heads, 512, 64, generator=draw).bfloat16().cuda().requires_grad_() for heads in (8, 2, 2)]


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("name", ["sdpa", "cudnn", "varlen", "sdpa blocks", "varlen blocks"])
def test_kernels_agree_with_the_definition_forward_and_backward(name: str) -> None:
    positions = torch.cat([torch.arange(length) for length in LENGTHS]).expand(2, -1).cuda()
    starts = torch.tensor([0, 100, 400, 512, 612, 912, 1024, 1024], dtype=torch.int32, device="cuda")
    mask = document_mask(positions) if "blocks" in name else None
    if mask is None:  # each sequence is one document
        starts = torch.tensor([0, 512, 1024], dtype=torch.int32, device="cuda")
    kernel = varlen_kernel()
    assert kernel is not None
    one = {"sdpa": sdpa, "cudnn": cudnn, "varlen": varlen_of(*kernel)}[name.split(maxsplit=1)[0]]
    states, exact = drawn(), [state.detach().float().requires_grad_() for state in drawn()]
    output, _ = one(torch.nn.Module(), *states, mask, scaling=0.125, starts=starts, longest=512)
    expected, _ = eager(torch.nn.Module(), *exact, mask, scaling=0.125)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(2)).cuda()
    output.backward(direction.bfloat16())
    expected.backward(direction)
    assert error(output, expected) < 0.01
    for state, wanted in zip(states, exact, strict=True):
        assert state.grad is not None and wanted.grad is not None
        assert error(state.grad, wanted.grad) < 0.02


@pytest.mark.parametrize("model", ["llama3-tiny", "qwen3-tiny"])
def test_varlen_learns_what_masks_learn(model: str) -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 4096, (2, 512), generator=draw).cuda()
    positions = torch.cat([torch.arange(length) for length in LENGTHS]).expand(2, -1).contiguous().cuda()
    starts = torch.tensor([0, 100, 400, 512, 612, 912, 1024, 1024], dtype=torch.int32, device="cuda")
    losses, norms = [], []
    for attention in ("sdpa", "varlen"):
        torch.manual_seed(0)
        decoder = make(Parameters.model_validate({"model": model, "attention": attention}))
        learner = Learner(decoder, attention=attention, loss="chunked").cuda()
        with torch.autocast("cuda", torch.bfloat16):
            loss = learner(tokens, tokens, positions, starts)
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.get_total_norm([weight.grad for weight in learner.parameters() if weight.grad is not None]).item())
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)
    assert norms[1] == pytest.approx(norms[0], rel=2e-2)


def test_a_cuda_graph_writes_what_single_launches_write() -> None:
    torch.manual_seed(0)
    reader = Reader(make(Parameters(model="qwen3-tiny")).eval()).cuda()
    cast(reader.parameters(), "bf16")
    prompts = torch.randint(0, 4096, (2, 40), generator=torch.Generator().manual_seed(0)).cuda()
    written = []
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        for graph in (False, True):
            decoder = Decoder(reader, StaticCache(2, 48, prompts.device), prompts, graph=graph)
            tokens = []
            for count in range(1, 9):
                decoder.write(count)
                tokens.append(decoder.token.clone())
            written.append(torch.cat(tokens, dim=1))
        decoder.leave_graph_out()
        decoder.write(8)
    assert torch.equal(*written) and torch.equal(decoder.token, written[1][:, -1:])
