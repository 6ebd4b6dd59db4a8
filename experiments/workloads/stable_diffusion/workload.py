"""Stable Diffusion inference, as in "Faster training and inference: Habana Gaudi2 vs Nvidia A100 80GB": the latency of an image.

A step is one batch of images, from its prompts' tokens to pixels: text encoder, UNet with guidance at each denoising step, decoder. It runs
diffusers' own StableDiffusionPipeline. A sample is one image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.components.inference import ready
from experiments.components.workload import Batch, Context, DataError, Unsupported
from experiments.datasets import scenes
from experiments.workloads.stable_diffusion.parameters import SIZES, TEXT_LENGTH, Parameters

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.components.layers.projections import Projections
    from experiments.components.layers.recorded import Recorded


def build(context: Context) -> StableDiffusion:
    """The workload on this rank. Raises DataError and Unsupported."""
    return StableDiffusion(context)


class StableDiffusion:
    """See Workload."""

    trains = False
    find_unused_parameters = False
    records_itself = True  # a denoising step is a graph, and a batch takes many

    def __init__(self, context: Context) -> None:
        self.context = context
        self.parameters: Parameters = context.parameters
        if self.parameters.memory_format == "channels_last" and context.device_kind == "hpu":
            raise Unsupported("memory_format channels_last: on hpu the graph compiler lays tensors out")
        (_, _, _, own), _, (self.width, _, _, self.vocabulary) = SIZES[self.parameters.model]
        self._recorded: list[Recorded] = []  # with cuda_graph, from the first batch on
        self._projections: Projections | None = None  # from the first batch on
        self.latent = self.parameters.image_size // 8 if self.parameters.image_size else own

    def model(self) -> nn.Module:
        from experiments.workloads.stable_diffusion.model import Diffusion, arrange, parts

        unet, vae, text_encoder = parts(self.parameters)
        if (width := unet.config.cross_attention_dim) != self.width:
            raise DataError(f"{self.parameters.weights} takes prompts {width} wide, not {self.width}: it is no {self.parameters.model}")
        for part in (unet, vae):
            arrange(part, self.parameters)
        model = Diffusion(unet, vae, text_encoder, self.parameters, latent=self.latent, hpu=self.context.device_kind == "hpu")
        return ready(model, self.parameters)

    def layers(self, model: Any) -> list[nn.Module]:
        from experiments.workloads.stable_diffusion.model import unet_blocks

        return unet_blocks(model.unet)

    def graph_units(self, model: Any) -> list[nn.Module]:
        """What a graph may hold: the denoising loop around it counts on the host."""
        return [model.unet, model.vae.decoder]

    def compile_units(self, model: Any) -> list[nn.Module]:
        """For the same reason."""
        return self.graph_units(model)

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
        """(rows, generator) -> tokens (batch, 77); for no rows, those of the empty prompt (1, 77).

        They are captions of synthetic scenes, where the weights have a tokenizer. Else they are random tokens between those that begin and
        end a prompt.
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
            self.context.note(f"{folder} is not there: the prompts are random tokens without meaning; latencies do not depend on them")

        def random_tokens(rows: range, draw: torch.Generator) -> torch.Tensor:
            begin, end = self.vocabulary - 2, self.vocabulary - 1
            tokens = torch.randint(0, begin, (max(1, len(rows)), TEXT_LENGTH), generator=draw)
            tokens[:, 0] = begin
            tokens[:, 20 if len(rows) else 1 :] = end  # which pads, too
            return tokens

        return random_tokens

    def prepare(self, batch: Batch) -> Batch:
        return batch

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The images; of them the mean projection, by which loss parity tells their contents. Not finite where a pixel is not."""
        if self.parameters.cuda_graph and not self._recorded:
            from experiments.components.layers.recorded import Recorded

            for unit in self.graph_units(model):
                self._recorded.append(Recorded(unit.forward))  # compiled or not
                unit.forward = self._recorded[-1]
        images = model(batch)
        if self._projections is None:
            from experiments.components.layers.projections import Projections

            self._projections = Projections(images.shape[1:], images.device, about=0.5)
        return self._projections(images).mean()

    def leave_graphs_out(self) -> None:
        for recorded in self._recorded:
            recorded.leave_out()

    def samples(self, batch: Batch) -> int:
        return len(batch["latents"])

    def evaluate(self, model: Any, place: Callable[[Batch], Batch]) -> dict[str, float]:
        """`loss`: the mean squared error of the noise that the UNet predicts in latents that are half noise; 1 for predicting none."""
        batch = place(next(self.batches()))
        return {"loss": float(model.noise_error(batch)), "chance_loss": 1.0}

    def flops_per_sample(self) -> float | None:
        from experiments.workloads.stable_diffusion.model import flops

        return sum(flops(self.parameters, self.latent).values())

    def linear_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of the linear layers in `layers`."""
        from experiments.workloads.stable_diffusion.model import linear_flops

        return linear_flops(self.parameters, self.latent)

    def attention_flops_per_sample(self) -> float:
        """Of `flops_per_sample`, those of attention's scores and their sums over values."""
        from experiments.workloads.stable_diffusion.model import attention_flops

        return attention_flops(self.parameters, self.latent)
