"""Stable Diffusion's three parts as one torch module around diffusers' pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from experiments.workloads._protocol import Batch
    from experiments.workloads.stable_diffusion import Parameters

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
        from diffusers import DDIMScheduler, PNDMScheduler, StableDiffusionPipeline

        super().__init__()
        self.unet, self.vae, self.text_encoder = unet, vae, text_encoder
        self.parameters_of_trial, self.side = parameters, 8 * latent
        with torch.device("cpu"):  # where its tables are, whatever device the weights are made on
            if parameters.scheduler == "ddim":
                self.scheduler: Any = DDIMScheduler(clip_sample=False, **NOISE)
            else:
                self.scheduler = PNDMScheduler(skip_prk_steps=True, **NOISE)
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
        told, untold = self.text_encoder(torch.cat([batch["prompt"], batch["no_prompt"]]))[0].chunk(2)
        return told, untold

    def noise_error(self, batch: Batch) -> torch.Tensor:
        """The mean squared error of the noise told in latents that are half of it, in the training objective's measure."""
        prompt, _ = self.embeddings(batch)
        clean = batch["latents"]
        noise = clean.flip(0, 2, 3)  # as normal as they are
        at = int((self.scheduler.alphas_cumprod - 0.5).abs().argmin())
        share = float(self.scheduler.alphas_cumprod[at])
        noisy = share**0.5 * clean + (1 - share) ** 0.5 * noise
        kind = self.unet.dtype
        told = self.unet(noisy.to(kind), at, prompt.to(kind), return_dict=False)[0]
        error: torch.Tensor = (told.float() - noise).square().mean()
        return error


def _mark_step(pipeline: Any, step: int, at: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Lazy mode: run what one denoising step collected. All fifty would be one graph."""
    from habana_frameworks.torch import core

    core.mark_step()
    return {}
