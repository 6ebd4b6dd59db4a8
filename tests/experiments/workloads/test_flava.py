"""FLAVA: the published sizes, its FLOPs, golden losses of the three kinds of batch, its masks and its suite."""

from __future__ import annotations

import itertools
import random
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.pools.pool import load_pools
from experiments.components.data.masking import IGNORED, mask_blocks, mask_tokens
from experiments.components.workload import Context, step_kind
from experiments.datasets import scenes
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.trial import DataSource
from experiments.workloads import flava
from experiments.workloads.flava import model as flava_model
from experiments.workloads.flava.batches import KINDS, kinds
from experiments.workloads.flava.parameters import SIZES
from experiments.workloads.flava.workload import Flava

PUBLISHED = {
    "350m": 357_645_303,
    "900m": 933_785_335,
    "1.8b": 1_786_520_567,
    "2.7b": 2_754_991_223,
    "4.8b": 4_869_660_535,
    "10b": 10_192_950_007,
}
TERAFLOPS = {  # of a training step: a pair, an image, a text of 512 tokens
    "350m": (0.421, 0.195, 0.301),
    "900m": (1.34, 0.548, 1.02),
    "1.8b": (2.71, 1.08, 2.08),
    "2.7b": (4.30, 1.69, 3.30),
    "4.8b": (7.76, 3.01, 5.93),
    "10b": (16.5, 6.07, 12.0),
}
GOLDEN_KINDS = ["pair", "image", "text"]
GOLDEN = [13.78418, 4.18873, 8.36283]
SHORT: dict[str, Any] = {
    "text_length": 16,
    "long_text_length": 24,
    "batch_size": 2,
    "evaluation_batch_size": 4,
    "evaluation_samples": 4,
    "seed": 7,
}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    scenes.build(folder, rows=64, validation_rows=64, seed=0, max_size=128)
    return folder


def workload(folder: Path, notes: list[str] | None = None, **parameters: Any) -> Flava:
    data = DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer"))
    note = notes.append if notes is not None else (lambda text: None)
    return flava.build(Context(flava.Parameters(**SHORT, **parameters), data, "cpu", 0, 1, 2, note))


def parameters_of(settings: Any) -> int:
    from transformers import FlavaForPreTraining

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in FlavaForPreTraining(settings).parameters())


@cache
def count_of(size: str) -> int:
    """Parameters of a size, from models of one and two layers: all layers of a kind have as many."""
    counts = []
    for towers, multimodal in ((1, 1), (2, 1), (1, 2)):
        settings = flava_model.config(size)
        settings.image_config.num_hidden_layers = settings.text_config.num_hidden_layers = towers
        settings.multimodal_config.num_hidden_layers = multimodal
        counts.append(parameters_of(settings))
    one, wider, deeper = counts
    _, _, _, layers, fusion, *_ = SIZES[size]
    return one + (layers - 1) * (wider - one) + (fusion - 1) * (deeper - one)


@pytest.mark.parametrize(("size", "count"), PUBLISHED.items())
def test_parameter_counts_are_the_published_models(size: str, count: int) -> None:
    assert count_of(size) == count


@pytest.mark.parametrize(("size", "tera"), TERAFLOPS.items())
def test_flops_agree_with_what_was_measured(size: str, tera: tuple[float, float, float]) -> None:
    found = flava_model.flops(size, 77, 512)
    assert [found[kind] / 1e12 for kind in ("pair", "image", "text")] == pytest.approx(tera, rel=0.01)


@pytest.mark.parametrize(("size", "tera"), {"350m": 0.122, "10b": 5.48}.items())
def test_checkpointing_adds_what_was_measured(size: str, tera: float) -> None:
    assert flava_model.recomputed_flops(size, 77, 512)["pair"] / 1e12 == pytest.approx(tera, rel=0.01)


def test_flops_of_two_depths_tell_those_of_the_whole_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "deep", (64, 256, 2, 5, 3, 64, 8, 64, 4096))
    whole = flava_model._forward_flops("deep", (5, 3), 16, 24)
    assert {name: sum(parts) for name, parts in flava_model._passes("deep", 16, 24).items()} == whole


def test_parameters_counted_from_few_layers_are_those_of_the_whole_model() -> None:
    assert parameters_of(flava_model.config("350m")) == count_of("350m")


def billions(name: str) -> float:
    return float(name[:-1]) * {"b": 1.0, "m": 1e-3}[name[-1]]


@pytest.mark.parametrize("size", [size for size in SIZES if size not in PUBLISHED and size not in ("mini", "tiny")])
def test_sizes_of_ours_have_as_many_parameters_as_their_names_say(size: str) -> None:
    assert count_of(size) / 1e9 == pytest.approx(billions(size), rel=0.0203)


def test_sizes_that_bracket_a_limit_on_two_gpus_lie_within_a_tenth() -> None:
    tried: dict[str, list[int]] = {}
    for cell in expand(load_suite("flava", profile="x2_fit", pools=load_pools())):
        tried.setdefault(cell.axes["strategy"], []).append(count_of(cell.axes["model"]))
    assert {name: len(counts) for name, counts in tried.items()} == {"ddp": 2, "fsdp2": 2, "fsdp2+ac": 3, "fsdp2+ac+together": 2}
    assert all(larger < 1.1 * smaller for counts in tried.values() for smaller, larger in itertools.pairwise(sorted(counts)))


@pytest.mark.parametrize(
    ("profile", "counts"),
    [
        ("x4_fit", {"ddp": 2, "fsdp2": 4, "fsdp2+ac": 3, "fsdp1": 3, "fsdp1+ac": 3}),
        ("x8_fit", {"ddp": 2, "fsdp2": 4, "fsdp2+ac": 4, "fsdp1": 3, "fsdp1+ac": 3, "fsdp2+ac+together": 1}),
    ],
)
def test_the_limit_of_every_strategy_is_looked_for_in_steps_of_less_than_a_tenth(profile: str, counts: dict[str, int]) -> None:
    """Within the first six cells, which one run has time for, of DDP, FSDP2 and FSDP2 with checkpointing."""
    cells = expand(load_suite("flava", profile=profile, pools=load_pools()))
    first: dict[str, list[int]] = {}
    tried: dict[str, list[int]] = {}
    for place, cell in enumerate(cells):
        for found in (tried, first)[: 2 if place < 6 else 1]:
            found.setdefault(cell.axes["strategy"], []).append(count_of(cell.axes["model"]))
    assert {name: len(sizes) for name, sizes in tried.items()} == counts
    assert {name: len(sizes) for name, sizes in first.items()} == {"ddp": 2, "fsdp2": 2, "fsdp2+ac": 2}
    for sizes in (*tried.values(), *first.values()):
        assert all(larger < 1.1 * smaller for smaller, larger in itertools.pairwise(sorted(sizes)))
    assert {cell.parameters["parallel"] for cell in cells} == {"ddp", "fsdp1", "fsdp2"}
    for cell in cells:
        assert cell.parameters["activation_checkpointing"] is ("+ac" in cell.axes["strategy"])
        assert 4 * count_of(cell.axes["model"]) < 150_109_880_320, "one H200 draws all weights before they are sharded"


def test_sizes_of_ours_are_what_their_comment_says() -> None:
    counts = {size: count_of(size) for size in ("16b", "28b")}
    assert counts["16b"] > 3 * PUBLISHED["4.8b"]
    assert counts["28b"] > 3 * 150_109_880_320 / 16, "3 x any model whose weights, gradients and AdamW states fit one H200"


def test_the_first_losses_are_the_golden_ones_and_the_codebook_is_random(drawn: Path) -> None:
    """A refactor changes nothing: model, initial weights, kinds, masks and data order all stand behind these."""
    notes: list[str] = []
    one = workload(drawn, notes)
    torch.manual_seed(0)
    model = one.model()
    losses, seen = [], []
    batches = one.batches()
    for _ in range(3):
        batch = one.prepare(next(batches))
        seen.append(step_kind(one, batch))
        losses.append(one.loss(model, batch).item())
    assert seen == GOLDEN_KINDS
    assert losses == pytest.approx(GOLDEN, rel=1e-4)
    found = one.evaluate(model, one.prepare)
    assert found["loss"] == pytest.approx(found["chance_loss"], rel=0.1)
    assert 1 <= found["image_codes"] < 64
    assert any("random weights" in note for note in notes)


def test_a_window_grows_by_rounds_of_kinds_where_they_are_balanced(drawn: Path) -> None:
    assert [workload(drawn, kinds=kinds).steps_per_round for kinds in ("drawn", "balanced")] == [1, 3]


def test_masks_hide_as_much_as_they_should() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(10, 100, (8, 40), generator=draw)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[:, 20:] = False
    masked, labels = mask_tokens(tokens, real, mask=3, vocabulary=100, draw=draw)
    told = labels != IGNORED
    assert told.sum(dim=1).tolist() == [3] * 8 and not told[:, 20:].any()
    assert (labels[told] == tokens[told]).all() and (masked[~told] == tokens[~told]).all()
    assert 0.5 < (masked[told] == 3).float().mean() < 1
    for seed in range(20):
        grid = mask_blocks(14, 75, random.Random(seed))
        assert sum(map(sum, grid)) == 75
        alike = sum(row[x] == row[x + 1] for row in grid for x in range(13)) / (14 * 13)
        assert alike > 0.6, "blocks, not scattered patches"


def test_flava_is_the_documents_experiment() -> None:
    cells = expand(load_suite("flava", pools=load_pools()))
    assert {cell.axes["model"] for cell in cells} == set(PUBLISHED) and {cell.axes["batch_size"] for cell in cells} == {8, "max"}
    names = ("strategy", "parallel", "activation_checkpointing", "limit_all_gathers")
    assert {tuple(cell.parameters[name] for name in names) for cell in cells} == {
        ("ddp", "ddp", False, True),
        ("fsdp2", "fsdp2", False, True),
        ("fsdp2+ac", "fsdp2", True, True),
        ("fsdp1", "fsdp1", False, True),
        ("fsdp1+ac", "fsdp1", True, True),
        ("fsdp1 unlimited", "fsdp1", False, False),
        ("fsdp1+ac unlimited", "fsdp1", True, False),
    }
    assert len(cells) == 6 * 2 * 7
    for cell in cells:
        values = cell.parameters
        assert (values["devices"], values["precision"], values["allow_tf32"]) == (8, "bf16", True)
        assert (values["steps"] + values["warmup_steps"], values["warmup_steps"]) == (1000, 100)
        assert values["fsdp_reduce"] == ("fp32" if values["parallel"] == "ddp" else "bf16")
        optimiser = [values[name] for name in ("learning_rate", "weight_decay", "beta2", "learning_rate_warmup")]
        assert optimiser == [1e-3, 0.1, 0.999, 2000]


@pytest.mark.parametrize("profile", ["gpus", "launches", "fit", "max_batch"])
def test_short_windows_hold_each_kind_as_often(profile: str) -> None:
    for cell in expand(load_suite("flava", profile=profile, pools=load_pools())):
        values = cell.parameters
        assert values["measure_s"] == 30, "which adds rounds of three"
        assert values["kinds"] == "balanced" and values["steps"] % 3 == 0 and values["warmup_steps"] % 3 == 0
        assert (values["parallel"] == "fsdp2") == (values["fsdp_reduce"] == "bf16") == values["strategy"].startswith("fsdp2")
        assert values["activation_checkpointing"] == {"fsdp2+ac": True, "fsdp2+selective": "selective"}.get(values["strategy"], False)


def test_kinds_are_those_of_the_seed_and_all_are_seen_before_anything_is_measured() -> None:
    for balanced in (False, True):
        drawn = list(islice(kinds(3, balanced=balanced), 3000))
        assert drawn == list(islice(kinds(3, balanced=balanced), 3000)) != list(islice(kinds(4, balanced=balanced), 3000))
        assert set(drawn[:3]) == set(KINDS)
        shares = [drawn.count(kind) / len(drawn) for kind in KINDS]
        assert shares == pytest.approx([1 / 3] * 3, abs=0 if balanced else 0.03)
        blocks = [set(drawn[at : at + 3]) == set(KINDS) for at in range(0, 3000, 3)]
        assert all(blocks) == balanced
