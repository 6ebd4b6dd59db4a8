"""The losses of inference tell a wrong model from a right one: loss parity compares nothing else."""

from __future__ import annotations

import copy
from itertools import islice
from typing import Any

import pytest
import torch

from experiments.components.workload import Context
from experiments.datasets import scenes, texts
from experiments.stats.loss_parity import ParityStatus, loss_parity
from experiments.trial import DataSource
from experiments.workloads import bert_inference, bridgetower_inference, causal_lm_inference, t5_inference, winoground

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 8
TEXT: dict[str, Any] = {"batch_size": 2, "seed": 7, "sequence_length": 64}
TOWER = (".attention.output.dense", ".attn.out_proj", ".crossattention.output.dense")
RANDOM: dict[str, Any] = {"batch_size": 2, "weights": "random", "size": "tiny", "dataset": "drawn", "seed": 7}
# the workload, its settings, and how the layers are called that attention's results pass
WORKLOADS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "bert": (bert_inference, TEXT, (".attention.output.dense",)),
    "t5": (t5_inference, {"batch_size": 2, "seed": 7, "source_length": 64, "target_length": 8}, ("Attention.o",)),
    "prefill": (causal_lm_inference, TEXT, (".self_attn.o_proj",)),
    "decode": (causal_lm_inference, {**TEXT, "phase": "decode", "new_tokens": 8}, (".self_attn.o_proj",)),
    "bridgetower": (bridgetower_inference, {"batch_size": 2, "seed": 7, "model": "tiny", "text_length": 24}, TOWER),
    "winoground bridgetower": (winoground, {**RANDOM, "family": "bridgetower"}, TOWER),
    "winoground clip": (winoground, {**RANDOM, "family": "clip"}, (".self_attn.out_proj",)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataSource]:
    home = tmp_path_factory.mktemp("drawn")
    texts.build(home / "texts", rows=64, validation_rows=16, seed=0)
    scenes.build(home / "scenes", rows=64, validation_rows=16, seed=0, max_size=120)
    return {
        name: DataSource(uri=str(home / name), fingerprint="f", tokenizer=str(home / name / "tokenizer")) for name in ("texts", "scenes")
    }


def made(name: str, data: dict[str, DataSource], **changes: Any) -> tuple[Any, Any]:
    """The workload with its model, of the same random weights whatever the changes."""
    module, values, _ = WORKLOADS[name]
    given = data["texts" if module in (bert_inference, t5_inference, causal_lm_inference) else "scenes"]
    parameters = module.Parameters(**{**values, **changes})
    one = module.build(Context(parameters, given, "cpu", 0, 1, parameters.batch_size))
    torch.manual_seed(1)
    model = one.model()
    if name == "bert":  # of random weights, an attention of width 64 adds a twelfth of what one of width 768 adds
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight.data *= 12
    return one, model


def curve(one: Any, model: Any) -> list[float]:
    with torch.inference_mode():
        return [float(one.loss(model, one.prepare(batch))) for batch in islice(one.batches(), STEPS)]


def without_attention(name: str, model: Any, which: slice) -> Any:
    """A copy whose attention adds nothing in some of the layers."""
    wrong = copy.deepcopy(model)
    found = [part for path, part in wrong.named_modules() if path.endswith(WORKLOADS[name][2])]
    assert len(found) >= 2
    for part in found[which]:
        for each in part.parameters():
            each.data.zero_()
    return wrong


@pytest.mark.parametrize(
    "which", [slice(None), slice(0, 1), slice(-1, None)], ids=["none attends", "the first does not", "the last does not"]
)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_model_without_attention_is_not_proven(name: str, which: slice, data: dict[str, DataSource]) -> None:
    one, model = made(name, data)
    right = curve(one, model)
    again, _ = made(name, data)
    wrong = curve(again, without_attention(name, model, which))
    assert loss_parity({7: wrong}, {7: right}, trains=False).status is not ParityStatus.PROVEN
    sizes = [abs(found / wanted - 1) for found, wanted in zip(wrong, right, strict=True)]
    assert sum(sizes) / STEPS > 0.005


@pytest.mark.parametrize("name", [name for name in WORKLOADS if "winoground" not in name])
def test_another_kernel_of_attention_is_proven(name: str, data: dict[str, DataSource]) -> None:
    curves = [curve(*made(name, data, attention=attention)) for attention in ("eager", "sdpa")]
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
    assert loss_parity({7: curves[1]}, {7: curves[0]}, trains=False).status is ParityStatus.PROVEN


@pytest.mark.parametrize("name", ["bert", "bridgetower", "prefill"])
def test_bf16_is_near(name: str, data: dict[str, DataSource]) -> None:
    """Where tokens are written greedily, a score that rounds to another token writes on otherwise."""
    one, model = made(name, data)
    right = curve(one, model)
    with torch.autocast("cpu", torch.bfloat16):
        low = curve(one, model)
    assert 0 < max(abs(found / wanted - 1) for found, wanted in zip(low, right, strict=True)) < 0.01
    assert loss_parity({7: low}, {7: right}, trains=False).status is ParityStatus.PROVEN
