"""The published shapes of Llama 3 and Qwen 3, and what transformers' configurations of them are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Family = Literal["llama", "qwen3"]
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")  # linear layers of a block, in their order


@dataclass(frozen=True)
class Shape:
    """A decoder. `head`: width of a head; `tied`: one matrix embeds tokens and scores them; `rope_factor`: of Llama 3's scaled rotary
    embedding, None: not scaled."""

    family: Family
    width: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    vocabulary: int
    tied: bool
    rope_factor: float | None = None

    @property
    def projections(self) -> dict[str, int]:
        """Weights of each linear layer of a block."""
        queries, keys = self.width * self.heads * self.head, self.width * self.kv_heads * self.head
        mlp = self.width * self.mlp
        return dict(zip(PROJECTIONS, (queries, keys, keys, queries, mlp, mlp, mlp), strict=True))

    @property
    def ends(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of each linear layer of a block."""
        width, queries, keys, mlp = self.width, self.heads * self.head, self.kv_heads * self.head, self.mlp
        pairs = ((width, queries), (width, keys), (width, keys), (queries, width), (width, mlp), (width, mlp), (mlp, width))
        return dict(zip(PROJECTIONS, pairs, strict=True))


# config.json of meta-llama/Llama-3.1-8B, Llama-3.2-3B and -1B, and of Qwen/Qwen3-8B, -4B, -1.7B and -0.6B on the Hugging Face hub. The
# tiny ones are ours, for CPUs
SHAPES: dict[str, Shape] = {
    "llama3-8b": Shape("llama", 4096, 32, 32, 8, 128, 14_336, 128_256, False, 8.0),
    "llama3-3b": Shape("llama", 3072, 28, 24, 8, 128, 8192, 128_256, True, 32.0),
    "llama3-1b": Shape("llama", 2048, 16, 32, 8, 64, 8192, 128_256, True, 32.0),
    "qwen3-8b": Shape("qwen3", 4096, 36, 32, 8, 128, 12_288, 151_936, False),
    "qwen3-4b": Shape("qwen3", 2560, 36, 32, 8, 128, 9728, 151_936, True),
    "qwen3-1.7b": Shape("qwen3", 2048, 28, 16, 8, 128, 6144, 151_936, True),
    "qwen3-0.6b": Shape("qwen3", 1024, 28, 16, 8, 128, 3072, 151_936, True),
    "llama3-tiny": Shape("llama", 64, 2, 4, 2, 16, 192, 4096, False, 8.0),
    "qwen3-tiny": Shape("qwen3", 64, 2, 4, 2, 32, 192, 4096, True),
}
# What each family has besides: the longest context, the rotary embedding's base, eps of the norms
FAMILIES: dict[Family, dict[str, Any]] = {
    "llama": {"max_position_embeddings": 131_072, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5},
    "qwen3": {"max_position_embeddings": 40_960, "rope_theta": 1e6, "rms_norm_eps": 1e-6},
}


def config_of(shape: Shape) -> Any:
    """transformers' LlamaConfig or Qwen3Config of a shape."""
    import transformers

    scaling = None
    if shape.rope_factor is not None:  # of Llama 3.1 and 3.2, from a context of 8192 on
        scaling = {"rope_type": "llama3", "factor": shape.rope_factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        scaling["original_max_position_embeddings"] = 8192
    kind = transformers.LlamaConfig if shape.family == "llama" else transformers.Qwen3Config
    return kind(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head,
        intermediate_size=shape.mlp,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        use_cache=False,  # of keys and values, for generation
        rope_scaling=scaling,
        **FAMILIES[shape.family],
    )


def shape_of(config: Any) -> Shape:
    """The shape that a configuration of Llama or Qwen 3 describes. Raises ValueError for another architecture."""
    if config.model_type not in ("llama", "qwen3"):
        raise ValueError(f"a {config.model_type} model; wanted llama or qwen3")
    heads = int(config.num_attention_heads)
    return Shape(
        family=config.model_type,
        width=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=heads,
        kv_heads=config.num_key_value_heads,
        head=getattr(config, "head_dim", None) or config.hidden_size // heads,
        mlp=config.intermediate_size,
        vocabulary=config.vocab_size,
        tied=bool(config.tie_word_embeddings),
    )
