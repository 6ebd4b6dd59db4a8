"""FLAVA's two passes of a step in one call of each tower, and losses for which the host waits for nothing. Torch and transformers; used on
workers only.

FlavaForPreTraining calls image and text tower twice, for the plain inputs and for the masked ones, as the original does. So FSDP gathers
their parameters twice as often, and autograd sums a weight's gradient over both calls before it hands it on: until the second call is
differentiated the whole towers' gradients lie unsharded on each device. Here both are one batch, twice as large. Of images alone no loss
takes the plain pass, and it is left out.

Its losses index by booleans, forward and backward. How much that picks the device alone knows, so the host waits for it, up to 16 times a
step, and the device then waits for the host. Here the loader says where is masked, as many places in every row, and what no loss is to be
taken of has the label that cross-entropy leaves out: the same sums over the same terms, in tensors of fixed shapes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional
from transformers.models.flava.modeling_flava import (
    LOGIT_SCALE_CLAMP_MAX,
    LOGIT_SCALE_CLAMP_MIN,
    FlavaForPreTraining,
    FlavaForPreTrainingOutput,
    FlavaLosses,
)


def pass_together(model: FlavaForPreTraining) -> None:
    """Have a FlavaForPreTraining make both passes in one. In place: its weights are drawn already, and keep their names."""
    model.__class__ = TogetherForPreTraining


class _Embeddings(NamedTuple):
    """A tower's, (batch, tokens, width) each."""

    plain: torch.Tensor | None  # of pairs alone: no other loss takes them
    masked: torch.Tensor
    states: torch.Tensor  # of the masked pass, before the tower's own norm


class _Told(NamedTuple):
    """What a head is to tell, (batch, n) each."""

    places: torch.Tensor
    labels: torch.Tensor


class TogetherForPreTraining(FlavaForPreTraining):  # type: ignore[misc]  # transformers is untyped
    """A FlavaForPreTraining with the losses of the original, from one call of each tower."""

    def forward(
        self,
        *,
        input_ids: Any = None,
        input_ids_masked: Any = None,
        attention_mask: Any = None,
        mlm_labels: Any = None,
        masked_tokens: Any = None,
        pixel_values: Any = None,
        bool_masked_pos: Any = None,
        codebook_pixel_values: Any = None,
        masked_patches: Any = None,
        itm_labels: Any = None,
    ) -> FlavaForPreTrainingOutput:
        """`loss` and `loss_info` of images alone, of texts alone (without `input_ids`), or of pairs.

        Tensors that FlavaForPreTraining takes, and for each row where is masked: `masked_patches` (batch, n) among its patches,
        `masked_tokens` (batch, m) among its tokens. A token there without a label in `mlm_labels` adds nothing.
        """
        images = texts = patches = words = None
        pair = pixel_values is not None and input_ids_masked is not None
        if pixel_values is not None:
            images = self._images(pixel_values, bool_masked_pos, plain=pair)
            codes = self.image_codebook.get_codebook_indices(codebook_pixel_values).flatten(1)
            patches = _Told(masked_patches, codes.gather(1, masked_patches))
        if input_ids_masked is not None:
            texts = self._texts(input_ids if pair else None, input_ids_masked, attention_mask)
            words = _Told(masked_tokens, mlm_labels.gather(1, masked_tokens))
        losses: dict[str, torch.Tensor] = {}
        if images and patches and texts and words:
            losses = self._of_pairs(images, texts, attention_mask, patches, words, itm_labels)
        elif images and patches:
            losses["mim"] = self.mim_weight * self._told(self.mim_head, images.masked, 1, patches)
        elif texts and words:
            losses["mlm"] = self.mlm_weight * self._told(self.mlm_head, texts.masked, 0, words)
        return FlavaForPreTrainingOutput(loss=sum(losses.values()), loss_info=FlavaLosses(**losses))

    def _images(self, pixels: torch.Tensor, hidden: torch.Tensor, *, plain: bool) -> _Embeddings:
        """`hidden` (batch, side, side): which patches are masked."""
        if plain:
            pixels, hidden = torch.cat([pixels, pixels]), torch.cat([torch.zeros_like(hidden), hidden])
        return _apart(self.flava.image_model(pixels, bool_masked_pos=hidden, output_hidden_states=True), plain=plain)

    def _texts(self, plain: torch.Tensor | None, tokens: torch.Tensor, real: torch.Tensor | None) -> _Embeddings:
        """`plain`, `tokens` (batch, tokens): not masked, and masked; `real`: no padding."""
        if plain is not None:
            tokens, real = torch.cat([plain, tokens]), real if real is None else torch.cat([real, real])
        return _apart(self.flava.text_model(tokens, attention_mask=real, output_hidden_states=True), plain=plain is not None)

    def _of_pairs(
        self, images: _Embeddings, texts: _Embeddings, real: torch.Tensor | None, patches: _Told, words: _Told, matching: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """`matching` (batch,): 0 where a text is another image's. Of those only this is to be told, unless all are."""
        projected = [self.flava.image_to_mm_projection(images.states), self.flava.text_to_mm_projection(texts.states)]
        fusion = self.flava.multimodal_model
        first_patch = int(fusion.use_cls_token) + 1  # after the encoder's own token, and the image's
        first_word = first_patch + images.masked.shape[1] - 1
        seen = None if real is None else torch.cat([real.new_ones(len(real), first_word), real], dim=1)
        both = fusion(torch.cat(projected, dim=1), attention_mask=seen)[0]
        matches = matching.ne(0)
        left_out = ~(matches | ~matches.any())
        patches, words = (_Told(one.places, one.labels.masked_fill(left_out[:, None], self.ce_ignore_index)) for one in (patches, words))
        losses = {
            "itm": self.itm_weight * functional.cross_entropy(self.itm_head(both), matching),
            "mmm_image": self.mmm_image_weight * self._told(self.mmm_image_head, both, first_patch, patches),
            "mmm_text": self.mmm_text_weight * self._told(self.mmm_text_head, both, first_word, words),
        }
        if self.global_contrastive_weight > 0:  # it gathers over ranks
            losses["global_contrastive"] = self.global_contrastive_weight * self._contrastive(images.plain, texts.plain, left_out)
        return losses

    def _told(self, head: Any, embeddings: torch.Tensor, first: int, told: _Told) -> torch.Tensor:
        """The mean cross-entropy of what a head says at some places of `embeddings` (batch, tokens, width), counted from token `first`."""
        rows = torch.arange(len(embeddings), device=embeddings.device)[:, None] * embeddings.shape[1]
        scores = head(embeddings.flatten(0, 1).index_select(0, (rows + first + told.places).flatten()))
        return functional.cross_entropy(scores, told.labels.flatten(), ignore_index=self.ce_ignore_index)

    def _contrastive(self, images: Any, texts: Any, left_out: torch.Tensor) -> torch.Tensor:
        """The global contrastive loss of plain pairs. Those `left_out` (batch,) have no loss, and are among the others' choices."""
        text = functional.normalize(self.flava.text_projection(texts[:, 0]), dim=-1)
        image = functional.normalize(self.flava.image_projection(images[:, 0]), dim=-1)
        if self.training:
            self.flava.logit_scale.data.clamp_(LOGIT_SCALE_CLAMP_MIN, LOGIT_SCALE_CLAMP_MAX)
        by_image, by_text, own = self.global_contrastive_head(image, text, self.flava.logit_scale)
        own = own.masked_fill(left_out, self.ce_ignore_index)
        both = [functional.cross_entropy(scores, own, ignore_index=self.ce_ignore_index) for scores in (by_image, by_text)]
        return (both[0] + both[1]) / 2


def _apart(output: Any, *, plain: bool) -> _Embeddings:
    """A tower's output, whose first half is the plain pass' if there is one."""
    embeddings, states = output.last_hidden_state, output.hidden_states[-1]
    if not plain:
        return _Embeddings(None, embeddings, states)
    half = len(embeddings) // 2
    return _Embeddings(embeddings[:half], embeddings[half:], states[half:])
