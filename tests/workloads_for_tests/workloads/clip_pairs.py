"""A tiny CLIP, trained on random pairs that a rank draws from its own seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pydantic import Field

from experiments.components.workload import Batch, Context
from experiments.parameters import TrainingParameters

TOKENS, SIDE, TEXT = 128, 32, 12


class Parameters(TrainingParameters):
    """Where to write the weights."""

    record_dir: str | None = Field(None)


def build(context: Context) -> ClipPairs:
    return ClipPairs(context)


def config() -> Any:
    from transformers import CLIPConfig

    tower = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    text = {**tower, "vocab_size": TOKENS, "max_position_embeddings": TEXT, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    return CLIPConfig(text_config=text, vision_config={**tower, "patch_size": 16, "image_size": SIDE}, projection_dim=16)


def pairs(batch: int, seed: int) -> Batch:
    import torch

    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, TOKENS, (batch, TEXT), generator=draw)
    ids[:, 0], ids[:, -1] = 0, 2
    return {"pixel_values": torch.randn(batch, 3, SIDE, SIDE, generator=draw), "input_ids": ids, "attention_mask": torch.ones_like(ids)}


class ClipPairs:
    """See Workload."""

    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context, self.parameters = context, context.parameters

    def model(self) -> Any:
        import torch
        from transformers.models.clip import modeling_clip  # the module's attribute, which is what optimum-habana replaces

        torch.manual_seed(self.parameters.seed)
        return modeling_clip.CLIPModel(config())

    def layers(self, model: Any) -> list[Any]:
        return [*model.text_model.encoder.layers, *model.vision_model.encoder.layers]

    def batches(self) -> Iterator[Batch]:
        step = 0
        while True:
            yield pairs(self.context.batch_size, self.context.rank + 1000 * step)
            step += 1

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: Any, batch: Batch) -> Any:
        from experiments.workloads._watched import record

        record(self.context, model)
        return model(**batch, return_loss=True).loss

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: Any, place: Callable[[Batch], Batch]) -> dict[str, float]:
        import math

        return {"loss": float(model(**place(pairs(8, -1 % 2**31)), return_loss=True).loss), "chance_loss": math.log(8)}

    def flops_per_sample(self) -> float | None:
        return None
