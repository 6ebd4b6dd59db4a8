"""Prefill and greedy decoding with a static cache of keys and values. Torch; imported on workers only."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.components.layers.cuda_graphs import Replay, beside, recorded

WARM_UP = 3  # tokens before a CUDA graph is recorded, as torch asks for


class StaticCache:
    """Keys and values of all layers, each (batch, kv heads, size, head), in memory that does not move: the next token's are written at
    `at`.

    It is what transformers' attention layers ask of a cache, and the same in every version: theirs differ in how the place is told.
    """

    def __init__(self, layers: int, size: int, device: torch.device) -> None:
        self.size = size
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the states (batch, kv heads, tokens, head), and return those that the tokens attend to: of a prompt its own."""
        keys, values = self.keys[layer], self.values[layer]
        if keys is None or values is None:
            keys, values = (each.new_zeros((*each.shape[:2], self.size, each.shape[3])) for each in (key, value))
            self.keys[layer], self.values[layer] = keys, values
        if (tokens := key.shape[2]) > 1:
            keys[:, :, :tokens], values[:, :, :tokens] = key, value
            return key, value
        keys.index_copy_(2, self.at, key)
        values.index_copy_(2, self.at, value)
        return keys, values

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """0: positions are always told."""
        return 0


class Reader(nn.Module):
    """Tokens to the scores of the next one."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, input_ids: torch.Tensor, cache: StaticCache, position_ids: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(batch, vocabulary): the scores after the last of input_ids (batch, tokens)."""
        decoder: Any = self.decoder
        output = decoder.model(input_ids=input_ids, attention_mask=mask, position_ids=position_ids, past_key_values=cache, use_cache=True)
        return decoder.lm_head(output.last_hidden_state[:, -1])  # type: ignore[no-any-return]


def prefill(model: Any, cache: StaticCache, prompts: torch.Tensor) -> torch.Tensor:
    """Read prompts (batch, tokens) into the cache; the scores (batch, vocabulary) of their next tokens."""
    return model(prompts, cache, torch.arange(prompts.shape[1], device=prompts.device)[None])  # type: ignore[no-any-return]


class Decoder:
    """Writes tokens after prompts (batch, tokens), greedily, one at a time, each from the one before it; the first from the prompt's last.

    `token` (batch, 1): the last one written; `scores` (batch, vocabulary): what it was chosen by. `graph`: a token's work is recorded as a
    CUDA graph, and replayed for each one.
    """

    def __init__(self, model: Any, cache: StaticCache, prompts: torch.Tensor, *, graph: bool) -> None:
        self.model, self.cache, self.prompts = model, cache, prompts
        self.token = prompts[:, -1:].clone()
        self._places = torch.arange(cache.size, device=prompts.device)
        self._replay: Replay | None = None
        self.scores = prefill(model, cache, prompts).clone()
        if graph:
            self._record()

    def leave_graph_out(self) -> None:
        """From now on tokens are launched. What was recorded is released, with its memory."""
        self._replay = None

    def write(self, count: int) -> torch.Tensor:
        """Write `count` tokens after the prompts; the scores (batch, vocabulary) of the last one, which the next call overwrites."""
        self.token.copy_(self.prompts[:, -1:])
        self.cache.at.fill_(self.prompts.shape[1] - 1)
        for _ in range(count):
            (self._replay or self._one)()
        return self.scores

    def _one(self) -> None:
        cache = self.cache
        seen = (self._places <= cache.at)[None, None, None]  # (1, 1, 1, size)
        scores = self.model(self.token, cache, cache.at[None], seen)
        self.token.copy_(scores.argmax(dim=-1, keepdim=True))
        self.scores.copy_(scores)
        cache.at.add_(1)

    def _record(self) -> None:
        with beside(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            for _ in range(WARM_UP):
                self.cache.at.fill_(self.prompts.shape[1])  # where the first token will be written over it
                self._one()
        self._replay, _ = recorded(self._one)
