"""T5 fine-tuning for summarisation, as in "Faster training and inference: Habana Gaudi2 vs Nvidia A100 80GB".

Documents of 1024 tokens after the prefix "summarize: ", summaries of 128. The document trains in fp32 with gradient checkpointing, which is
`activation_checkpointing` here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from experiments.components.data.splits import Splits
from experiments.components.data.text import PADS, Summaries, TextParameters, check_vocabulary, token_id
from experiments.components.workload import Batch, Context, Unsupported
from experiments.datasets.columns import Holds

if TYPE_CHECKING:
    import torch
    from torch import nn

# width, width of a head, MLP, layers of encoder and of decoder, heads, vocabulary. small to 3b as published (Raffel et al. 2020)
SIZES: dict[str, tuple[int, int, int, int, int, int]] = {
    "3b": (1024, 128, 16_384, 24, 32, 32_128),
    "large": (1024, 64, 4096, 24, 16, 32_128),
    "base": (768, 64, 3072, 12, 12, 32_128),
    "small": (512, 64, 2048, 6, 8, 32_128),
    "tiny": (64, 16, 128, 2, 4, 4096),
}


class Parameters(TextParameters):
    """T5's own settings."""

    same_work = ("model", "source_length", "target_length")
    columns: ClassVar[Mapping[str, Holds]] = {"text_column": "text", "summary_column": "text"}

    model: Literal["3b", "large", "base", "small", "tiny"] = Field("tiny", description="3b: 2.85 B parameters; tiny for CPUs")
    summary_column: str = Field("summary", description="column of summaries")
    prefix: str = Field("summarize: ", max_length=200, description="before each document")
    source_length: int = Field(1024, ge=8, le=4096, description="tokens of a document, padded or cut")
    target_length: int = Field(128, ge=4, le=1024, description="tokens of a summary, padded or cut")
    attention: Literal["eager", "sdpa"] = Field(
        "eager", description="matrix products and softmax; or torch's fused kernels, with transformers 5 and later"
    )
    dropout: float | None = Field(None, ge=0, lt=1, description="null: the model's own, 0.1, 0 in tiny")
    learning_rate: float = Field(5e-5, gt=0, le=10)


def config(parameters: Parameters) -> Any:
    """The T5Config of the named size."""
    from transformers import T5Config

    width, head, mlp, layers, heads, vocabulary = SIZES[parameters.model]
    dropout = parameters.dropout if parameters.dropout is not None else 0.0 if parameters.model == "tiny" else 0.1
    return T5Config(
        d_model=width,
        d_kv=head,
        d_ff=mlp,
        num_layers=layers,
        num_heads=heads,
        vocab_size=vocabulary,
        dropout_rate=dropout,
        use_cache=False,  # of keys and values, for generation; a recomputed layer would put its own there twice
        decoder_start_token_id=0,
    )


def make(parameters: Parameters, *, trained: bool = True) -> nn.Module:
    """T5ForConditionalGeneration of the named size. Raises Unsupported where transformers lacks the attention asked for."""
    import transformers

    from experiments.components.layers.biased_attention import registered

    kind, attention = transformers.T5ForConditionalGeneration, "eager"
    if parameters.attention == "sdpa":
        if not kind._supports_sdpa:  # some versions then compute eagerly without a word
            raise Unsupported(f"attention sdpa: transformers {transformers.__version__} computes T5's attention eagerly only")
        attention = registered(trained=trained)
    return kind._from_config(config(parameters), attn_implementation=attention)  # type: ignore[no-any-return]


def build(context: Context) -> T5:
    """The workload on this rank. Raises DataError."""
    return T5(context)


class T5:
    """See Workload."""

    find_unused_parameters = False
    trains = True

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        self.splits = Splits(context, (self.parameters.text_column, self.parameters.summary_column))

    def model(self) -> nn.Module:
        tokenizer = self.splits.tokenizer()
        check_vocabulary(tokenizer, SIZES[self.parameters.model][-1])
        model: Any = make(self.parameters, trained=self.trains)
        if (pad := token_id(tokenizer, PADS)) is not None:
            for settings in (model.config, model.generation_config):
                settings.pad_token_id = settings.decoder_start_token_id = pad  # T5 begins a summary with padding
        return model.train()  # type: ignore[no-any-return]

    def layers(self, model: Any) -> list[nn.Module]:
        return [*model.encoder.block, *model.decoder.block]

    def batches(self) -> Iterator[Batch]:
        return self.splits.batches(self._items(self.splits.train), self.splits.train_indices())

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return model(**batch).loss  # type: ignore[no-any-return]

    def samples(self, batch: Batch) -> int:
        return len(batch["input_ids"])

    def evaluate(self, model: nn.Module, place: Callable[[Batch], Batch]) -> dict[str, float]:
        items = self._items(self.splits.held_out)
        losses = [float(model(**place(batch)).loss) for batch in self.splits.held_out_batches(items)]
        return {"loss": sum(losses) / len(losses), "chance_loss": math.log(SIZES[self.parameters.model][-1])}

    def flops_per_sample(self) -> float | None:
        return flops(self.parameters.model, self.parameters.source_length, self.parameters.target_length)

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the blocks' linear layers."""
        return linear_flops(self.parameters.model, self.parameters.source_length, self.parameters.target_length)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums."""
        return attention_flops(self.parameters.model, self.parameters.source_length, self.parameters.target_length)

    def _items(self, rows: Any) -> Summaries:
        parameters = self.parameters
        return Summaries(self.splits, rows, source=parameters.source_length, target=parameters.target_length, prefix=parameters.prefix)


def flops(size: str, source: int, target: int) -> float:
    """Training FLOPs per sample: 3 x the forward pass's matrix products; what checkpointing computes again is not counted.

    Agrees with the published 11.18 TFLOP (3b, 1024 and 128 tokens).
    """
    width, *_, vocabulary = SIZES[size]
    return linear_flops(size, source, target) + attention_flops(size, source, target) + 3 * 2.0 * target * width * vocabulary


def linear_flops(size: str, source: int, target: int) -> float:
    """Of `flops`, those of the blocks' linear layers: of the encoder q, k, v, out and both of the MLP; of the decoder these over the
    summary, q and out of its attention to the document, and k and v over the document.
    """
    width, head, mlp, layers, heads, _ = SIZES[size]
    projection, feed = width * head * heads, 2 * width * mlp
    return 3 * 2.0 * layers * (source * (4 * projection + feed) + target * (6 * projection + feed) + source * 2 * projection)


def attention_flops(size: str, source: int, target: int) -> float:
    """Of `flops`, those of the scores and their sums: of the document, of the summary, and of the one to the other."""
    _, head, _, layers, heads, _ = SIZES[size]
    return 3 * 2.0 * 2 * head * heads * layers * (source * source + target * target + target * source)
