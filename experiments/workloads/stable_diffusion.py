"""Stable Diffusion inference, as in "Faster training and inference: Habana Gaudi2 vs Nvidia A100 80GB": the latency of an image.

A step is one batch of images, from its prompts' tokens to pixels: text encoder, UNet with guidance at each denoising step, decoder. It runs
diffusers' own StableDiffusionPipeline. A sample is one image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from experiments import scenes
from experiments.workloads._inference import InferenceParameters, ready
from experiments.workloads._protocol import Batch, Context, DataError, Unsupported

if TYPE_CHECKING:
    import torch
    from torch import nn

BUILDS_ON = ("experiments.scenes",)  # its source is part of the trial key too

TEXT_LENGTH = 77
CALLS = {"ddim": 0, "pndm": 1}  # of the UNet, beyond one for each denoising step

# UNet: block widths, layers of a block, heads, pixels of a latent image. VAE: block widths, layers of a block.
# Text encoder: width, layers, heads, vocabulary. v1-4: CompVis/stable-diffusion-v1-4. tiny is ours, for CPUs
SIZES: dict[str, tuple[tuple[tuple[int, ...], int, int, int], tuple[tuple[int, ...], int], tuple[int, int, int, int]]] = {
    "v1-4": (((320, 640, 1280, 1280), 2, 8, 64), ((128, 256, 512, 512), 2), (768, 12, 12, 49408)),
    "tiny": (((32, 32, 64, 64), 1, 2, 8), ((32, 32, 32, 32), 1), (64, 2, 2, 1024)),
}


class Parameters(InferenceParameters):
    """Stable Diffusion's own settings."""

    model: Literal["v1-4", "tiny"] = Field("tiny", description="v1-4 as published; tiny for CPUs")
    image_size: int | None = Field(None, ge=64, le=2048, multiple_of=64, description="pixels per side; null: the model's own, 512 in v1-4")
    denoising_steps: int = Field(50, ge=1, le=1000)
    guidance: float = Field(7.5, gt=1, le=50, description="classifier-free: each denoising step computes with and without the prompt")
    scheduler: Literal["ddim", "pndm"] = Field("ddim", description="ddim calls the UNet once for each denoising step; pndm once more")
    text_encoder: bool = Field(True, description="encode the prompts in each step; false: drawn embeddings, and no text encoder")
    weights: str | None = Field(None, description="null: random from the seed; or a folder of the model's size made by save_pretrained")
    autocast: bool = Field(False, description="bf16, fp16 by operation, for weights that are not cast")

    @model_validator(mode="after")
    def _possible(self) -> Parameters:
        if self.compile == "model":
            raise ValueError("compile model: the denoising loop is no part of the model; use layer")
        if self.precision in ("bf16", "fp16") and not (self.cast_weights or self.autocast):
            raise ValueError(f"precision {self.precision}: set cast_weights or autocast, else all is computed in fp32")
        if self.weights is not None and not self.weights.startswith(("/", ".", "~")):
            raise ValueError(f"weights {self.weights!r}: a local folder, its path starting with / . or ~")
        return self


def build(context: Context) -> StableDiffusion:
    """The workload on this rank. Raises DataError and Unsupported."""
    return StableDiffusion(context)


class StableDiffusion:
    """See Workload."""

    trains = False
    find_unused_parameters = False

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        (_, _, _, own), _, (self.width, _, _, self.vocabulary) = SIZES[self.parameters.model]
        self.latent = self.parameters.image_size // 8 if self.parameters.image_size else own

    def model(self) -> nn.Module:
        from experiments.workloads.layers.diffusion import Diffusion

        unet, vae, text_encoder = parts(self.parameters)
        if (width := unet.config.cross_attention_dim) != self.width:
            raise DataError(f"{self.parameters.weights} takes prompts {width} wide, not {self.width}: it is no {self.parameters.model}")
        model = Diffusion(unet, vae, text_encoder, self.parameters, latent=self.latent, hpu=self.context.device_kind == "hpu")
        return ready(model, self.parameters)

    def layers(self, model: Any) -> list[nn.Module]:
        return [*model.unet.down_blocks, model.unet.mid_block, *model.unet.up_blocks]

    def graph_units(self, model: Any) -> list[nn.Module]:
        """What an HPU graph may hold: the denoising loop around it counts on the host."""
        return [model.unet, model.vae.decoder]

    def batches(self) -> Iterator[Batch]:
        import torch

        draw = torch.Generator().manual_seed(self.parameters.seed * 4096 + self.context.rank)
        write = self._writer()
        size, row = self.context.batch_size, 0
        while True:
            batch: Batch = {"latents": torch.randn(size, 4, self.latent, self.latent, generator=draw)}
            if self.parameters.text_encoder:
                prompts = write(range(row, row + size), draw)
                row += size
                batch |= {"prompt": prompts, "no_prompt": write(range(0), draw).expand_as(prompts)}
            else:
                kinds = ("prompt_embeds", "negative_prompt_embeds")
                batch |= {name: torch.randn(size, TEXT_LENGTH, self.width, generator=draw) for name in kinds}
            yield batch

    def _writer(self) -> Callable[[range, torch.Generator], torch.Tensor]:
        """(rows, generator) -> tokens (batch, 77); of no rows, those of the empty prompt (1, 77).

        The weights' own tokenizer on captions that we draw; without one, drawn tokens between those that begin and end a prompt.
        """
        import torch

        folder = Path(self.parameters.weights or "").expanduser() / "tokenizer"
        if self.parameters.weights is not None and folder.is_dir():
            from transformers import CLIPTokenizer

            tokenizer = CLIPTokenizer.from_pretrained(str(folder), local_files_only=True)

            def caption(rows: range, draw: torch.Generator) -> torch.Tensor:
                texts = [scenes.scene(self.parameters.seed, f"prompts/{self.context.rank}", row).caption for row in rows] or [""]
                cut = {"padding": "max_length", "truncation": True, "max_length": TEXT_LENGTH}
                return tokenizer(texts, return_tensors="pt", **cut).input_ids  # type: ignore[no-any-return]

            return caption
        if self.parameters.weights is not None and self.context.rank == 0:
            self.context.note(f"{folder} is not there: the prompts are drawn tokens, which say nothing; latencies are those of any prompt")

        def drawn(rows: range, draw: torch.Generator) -> torch.Tensor:
            begin, end = self.vocabulary - 2, self.vocabulary - 1
            tokens = torch.randint(0, begin, (max(1, len(rows)), TEXT_LENGTH), generator=draw)
            tokens[:, 0] = begin
            tokens[:, 20 if len(rows) else 1 :] = end  # which pads, too
            return tokens

        return drawn

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The images; of them the mean brightness, 0 to 1. Not finite where a pixel is not."""
        return model(batch).float().mean()  # type: ignore[no-any-return]

    def samples(self, batch: Batch) -> int:
        return len(batch["latents"])

    def evaluate(self, model: Any, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """`loss`: the mean squared error of the noise that the UNet tells in drawn latents half made of noise; 1 for telling none."""
        batch = place(next(self.batches()))
        return {"loss": float(model.noise_error(batch)), "chance_loss": 1.0}

    def flops_per_sample(self) -> float | None:
        return sum(flops(self.parameters, self.latent).values())


def parts(parameters: Parameters) -> tuple[Any, Any, Any]:
    """UNet, VAE and text encoder (None where it is not wanted). Raises Unsupported without diffusers, DataError for unusable weights."""
    try:
        from diffusers import AutoencoderKL, UNet2DConditionModel
    except ImportError as error:
        raise Unsupported(f"stable_diffusion: diffusers cannot be imported here ({error})") from error
    from transformers import CLIPTextConfig, CLIPTextModel

    kinds = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
    wanted = [name for name in kinds if name != "text_encoder" or parameters.text_encoder]
    if parameters.weights is not None:
        folder = Path(parameters.weights).expanduser()
        if lacking := [name for name in wanted if not (folder / name / "config.json").is_file()]:
            raise DataError(
                f"{folder} has no {' and no '.join(lacking)}: wanted a folder as StableDiffusionPipeline.save_pretrained makes it"
            )
        options = {"use_safetensors": True, "local_files_only": True}  # never unpickle a checkpoint
        loaded = {name: kinds[name].from_pretrained(str(folder / name), **options).float() for name in wanted}
        return loaded["unet"], loaded["vae"], loaded.get("text_encoder")
    (widths, layers, heads, latent), (vae_widths, vae_layers), (text, text_layers, text_heads, vocabulary) = SIZES[parameters.model]
    unet = UNet2DConditionModel(
        sample_size=latent,
        block_out_channels=widths,
        layers_per_block=layers,
        down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
        up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3,
        cross_attention_dim=text,
        attention_head_dim=heads,  # their number: diffusers keeps the name for the sake of old checkpoints
    )
    vae = AutoencoderKL(
        block_out_channels=vae_widths,
        layers_per_block=vae_layers,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=4,
        sample_size=8 * latent,
    )
    if not parameters.text_encoder:
        return unet, vae, None
    config = CLIPTextConfig(
        hidden_size=text,
        intermediate_size=4 * text,
        num_hidden_layers=text_layers,
        num_attention_heads=text_heads,
        vocab_size=vocabulary,
        bos_token_id=vocabulary - 2,
        eos_token_id=vocabulary - 1,
    )
    return unet, vae, CLIPTextModel(config)


def flops(parameters: Parameters, latent: int) -> dict[str, float]:
    """FLOPs of an image: `unet`, all its calls with guidance, and `decoder`; the text encoder's 0.03 % are left out.

    Counted by torch's FlopCounterMode on fake tensors, attention as plain matrix products, which the counter knows on every device. Agrees
    with the published 803 GFLOP for each evaluation of the UNet and 2515 for decoding (v1-4 at 512 pixels).
    """
    import torch
    from diffusers.models.attention_processor import AttnProcessor
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    def count(call: Callable[[], object]) -> float:
        with FlopCounterMode(display=False) as counter:
            call()
        return float(counter.get_total_flops())

    with FakeTensorMode(), torch.no_grad():
        unet, vae, _ = parts(parameters.model_copy(update={"text_encoder": False, "weights": None}))
        for part in (unet, vae):
            part.set_attn_processor(AttnProcessor())
        image, text = torch.zeros(1, 4, latent, latent), torch.zeros(1, TEXT_LENGTH, unet.config.cross_attention_dim)
        evaluations = 2 * (parameters.denoising_steps + CALLS[parameters.scheduler])
        return {"unet": evaluations * count(lambda: unet(image, 1, text)), "decoder": count(lambda: vae.decode(image))}
