"""FLAVA's passes together: in float64 losses and gradients of transformers' own, whatever matches; and nothing for the host to wait for."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.components.data.masking import IGNORED
from experiments.components.workload import Batch, Context
from experiments.datasets import scenes
from experiments.trial import DataSource
from experiments.workloads import flava
from experiments.workloads.flava.batches import KINDS, first_places
from experiments.workloads.flava.workload import Flava

BATCH, TEXT, LONG = 5, 32, 24
# whether each pair matches
MATCHES = {"all": [1, 1, 1, 1, 1], "none": [0, 0, 0, 0, 0], "some": [0, 1, 1, 0, 1], "one": [0, 0, 0, 0, 1]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSource:
    folder: Path = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=16, seed=0, max_size=128)
    return DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))


def made(data: DataSource, **values: Any) -> tuple[Flava, Any]:
    short: dict[str, Any] = {"batch_size": BATCH, "text_length": TEXT, "long_text_length": LONG, "kinds": "balanced", "seed": 3}
    one = flava.build(Context(flava.Parameters(**short, **values), data, "cpu", 0, 1, BATCH))
    torch.manual_seed(0)
    return one, one.model()


def batches(one: Flava, kind: str, count: int = 1) -> list[Batch]:
    return list(islice((one.prepare(batch) for batch in one.batches() if batch["kind"] == kind), count))


def learnt(one: Flava, model: nn.Module, batch: Batch) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """The losses, and the gradients that are not 0."""
    model.zero_grad()
    output = one._forward(model, batch)
    output.loss.backward()
    losses = {"loss": float(output.loss.detach()), **{name: float(loss.detach()) for name, loss in output.loss_info.items()}}
    # softmax takes no notice of what is added to all scores of a query, so a key's bias has a gradient of rounding alone
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None and not name.endswith("key.bias")}
    return losses, {name: gradient for name, gradient in found.items() if gradient.any()}


@pytest.fixture(scope="module")
def both(data: DataSource) -> list[tuple[Flava, Any]]:
    """FlavaForPreTraining, and ours with its weights, in float64 and with a scale of the contrastive scores above its limit."""
    models = [made(data), made(data, attention="sdpa", passes="together")]
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in models[0][1].double().named_parameters():
            if "image_codebook" not in name:  # small matrices hardly attend, and biases of 0 hide what is left out
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype))
    models[1][1].double().load_state_dict(models[0][1].state_dict())
    return models


@pytest.mark.parametrize(("kind", "matches"), [("image", None), ("text", None), *(("pair", name) for name in MATCHES)])
def test_losses_and_gradients_are_transformers_own(kind: str, matches: str | None, both: list[tuple[Flava, Any]]) -> None:
    (stock, theirs), (one, ours) = both
    (batch,) = batches(one, kind)
    batch |= {name: value.double() for name, value in batch.items() if isinstance(value, torch.Tensor) and value.is_floating_point()}
    if matches:
        batch["itm_labels"] = torch.tensor(MATCHES[matches])
    for model in (theirs, ours):
        model.flava.logit_scale.data.fill_(4.7)
    wanted = learnt(stock, theirs, {name: value for name, value in batch.items() if name not in ("masked_patches", "masked_tokens")})
    found = learnt(one, ours, batch)
    assert found[0].keys() == wanted[0].keys() and len(found[0]) == {"image": 2, "text": 2, "pair": 5}[kind]
    assert found[0] == pytest.approx(wanted[0], rel=1e-12)
    assert found[1].keys() == wanted[1].keys() and len(found[1]) > 20
    for name, gradient in found[1].items():
        assert float((gradient - wanted[1][name]).norm() / wanted[1][name].norm()) < 1e-9, name
    assert float(ours.flava.logit_scale) == float(theirs.flava.logit_scale) == pytest.approx(4.6052 if kind == "pair" else 4.7)


def test_a_loss_of_weight_0_is_neither_computed_nor_gathered(data: DataSource) -> None:
    one, model = made(data, attention="sdpa", passes="together")
    model.global_contrastive_weight = 0
    model.global_contrastive_head.forward = None
    assert one._forward(model, *batches(one, "pair")).loss_info.keys() == {"itm", "mmm_image", "mmm_text"}


def test_the_loader_says_where_is_masked_in_as_many_places_of_each_row(data: DataSource) -> None:
    one, _ = made(data, attention="sdpa", passes="together")
    told = set()
    for kind in KINDS:
        shapes = set()
        for batch in batches(one, kind, 8):
            shapes.add(tuple((name, value.shape) for name, value in sorted(batch.items()) if isinstance(value, torch.Tensor)))
            if kind != "text":
                hidden = torch.zeros(BATCH, 16, dtype=torch.bool).scatter_(1, batch["masked_patches"], True)
                assert torch.equal(hidden, batch["bool_masked_pos"].flatten(1)) and batch["masked_patches"].shape == (BATCH, 6)
            if kind != "image":
                labels = batch["mlm_labels"].gather(1, batch["masked_tokens"])
                assert (labels != IGNORED).sum() == (batch["mlm_labels"] != IGNORED).sum()
                told.add((kind, labels.shape[1], int((labels != IGNORED).sum())))
        assert len(shapes) == 1, f"{kind}: a CUDA graph for each"
    assert {(kind, places) for kind, places, _ in told} == {("pair", 5), ("text", 4)} and ("text", 4, BATCH * 4) in told
    assert any(count < BATCH * 5 for kind, _, count in told if kind == "pair"), "short captions have fewer to tell"
    stock, _ = made(data)
    assert not {name for kind in KINDS for name in batches(stock, kind)[0]} & {"masked_patches", "masked_tokens"}


def test_the_first_places_are_those_chosen_in_order() -> None:
    chosen = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()
    assert first_places(chosen, 3).tolist() == [[1, 3, 0], [0, 1, 2], [0, 1, 2]]


class HostWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects operations for which, on a GPU, the host waits: values it is handed, and shapes that depend on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function)
        booleans = "index" in name and len(args) > 1 and isinstance(args[1], list | tuple) and any(_boolean(index) for index in args[1])
        filled = "index_put_" in name and booleans and args[2].numel() == 1  # torch fills where a mask of booleans is true
        if any(one in name for one in ("_local_scalar_dense", "nonzero", "masked_select", "unique")) or (booleans and not filled):
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def _boolean(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("passes", "waits"), [("apart", {"image": 3, "pair": 16, "text": 3}), ("together", {})])
def test_a_step_makes_the_host_wait_as_often_as_its_passes_say(passes: str, waits: dict[str, int], kind: str, data: DataSource) -> None:
    one, model = made(data, attention="sdpa", passes=passes)
    (batch,) = batches(one, kind)
    with HostWaits() as seen:
        one.loss(model, batch).backward()  # type: ignore[no-untyped-call]
    assert len(seen.found) == waits.get(kind, 0), seen.found
