"""Stable Diffusion: the published sizes and FLOPs, golden images, weights from a folder, a batch through the measured loop, its suite."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from pydantic import ValidationError
from torch.utils._python_dispatch import TorchDispatchMode

from cluster.devices.cpu import Cpu
from cluster.pools.pool import load_pools
from cluster.worker.train.train_step import TrainStep
from experiments.components.workload import Context, DataError, Unsupported, compile_units, graph_units
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.stats.loss_parity import ParityStatus, loss_parity
from experiments.workloads import stable_diffusion
from experiments.workloads.stable_diffusion import model as network

pytestmark = pytest.mark.usefixtures("one_thread")

SHORT: dict[str, Any] = {"batch_size": 2, "denoising_steps": 3, "seed": 7}
GOLDEN = [0.125287, 0.133672, 0.140323]  # mean projection of the first batches, fp32
GOLDEN_PIXELS = [0.13601, 0.06944, 0.27808]  # one pixel as decoded, before it is brought to 0..1


def build(notes: list[str] | None = None, **values: Any) -> stable_diffusion.StableDiffusion:
    parameters = stable_diffusion.Parameters(**{**SHORT, **values})
    note = notes.append if notes is not None else (lambda text: None)
    return stable_diffusion.build(Context(parameters, None, "cpu", 0, 1, 2, note))


def made(one: stable_diffusion.StableDiffusion) -> Any:
    torch.manual_seed(0)
    return one.model()


def test_parameters_and_flops_are_the_published_ones() -> None:
    parameters = stable_diffusion.Parameters(model="v1-4")
    with torch.device("meta"):
        parts = network.parts(parameters)
    assert [sum(parameter.numel() for parameter in part.parameters()) for part in parts] == [859_520_964, 83_653_863, 123_060_480]
    found = network.flops(parameters, 64)
    assert found["unet"] == pytest.approx(2 * 50 * 803e9, rel=0.01) and found["decoder"] == pytest.approx(2515e9, rel=0.01)
    assert sum(found.values()) == pytest.approx(82.9e12, rel=0.01)


def test_images_are_the_golden_ones_and_the_unet_is_called_as_often_as_published() -> None:
    one = build()
    model = made(one)
    calls, images = [], []
    model.unet.register_forward_pre_hook(lambda module, given: calls.append(len(given[0])))
    model.vae.decoder.register_forward_hook(lambda module, given, output: images.append(output))
    with torch.inference_mode():
        losses = [float(one.loss(model, batch)) for batch in islice(one.batches(), 3)]
    assert losses == pytest.approx(GOLDEN, abs=2e-5)
    assert images[0].shape == (2, 3, 64, 64) and images[0][0, :, 5, 5].tolist() == pytest.approx(GOLDEN_PIXELS, abs=1e-3)
    assert calls == [4] * 9, "with and without the prompt, once for each denoising step"
    calls.clear()
    other = build(scheduler="pndm")
    with torch.inference_mode():
        model = made(other)
        model.unet.register_forward_pre_hook(lambda module, given: calls.append(len(given[0])))
        other.loss(model, next(other.batches()))
    assert len(calls) == 4, "PNDM calls it once more"
    ddim, pndm = (network.flops(each.parameters, each.latent) for each in (one, other))
    assert pndm["unet"] / ddim["unet"] == pytest.approx(4 / 3)


@pytest.mark.parametrize("values", [{"attention": "eager"}, {"attention": "fused_qkv"}, {"memory_format": "channels_last"}])
def test_images_are_the_same_however_they_are_computed(values: dict[str, Any]) -> None:
    found = []
    for each in ({}, values):
        one = build(**each)
        model = made(one)
        with torch.inference_mode():
            found.append(model(next(one.batches())))
    assert float((found[1] - found[0]).abs().max()) < 2e-5
    processors = {type(part).__name__ for part in (*model.unet.attn_processors.values(), *model.vae.attn_processors.values())}
    wanted = {"eager": "AttnProcessor", "fused_qkv": "FusedAttnProcessor2_0"}.get(values.get("attention", ""), "AttnProcessor2_0")
    assert processors == {wanted}
    convolutions = [part.weight for part in model.modules() if isinstance(part, torch.nn.Conv2d) and part.kernel_size == (3, 3)]
    last = [weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous() for weight in convolutions]
    assert len(last) > 10 and set(last) == {"memory_format" in values}


class HostReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that hand a tensor's value to the host: on a GPU, each waits until the device has caught up."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += any(name in str(function) for name in ("_local_scalar_dense", "is_nonzero", "item"))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("scheduler", ["ddim", "pndm"])
def test_the_schedulers_give_diffusers_images_and_read_nothing_from_the_device(scheduler: str) -> None:
    one = build(scheduler=scheduler)
    model = made(one)
    batches = [next(one.batches()), next(one.batches())]
    images, reads = [], []
    for own in (True, False):
        if not own:
            stock = {"ddim": diffusers.DDIMScheduler, "pndm": diffusers.PNDMScheduler}[scheduler]
            model.pipeline.scheduler = stock.from_config(model.scheduler.config)
        with torch.inference_mode(), HostReads() as host:
            images.append([model(batch) for batch in batches])
            one.loss(model, batches[0])
        reads.append(host.found)
    assert all(torch.equal(*pair) for pair in zip(*images, strict=True))
    assert reads[0] == 0 < reads[1]


@pytest.mark.parametrize("values", [{}, {"attention": "fused_qkv", "memory_format": "channels_last"}], ids=["stock", "fastest"])
def test_unet_and_decoder_compile_whole_and_once_for_all_denoising_steps(values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "compile_backend", "eager")  # dynamo's graphs as they are: inductor takes minutes
    torch.compiler.reset()
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    found = []
    for compile_ in ("none", "model"):
        one = build(batch_size=1, compile=compile_, **values)
        step = TrainStep(one, made(one), one.parameters, Cpu())
        batches = one.batches()
        found.append([float(step.forward_backward(next(batches))) for _ in range(2)])
    assert found[1] == pytest.approx(found[0], abs=1e-6)
    assert counters["stats"]["unique_graphs"] == 2 and not counters["graph_break"]
    torch.compiler.reset()


def without_attention(model: Any, name: str) -> None:
    for path, part in model.unet.named_modules():
        if path.endswith(name):
            part.to_out[0].weight.data.zero_()


@pytest.mark.parametrize(
    ("values", "lost", "status"),
    [
        ({"attention": "eager"}, "", ParityStatus.PROVEN),
        ({}, "attn1", ParityStatus.UNPROVEN),
        ({}, "attn2", ParityStatus.UNPROVEN),
    ],
    ids=["another attention", "no self-attention", "no prompt"],
)
def test_the_loss_tells_a_wrong_unet_from_a_right_one(values: dict[str, Any], lost: str, status: ParityStatus) -> None:
    curves, brightness = [], []
    for own, missing in (({}, ""), (values, lost)):
        one = build(batch_size=1, **own)
        model = made(one)
        if missing:
            without_attention(model, missing)
        images: list[float] = []
        model.register_forward_hook(lambda module, given, output, images=images: images.append(float(output.mean())))
        with torch.inference_mode():
            curves.append([float(one.loss(model, batch)) for batch in islice(one.batches(), 8)])
        brightness.append(images)
    assert loss_parity({7: curves[1]}, {7: curves[0]}, trains=False).status is status
    differences = [abs(found / wanted - 1) for wanted, found in zip(*curves, strict=True)]
    if status is ParityStatus.PROVEN:
        assert max(differences) < 0.005
    else:
        assert sum(each > 0.005 for each in differences) >= 7
        assert loss_parity({7: brightness[1]}, {7: brightness[0]}, trains=False).status is ParityStatus.PROVEN, "which tells nothing"


def test_a_pixel_that_is_not_finite_shows_in_the_loss() -> None:
    one = build(batch_size=1)
    model = made(one)
    model.vae.decoder.conv_out.bias.data[1] = float("nan")
    with torch.inference_mode():
        assert not torch.isfinite(one.loss(model, next(one.batches())))


def test_gaudi_lays_tensors_out_itself() -> None:
    parameters = stable_diffusion.Parameters(**SHORT, memory_format="channels_last")
    with pytest.raises(Unsupported, match="memory_format channels_last: on hpu"):
        stable_diffusion.build(Context(parameters, None, "hpu", 0, 1, 2))


def test_the_prompt_matters_and_embeddings_can_take_its_place() -> None:
    one = build()
    model = made(one)
    batch = next(one.batches())
    with torch.inference_mode():
        told = model(batch)
        other = model({**batch, "prompt": batch["prompt"].flip(0)})
        assert not torch.equal(told, other)
        prompt, untold = model.embeddings(batch)
        without = build(text_encoder=False)
        drawn = next(without.batches())
        assert drawn["prompt_embeds"].shape == prompt.shape == untold.shape == (2, 77, 64)
        plain = made(without)
        assert plain.text_encoder is None
        plain.load_state_dict({name: value for name, value in model.state_dict().items() if "text_encoder" not in name})
        again = plain({"latents": batch["latents"], "prompt_embeds": prompt, "negative_prompt_embeds": untold})
    assert torch.allclose(told, again, atol=1e-6)


def test_weights_of_a_folder_are_loaded(tmp_path: Path) -> None:
    source = made(build())
    for name in ("unet", "vae", "text_encoder"):
        getattr(source, name).save_pretrained(str(tmp_path / name), safe_serialization=True)
    notes: list[str] = []
    one = build(notes, weights=str(tmp_path))
    torch.manual_seed(1)
    model = one.model()
    assert all(torch.equal(value, source.state_dict()[name]) for name, value in model.state_dict().items())
    next(one.batches())
    assert "random tokens" in notes[0]
    with pytest.raises(DataError, match=r"takes prompts 64 wide, not 768: it is no v1-4"):
        build(weights=str(tmp_path), model="v1-4").model()
    (tmp_path / "vae" / "config.json").unlink()
    with pytest.raises(DataError, match="has no vae"):
        build(weights=str(tmp_path)).model()


def test_captions_are_the_prompts_where_the_weights_have_a_tokenizer(tmp_path: Path) -> None:
    from transformers import CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    CLIPTokenizer({word: at for at, word in enumerate(words)}, []).save_pretrained(str(tmp_path / "tokenizer"))
    one = build(weights=str(tmp_path))
    batch = next(one.batches())
    assert batch["prompt"].shape == (2, 77) and (batch["prompt"][:, 0] == words.index("<|startoftext|>")).all()
    assert batch["prompt"][0, 1] == words.index("a</w>"), "a ... background with ..."
    assert (batch["no_prompt"][:, 1:] == words.index("<|endoftext|>")).all()


def test_a_step_of_the_measured_loop_in_bf16() -> None:
    one = build(precision="bf16")
    train_step = TrainStep(one, made(one), one.parameters, Cpu())
    assert train_step.optimizer is None and {value.dtype for value in train_step.plain.parameters()} == {torch.bfloat16}
    loss = train_step.forward_backward(train_step.place(next(one.batches())))
    assert float(loss) == pytest.approx(GOLDEN[0], abs=0.01)
    assert train_step.evaluate()["chance_loss"] == 1
    names = dict(train_step.plain.named_modules())
    assert graph_units(one, train_step.plain) == [names["unet"], names["vae.decoder"]], "what HPU graphs record"
    assert compile_units(one, train_step.plain) == graph_units(one, train_step.plain)
    assert len(one.layers(train_step.plain)) == 4 + 1 + 4


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"precision": "fp16", "cast_weights": False}, "autocast false: .* set autocast to true, or cast_weights to true"),
        ({"weights": "CompVis/stable-diffusion-v1-4"}, "a local folder"),
        ({"activation_checkpointing": True}, "nothing is trained here"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        stable_diffusion.Parameters(**values)


def test_the_suite_is_the_documents_experiment() -> None:
    cells = expand(load_suite("stable_diffusion", pools=load_pools()))
    assert {(cell.axes["pool"], cell.axes["batch_size"]) for cell in cells} == {(p, b) for p in ("gaudi2", "a100") for b in (1, 4, 8)}
    for cell in cells:
        values = cell.parameters
        assert (values["model"], values["denoising_steps"], values["guidance"], values["scheduler"]) == ("v1-4", 50, 7.5, "ddim")
        assert (values["devices"], values["warmup_steps"]) == (1, 2), "one device; the first two batches are excluded"
        assert values["precision"] == {"gaudi2": "bf16", "a100": "fp16"}[cell.pool]
    assert len(expand(load_suite("stable_diffusion", profile="cuda", pools=load_pools()))) <= 8
    *cells, reference = expand(load_suite("stable_diffusion", profile="fast", pools=load_pools()))
    fast = [cell.parameters for cell in cells]
    assert [(one["cuda_graph"], one["compile"], one["profile_steps"]) for one in fast] == [(False, "none", 0), (True, "model", 2)]
    assert {(one["execution"], one["precision"], one["batch_size"]) for one in fast} == {("synchronous", "fp16", 1)}
    plain = reference.parameters
    assert reference.reference and (plain["precision"], plain["cuda_graph"], plain["compile"]) == ("fp32", False, "none")
    assert reference.repeats == 3 and {one["steps"] for one in (*fast, plain)} == {8}, "loss parity compares no fewer"
