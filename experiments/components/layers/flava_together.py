"""FLAVA's two passes of a step in one call of each tower. Torch and transformers; used on workers only.

FlavaForPreTraining calls image and text tower twice, for the plain inputs and for the masked ones, as the original does. So FSDP gathers
their parameters twice as often, and autograd sums a weight's gradient over both calls before it hands it on: until the second call is
differentiated the whole towers' gradients lie unsharded on each device. Here both are one batch, twice as large. Of images alone no loss
takes the plain pass, and it is left out.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.flava.modeling_flava import FlavaForPreTraining, FlavaModel, FlavaModelOutput


def pass_together(model: FlavaForPreTraining) -> None:
    """Have a FlavaForPreTraining make both passes in one. In place: its weights are drawn already, and keep their names."""
    model.__class__, model.flava.__class__ = TogetherForPreTraining, TogetherModel


class TogetherModel(FlavaModel):  # type: ignore[misc]  # transformers is untyped
    """A FlavaModel that answers from what `both` computed: first the plain pass, then the masked one."""

    ready: list[FlavaModelOutput]

    def both(
        self,
        plain: torch.Tensor | None,
        masked: torch.Tensor | None,
        pixels: torch.Tensor | None,
        hidden: torch.Tensor | None,
        real: torch.Tensor | None,
    ) -> None:
        """Compute both passes: of tokens (batch, tokens), plain and masked; of pixels; `hidden`: patches masked; `real`: no padding."""
        first, second = FlavaModelOutput(), FlavaModelOutput()
        pair = plain is not None and pixels is not None
        projected: list[torch.Tensor] = []
        if pixels is not None:
            patches = hidden if hidden is None or not pair else torch.cat([torch.zeros_like(hidden), hidden])
            images = self.image_model(torch.cat([pixels, pixels]) if pair else pixels, bool_masked_pos=patches, output_hidden_states=True)
            projected.append(self.image_to_mm_projection(_put(images, "image_embeddings", first, second, apart=pair)))
        if masked is not None:
            alone = plain is None
            mask = real if alone or real is None else torch.cat([real, real])
            tokens = masked if plain is None else torch.cat([plain, masked])
            texts = self.text_model(tokens, attention_mask=mask, output_hidden_states=True)
            projected.append(self.text_to_mm_projection(_put(texts, "text_embeddings", first, second, apart=not alone)))
        if pair:
            seen = None if real is None else torch.cat([real.new_ones(len(real), projected[0].shape[1] + self._own_token()), real], dim=1)
            second.multimodal_embeddings = self.multimodal_model(torch.cat(projected, dim=1), attention_mask=seen)[0]
        self.ready = [first, second]

    def _own_token(self) -> int:
        return int(self.multimodal_model.use_cls_token)

    def forward(self, *_: Any, **__: Any) -> FlavaModelOutput:
        return self.ready.pop(0)


class TogetherForPreTraining(FlavaForPreTraining):  # type: ignore[misc]
    """A FlavaForPreTraining with the losses of the original, from one call of each tower."""

    flava: TogetherModel

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        input_ids_masked: torch.Tensor | None = None,
        pixel_values: torch.Tensor | None = None,
        bool_masked_pos: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **rest: Any,
    ) -> Any:
        self.flava.both(input_ids, input_ids_masked, pixel_values, bool_masked_pos, attention_mask)
        return super().forward(
            input_ids=input_ids,
            input_ids_masked=input_ids_masked,
            pixel_values=pixel_values,
            bool_masked_pos=bool_masked_pos,
            attention_mask=attention_mask,
            **rest,
        )


def _put(output: Any, name: str, first: FlavaModelOutput, second: FlavaModelOutput, *, apart: bool) -> torch.Tensor:
    """Put a tower's embeddings into both outputs, or all into the second; the masked pass' last states, before the tower's own norm."""
    embeddings, states = output.last_hidden_state, output.hidden_states[-1]
    if not apart:
        second[name] = embeddings
        return states  # type: ignore[no-any-return]
    half = len(embeddings) // 2
    first[name], second[name] = embeddings[:half], embeddings[half:]
    return states[half:]  # type: ignore[no-any-return]
