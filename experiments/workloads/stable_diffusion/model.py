"""Stable Diffusion's three parts as one torch module around diffusers' pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from experiments.components.flop_count import count_once, counting, in_attention, in_linears, shapes_alone
from experiments.components.workload import Batch, DataError, Unsupported
from experiments.workloads.stable_diffusion.parameters import CALLS, SIZES, TEXT_LENGTH, Parameters

if TYPE_CHECKING:
    from torch.utils.flop_counter import FlopCounterMode

# of CompVis/stable-diffusion-v1-4's scheduler
NOISE: dict[str, Any] = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "steps_offset": 1,
}


class Diffusion(nn.Module):
    """Text encoder (or None), UNet and VAE. A call makes images of a batch."""

    def __init__(self, unet: Any, vae: Any, text_encoder: Any, parameters: Parameters, *, latent: int, hpu: bool) -> None:
        from diffusers import StableDiffusionPipeline

        from experiments.components.layers.schedulers import Ddim, Pndm

        super().__init__()
        self.unet, self.vae, self.text_encoder = unet, vae, text_encoder
        self.parameters_of_trial, self.side = parameters, 8 * latent
        with torch.device("cpu"):  # where its tables are, whatever device the weights are made on
            if parameters.scheduler == "ddim":
                self.scheduler: Any = Ddim(clip_sample=False, **NOISE)
            else:
                self.scheduler = Pndm(skip_prk_steps=True, **NOISE)
        self.pipeline: Any = StableDiffusionPipeline(
            vae=vae,
            unet=unet,
            scheduler=self.scheduler,
            tokenizer=None,
            text_encoder=None,
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
        self.pipeline.set_progress_bar_config(disable=True)
        self.on_step_end = _mark_step if hpu else None

    def forward(self, batch: Batch) -> torch.Tensor:
        """Images (batch, 3, side, side), 0 to 1, of latents (batch, 4, side / 8, side / 8) and of tokens or embeddings of the prompts."""
        prompt, no_prompt = self.embeddings(batch)
        return self.pipeline(  # type: ignore[no-any-return]
            prompt_embeds=prompt,
            negative_prompt_embeds=no_prompt,
            latents=batch["latents"].to(self.unet.dtype),
            height=self.side,
            width=self.side,
            num_inference_steps=self.parameters_of_trial.denoising_steps,
            guidance_scale=self.parameters_of_trial.guidance,
            output_type="pt",
            callback_on_step_end=self.on_step_end,
        ).images

    def embeddings(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """What the UNet is told with and without the prompt, (batch, 77, width) each."""
        if self.text_encoder is None:
            return batch["prompt_embeds"], batch["negative_prompt_embeds"]
        conditional, unconditional = self.text_encoder(torch.cat([batch["prompt"], batch["no_prompt"]]))[0].chunk(2)
        return conditional, unconditional

    def noise_error(self, batch: Batch) -> torch.Tensor:
        """The mean squared error of the noise told in latents that are half of it, in the training objective's measure."""
        prompt, _ = self.embeddings(batch)
        clean = batch["latents"]
        noise = clean.flip(0, 2, 3)  # as normal as they are
        at = int((self.scheduler.alphas_cumprod - 0.5).abs().argmin())
        share = float(self.scheduler.alphas_cumprod[at])
        noisy = share**0.5 * clean + (1 - share) ** 0.5 * noise
        kind = self.unet.dtype
        prediction = self.unet(noisy.to(kind), at, prompt.to(kind), return_dict=False)[0]
        error: torch.Tensor = (prediction.float() - noise).square().mean()
        return error


def _mark_step(pipeline: Any, step: int, at: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Lazy mode: run what one denoising step collected. All fifty would be one graph."""
    from habana_frameworks.torch import core

    core.mark_step()
    return {}


def parts(parameters: Parameters) -> tuple[Any, Any, Any]:
    """UNet, VAE and text encoder (None where it is not wanted). Raises Unsupported without diffusers, DataError for unusable weights."""
    try:
        from diffusers import AutoencoderKL, UNet2DConditionModel
    except ImportError as error:
        raise Unsupported(f"stable_diffusion: diffusers cannot be imported here ({error})") from error
    from transformers import CLIPTextConfig, CLIPTextModel

    kinds = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
    names = [name for name in kinds if name != "text_encoder" or parameters.text_encoder]
    if parameters.weights is not None:
        folder = Path(parameters.weights).expanduser()
        if lacking := [name for name in names if not (folder / name / "config.json").is_file()]:
            raise DataError(
                f"{folder} has no {' and no '.join(lacking)}: wanted a folder as StableDiffusionPipeline.save_pretrained makes it"
            )
        options = {"use_safetensors": True, "local_files_only": True}  # never unpickle a checkpoint
        loaded = {name: kinds[name].from_pretrained(str(folder / name), **options).float() for name in names}
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


def arrange(part: Any, parameters: Parameters) -> None:
    """Give UNet or VAE the attention and the memory format that the parameters name. Its weights keep their values.

    Where query, key and value become one product, diffusers keeps their own weights beside it.
    """
    from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0

    if parameters.attention == "fused_qkv":
        part.fuse_qkv_projections()
    else:
        part.set_attn_processor(AttnProcessor() if parameters.attention == "eager" else AttnProcessor2_0())
    if parameters.memory_format == "channels_last":
        part.to(memory_format=torch.channels_last)


def flops(parameters: Parameters, latent: int) -> dict[str, float]:
    """FLOPs of an image: `unet`, all its calls with guidance, and `decoder`; the text encoder's 0.03 % are left out.

    Counted by torch's FlopCounterMode on tensors without values. Agrees with the published 803 GFLOP for each evaluation of the UNet and
    2515 for decoding (v1-4 at 512 pixels).
    """
    counted = _flops(parameters, latent)
    return {name: counted[name] for name in ("unet", "decoder")}


def linear_flops(parameters: Parameters, latent: int) -> float:
    """Of `flops`, those of the linear layers in the UNet's blocks."""
    return _flops(parameters, latent)["linear"]


def attention_flops(parameters: Parameters, latent: int) -> float:
    """Of `flops`, those of attention's scores and their sums over values, in UNet and decoder."""
    return _flops(parameters, latent)["attention"]


def unet_blocks(unet: Any) -> list[nn.Module]:
    """What `compile: layer` compiles, and whose linear layers may be in 8 bits."""
    return [*unet.down_blocks, unet.mid_block, *unet.up_blocks]


def _flops(parameters: Parameters, latent: int) -> dict[str, float]:
    return count_once(f"stable_diffusion, latent {latent}: {parameters.model_dump_json()}", lambda: _counted_flops(parameters, latent))


def _counted_flops(parameters: Parameters, latent: int) -> dict[str, float]:
    import torch

    def count(call: Callable[[], object]) -> FlopCounterMode:
        with counting() as counter:
            call()
        return counter

    with shapes_alone():
        unet, vae, _ = parts(parameters.model_copy(update={"text_encoder": False, "weights": None}))
        image, text = torch.zeros(1, 4, latent, latent), torch.zeros(1, TEXT_LENGTH, unet.config.cross_attention_dim)
        evaluations = 2 * (parameters.denoising_steps + CALLS[parameters.scheduler])
        once, decoder = count(lambda: unet(image, 1, text)), count(lambda: vae.decode(image))
    return {
        "unet": evaluations * float(once.get_total_flops()),
        "decoder": float(decoder.get_total_flops()),
        "linear": evaluations * in_linears(once, unet, unet_blocks(unet)),
        "attention": evaluations * in_attention(once) + in_attention(decoder),
    }
