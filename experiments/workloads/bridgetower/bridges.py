"""BridgeTower's forward pass with each bridge as one function, which `compile: layer` compiles. Torch; imported on workers only.

A bridge leads from a tower to a cross-modal layer: norm (of the image's tower), projection, type embedding, sum with what the last
cross-modal layer gave, norm. transformers computes them one by one, and under autocast each sum and norm writes a whole activation in fp32.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from experiments.components.workload import Unsupported

if TYPE_CHECKING:
    from transformers.models.bridgetower.modeling_bridgetower import BridgeTowerModelOutput


@cache
def takes_prepared_masks() -> bool:
    """Whether this transformers uses a 4D mask as it is."""
    from transformers.models.bridgetower import modeling_bridgetower

    return hasattr(modeling_bridgetower, "create_bidirectional_mask")


class Bridge(nn.Module):
    """Of modules that the model has: it adds no parameters, and is no part of the model."""

    def __init__(self, before: nn.Module | None, project: nn.Module, after: nn.Module) -> None:
        """`before`: the norm of the image's tower, whose blocks have (tokens, batch, width)."""
        super().__init__()
        self.before, self.project, self.after = before, project, after

    def forward(self, features: torch.Tensor, kind: torch.Tensor, cross: torch.Tensor | None = None) -> torch.Tensor:
        """(batch, tokens, width) in the type of `features`, the output of a tower's block; `kind`: the type's embedding, (1, width)."""
        found: torch.Tensor = features if self.before is None else self.before(features.transpose(0, 1))
        found = self.project(found) + kind
        found = self.after(found if cross is None else found + cross)
        return found.to(features.dtype)


class Bridges:
    """The bridges of a BridgeTowerModel, in the order of its cross-modal layers, and its forward pass over them."""

    def __init__(self, tower: Any) -> None:
        """Raises Unsupported for a model whose bridges are others than those of the published models."""
        config = tower.config
        if not takes_prepared_masks():
            raise Unsupported("bridges fused: written for the forward pass of transformers 5, and this is an earlier version")
        if config.link_tower_type != "add" or not config.share_cross_modal_transformer_layers or config.share_link_tower_layers:
            raise Unsupported("bridges fused: only links that add, with projections that layers share, as the published models have them")
        self.tower = tower
        after = [tower.cross_modal_text_layernorm, *(link.LayerNorm for link in tower.cross_modal_text_link_tower)]
        self.text = [Bridge(None, tower.cross_modal_text_transform, norm) for norm in after]
        after = [tower.cross_modal_image_layernorm, *(link.LayerNorm for link in tower.cross_modal_image_link_tower)]
        norm_of_tower = tower.vision_model.visual.ln_post
        self.image = [Bridge(norm_of_tower, tower.cross_modal_image_transform, norm) for norm in after]

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None, pixel_values: torch.Tensor, **_: Any
    ) -> BridgeTowerModelOutput:
        """transformers' own, with a mask as `inputs` makes it. Of the image's tower the first token alone is given: no loss uses others."""
        from transformers.models.bridgetower.modeling_bridgetower import BridgeTowerModelOutput

        tower, mask = self.tower, attention_mask
        apart = len(tower.text_model.encoder.layer) - len(self.text) + 1  # blocks of a tower before the first bridge
        text, image = tower.text_model.embeddings(input_ids=input_ids), tower.vision_model.visual.forward_pre(pixel_values)
        kinds = tower.token_type_embeddings(torch.arange(2, device=input_ids.device)).split(1)  # of texts, of images
        cross_text = cross_image = None
        texts, images = tower.text_model.encoder.layer, tower.vision_model.visual.transformer.resblocks
        for index, (text_block, image_block) in enumerate(zip(texts, images, strict=True), start=1):
            text, image = text_block(text, mask), image_block(image)
            if index < apart:
                continue
            at = index - apart
            to_text = self.text[at](text, kinds[0], cross_text)
            to_image = self.image[at](image, kinds[1], cross_image)
            cross_text = tower.cross_modal_text_layers[at](to_text, to_image, attention_mask=mask)[0]
            cross_image = tower.cross_modal_image_layers[at](to_image, to_text, encoder_attention_mask=mask)[0]
        return BridgeTowerModelOutput(
            text_features=cross_text,
            image_features=cross_image,
            pooler_output=tower.get_cls_features(cross_text, cross_image),
            hidden_states=((text,), (image[:1],), ((cross_text, cross_image),)),
        )


def join(model: Any) -> None:
    """Have a BridgeTowerForContrastiveLearning compute over bridges, in place. Its parameters keep their names. Raises Unsupported."""
    bridges = Bridges(model.bridgetower)
    model.bridgetower.forward = partial(_forward, bridges)


def bridges_of(model: Any) -> list[nn.Module]:
    """The bridges of a model that was joined; else none."""
    forward = model.bridgetower.forward
    return [*forward.args[0].text, *forward.args[0].image] if isinstance(forward, partial) else []


def _forward(bridges: Bridges, *arguments: Any, **named: Any) -> BridgeTowerModelOutput:
    return bridges.forward(*arguments, **named)
