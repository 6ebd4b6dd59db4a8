"""CLIP: the published sizes and FLOPs, golden losses of the low-precision arms, zero-initialised layer scale, and its suites."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from cluster.journal.journal import Journal, JournalWriter, read_journal
from cluster.pools.pool import load_pools
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.components.layers.convert import convert
from experiments.components.layers.low_precision import LowPrecisionLinear
from experiments.components.workload import Context, flops_by_precision
from experiments.datasets import scenes
from experiments.precision import LOW, Precision
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.summary import summarise
from experiments.trial import DataSource, Trial
from experiments.workloads import clip

GOLDEN_STABLE = [2.73624, 2.52178, 2.31459, 2.35443, 2.51959, 2.11854]
GOLDEN = [2.38623, 2.37825, 2.68663]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=64, seed=0, max_size=128)
    return folder


def workload(folder: Path, **changes: Any) -> clip.Clip:
    data = DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))
    return clip.build(Context(clip.Parameters(batch_size=8, evaluation_samples=16, **changes), data, "cpu", 0, 1, 8))


def losses(folder: Path, **changes: Any) -> list[float]:
    one = workload(folder, **changes)
    torch.manual_seed(0)
    model = one.model()
    if one.parameters.precision in LOW:
        convert(model, one.layers(model), one.parameters, "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for batch in islice(one.batches(), 3):
        loss = one.loss(model, one.prepare(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(
    ("size", "count", "giga"),
    [("b32", 151_277_313, 44), ("b16", 149_620_737, 123), ("l14", 427_616_513, 526), ("h14", 986_109_441, 1145)],
)
def test_parameters_and_flops_are_the_published_ones(size: str, count: int, giga: float) -> None:
    from transformers import CLIPModel

    with torch.device("meta"):
        model = CLIPModel(clip.config(size))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert clip.flops(size) == pytest.approx(giga * 1e9, rel=0.01)
    blocks = [*model.text_model.encoder.layers, *model.vision_model.encoder.layers]
    weights = [module.weight.numel() for block in blocks for module in block.modules() if isinstance(module, torch.nn.Linear)]
    (*_, patch, image), (_, text_layers, _), _, _, tokens = clip.SIZES[size]
    texts = sum(weights[: 6 * text_layers]) * tokens
    images = sum(weights[6 * text_layers :]) * ((image // patch) ** 2 + 1)
    assert clip.linear_flops(size) == 3 * 2 * (texts + images)


@pytest.mark.parametrize(
    ("precision", "low", "products"),
    [("bf16", None, 0), ("int8_switchback", "int8", 2), ("fp8", "fp8", 3), ("fp8_switchback", "fp8", 2), ("fp8_simulated", None, 0)],
)
def test_flops_by_precision_are_those_of_the_layers_products(drawn: Path, precision: Precision, low: str | None, products: int) -> None:
    one = workload(drawn, model="tiny", precision=precision)
    found = flops_by_precision(one, precision, one.flops_per_sample())
    assert found is not None and sum(found.values()) == pytest.approx(one.flops_per_sample())
    assert set(found) == {"bf16"} | ({low} if low else set()), "attention stays in 16 bits"
    assert found.get(low or "", 0.0) == pytest.approx(clip.linear_flops("tiny") * products / 3)


def test_what_a_library_computes_in_which_precision_is_not_guessed(drawn: Path) -> None:
    assert flops_by_precision(workload(drawn, model="tiny", precision="llm_int8"), "llm_int8", 1e9) is None


def test_the_first_losses_are_the_golden_ones_and_low_precision_stays_near(drawn: Path) -> None:
    plain = losses(drawn)
    assert plain == pytest.approx(GOLDEN, rel=1e-4)
    for precision in ("int8_switchback", "int8_switchback_m", "int8_switchback_q", "fp8_simulated"):
        found = losses(drawn, precision=precision)
        assert found == pytest.approx(plain, rel=0.05), precision
        assert found != plain, precision


def test_zero_layer_scale_makes_every_block_pass_its_input_on(drawn: Path) -> None:
    """At first; and the magnitude of what blocks put out, which the document's figure shows, does not grow with depth."""
    scaled, plain = workload(drawn, zero_layer_scale=True), workload(drawn)
    model, other = scaled.model(), plain.model()
    metrics, others = scaled.evaluate(model.eval(), scaled.prepare), plain.evaluate(other.eval(), plain.prepare)
    first, last = (metrics[f"magnitude_{at}"] for at in (1, 3))
    assert first == pytest.approx(last, rel=1e-6)
    assert others["magnitude_1"] != pytest.approx(others["magnitude_3"], rel=1e-3)
    vectors = [parameter for name, parameter in model.named_parameters() if name.endswith(".scale")]
    assert len(vectors) == 2 * len(scaled.layers(model)) and not any(vector.any() for vector in vectors)


def test_a_text_is_represented_by_its_end(drawn: Path) -> None:
    one = workload(drawn)
    tokens = one.prepare(next(one.batches()))["input_ids"]
    at = tokens.argmax(dim=1)
    assert (tokens.gather(1, at[:, None]) == one.vocabulary - 1).all()
    assert all((row[place + 1 :] == 1).all() for row, place in zip(tokens, at, strict=True)), "only padding follows"


def test_every_linear_layer_of_a_block_is_replaced(drawn: Path) -> None:
    one = workload(drawn, precision="int8_switchback", zero_layer_scale=True)
    model = one.model()
    convert(model, one.layers(model), one.parameters, "cpu")
    for layer in one.layers(model):
        assert [type(module) for module in layer.modules() if isinstance(module, torch.nn.Linear)] == [LowPrecisionLinear] * 6


def test_the_suite_is_the_documents_experiment() -> None:
    planned = expand(load_suite("clip_precision", pools=load_pools()))
    cells = [cell for cell in planned if not cell.reference]
    assert len(cells) == 3 * 2 * 14
    references = [(cell.axes["precision"], cell.axes["kernels"]) for cell in planned if cell.reference]
    assert references == [("fp32", "stock")] * 6, "for loss parity, one for each model and layer scale"
    assert {cell.axes["precision"] for cell in cells} == {"bf16", "fp16", *LOW} - {"mxfp8"}
    assert all(cell.parameters["devices"] == 4 and cell.parameters["batch_size"] == 256 for cell in cells)
    assert all(cell.parameters["activation_checkpointing"] for cell in cells)
    widths = {cell.axes["width"] for cell in expand(load_suite("linear_layer", pools=load_pools()))}
    assert widths == {1024, 1280, 1408, 1664, 2048, 4096}


def test_the_suite_of_stability_is_the_documents_experiment() -> None:
    cells = expand(load_suite("clip_stability", pools=load_pools()))
    arms = {(cell.axes["update_rule"], cell.axes["clip_grad_norm"]) for cell in cells}
    assert arms == {("adamw", None), ("adamw", 1.0), ("stable_adamw", None)}
    assert {cell.axes["model"] for cell in cells} == {"b32", "b16", "l14", "h14"}
    assert len(cells) == 3 * len({(cell.axes["model"], cell.axes["beta2"], cell.axes["learning_rate"]) for cell in cells})
    for cell in cells:
        values = cell.parameters
        assert (values["weight_decay"], values["adam_eps"], values["spikes_after"]) == (0.2, 1e-6, 1000)
        assert values["rms_tensors"].startswith("vision_model.embeddings.patch_embedding.weight,")


def learned(folder: Path, out: Path, **changes: Any) -> Journal:
    """A trial, of three warm-up and three measured steps unless changed, through the worker's own session."""
    parameters = {"model": "pico", "batch_size": 8, "evaluation_samples": 16, "steps": 3, "warmup_steps": 3, "threads": 1, **changes}
    names = {"key": "0" * 16, "sweep_id": "s", "suite": "s", "workload": "clip", "pool": "cpu", "device": "cpu", "cell": "c"}
    data = DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))
    trial = Trial(**names, key_parts={}, repeat=1, index=0, axes={}, parameters=parameters, data=data)
    threads = torch.get_num_threads()
    with Recorder(JournalWriter(out / "journal.jsonl", 1)) as recorder:
        TrialSession(trial, Ranks(), recorder, out).run()
    torch.set_num_threads(threads)
    return read_journal(out / "journal.jsonl")


def test_golden_losses_of_stable_adamw_whose_update_is_adamws_until_rms_exceeds_1(drawn: Path, tmp_path: Path) -> None:
    tensors = "vision_model.embeddings.patch_embedding.weight"
    settings = {"learning_rate": 0.01, "beta2": 0.99, "learning_rate_schedule": "constant", "rms_tensors": tensors}
    found: dict[str, list[float]] = {}
    rms: dict[str, list[float]] = {}
    for rule in ("stable_adamw", "adamw"):
        (tmp_path / rule).mkdir()
        steps = learned(drawn, tmp_path / rule, update_rule=rule, **settings).steps
        found[rule] = [step["loss"] for step in steps]
        rms[rule] = [step[f"rms.{tensors}"] for step in steps]
    assert found["stable_adamw"] == pytest.approx(GOLDEN_STABLE, rel=1e-3)
    assert found["adamw"][:2] == pytest.approx(found["stable_adamw"][:2], rel=1e-5), "the first RMS is at most 1 for every tensor"
    assert found["adamw"][3] != pytest.approx(found["stable_adamw"][3], rel=1e-3)
    assert rms["adamw"][0] == pytest.approx(1, abs=1e-3) and rms["adamw"] != rms["stable_adamw"]


def test_a_smoke_trial_of_the_suite_tells_rms_and_spikes(drawn: Path, tmp_path: Path) -> None:
    cells = expand(load_suite("clip_stability", profile="smoke", pools=load_pools()))
    stable = next(cell for cell in cells if cell.axes["update_rule"] == "stable_adamw")
    journal = learned(drawn, tmp_path, **stable.parameters)
    assert len(journal.steps) == 48 and journal.window is not None and journal.window["spikes_after"] == 10
    names = [name for name in journal.steps[-1] if name.startswith("rms.")]
    assert names[0] == "rms.vision_model.embeddings.patch_embedding.weight" and len(names) == 3
    summary = summarise(journal.steps, journal.window, journal.evaluations)
    assert (summary["loss_spikes"], summary["loss_spikes_explained"]) == (0, 0), "too short for any"
    assert summary["eval_loss_after"] < summary["eval_loss_before"]  # type: ignore[operator]


def test_kept_images_are_the_decoded_ones_and_a_random_crop_is_refused(drawn: Path) -> None:
    kept, anew = (workload(drawn, augment=False, keep_decoded=keep) for keep in (True, False))
    batches = [islice(one.batches(), 17) for one in (kept, anew)]  # two epochs of 64 rows, and a batch
    for mine, other in zip(*batches, strict=True):
        assert all(torch.equal(mine[name], other[name]) for name in other)
    with pytest.raises(ValidationError, match="keep_decoded: a random crop needs"):
        clip.Parameters(keep_decoded=True)


def test_the_learning_signal_changes_its_scale_and_not_its_loss(drawn: Path) -> None:
    one = workload(drawn, model="pico", signal_every=1, signal_factor=8.0, steps=3, warmup_steps=1)
    torch.manual_seed(0)
    model = one.model()
    first, second = (one.prepare(batch) for batch in islice(one.batches(), 2))
    second = {**first, "signal": second["signal"]}
    found = []
    for batch in (first, second):
        loss = one.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((loss.item(), model.visual_projection.weight.grad.clone()))
        model.zero_grad()
    assert found[0][0] == found[1][0]
    assert torch.equal(8 * found[0][1], found[1][1])
    with pytest.raises(ValidationError, match="signal_every: 100 times a factor of 10 is beyond 1e12"):
        clip.Parameters(signal_every=1, steps=90, warmup_steps=10)


def test_a_growing_gradient_and_a_window_of_unknown_length_are_refused() -> None:
    for one in ("measure_s", "warmup_s"):
        with pytest.raises(ValidationError, match="signal_every: not with measure_s or warmup_s"):
            clip.Parameters(signal_every=50, **{one: 30})
        assert clip.Parameters(**{one: 30}).signal_every is None
    with pytest.raises(ValidationError, match="signal_factor has no effect without signal_every; leave it at 10, or set signal_every"):
        clip.Parameters(signal_factor=2.0)
