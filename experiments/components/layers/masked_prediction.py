"""BERT's masked-language model whose head is computed only where there is something to tell. Torch; imported on workers only."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from transformers import BertForMaskedLM


class MaskedPrediction(BertForMaskedLM):  # type: ignore[misc]
    """transformers' BertForMaskedLM, the same parameters by the same names, that returns its loss alone.

    MLPerf's reference gathers so too: `gather_indexes` of "masked_lm_positions" (mlcommons/training, BERT, run_pretraining.py).
    """

    def forward(self, input_ids: torch.Tensor, *, predicted: torch.Tensor, labels: torch.Tensor, **given: Any) -> torch.Tensor:
        """The mean cross-entropy of those of `predicted` that have a label, which is what transformers computes of all tokens.

        `predicted` (n,): places among the flattened tokens of `input_ids`; `labels` (n,): what stands there, or -100 for none. `given`:
        what BertModel takes besides.
        """
        states = self.bert(input_ids, **given).last_hidden_state
        scores = self.cls(states.flatten(0, 1).index_select(0, predicted))
        return functional.cross_entropy(scores, labels)
