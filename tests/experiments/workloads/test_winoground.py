"""Winoground: scores by hand, the data set's own layout, and tiny models whose scores must be what their own forward pass says."""

from __future__ import annotations

import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from cluster.journal.journal import JournalWriter, read_journal
from cluster.pools.pool import load_pools
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.trial_session import TrialSession
from experiments.components.workload import Context, DataError
from experiments.datasets import scenes, winoground
from experiments.spec.load import load_suite
from experiments.spec.matrix import expand
from experiments.summary import summarise
from experiments.trial import DataSource
from experiments.workloads import bridgetower
from experiments.workloads import winoground as workload
from experiments.workloads.bridgetower.model import config, inputs
from tests.trial_support import cpu_trial

EXAMPLES = 5


@pytest.mark.parametrize(
    ("scores", "text", "image"),
    [
        ([[0.9, 0.1], [0.2, 0.8]], True, True),
        ([[0.9, 0.8], [0.1, 0.85]], True, True),  # s01 < s11
        ([[0.5, 0.6], [0.4, 0.7]], True, False),  # each image its caption, but c0 prefers i1
        ([[0.5, 0.4], [0.6, 0.7]], False, True),  # each caption its image, but i0 prefers c1
        ([[0.1, 0.9], [0.8, 0.2]], False, False),
        ([[0.5, 0.5], [0.5, 0.5]], False, False),  # a tie is wrong
        ([[math.nan] * 2] * 2, False, False),
    ],
)
def test_scores_by_hand(scores: list[list[float]], text: bool, image: bool) -> None:
    assert winoground.judge(scores) == {"text": text, "image": image, "group": text and image}


def test_chance_is_what_all_orders_of_four_scores_give() -> None:
    orders = [[[a, b], [c, d]] for a, b, c, d in itertools.permutations([1.0, 2.0, 3.0, 4.0])]
    assert winoground.summary(orders) == pytest.approx({f"winoground_{name}": chance for name, chance in winoground.CHANCE.items()})
    with pytest.raises(ValueError, match="no examples"):
        winoground.summary([])
    with pytest.raises(ValueError, match="two captions by two images"):
        winoground.judge([[1.0, 2.0]])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """data/ with a tiny set in Winoground's columns, and clip/ and bridgetower/, tiny random models as save_pretrained leaves them."""
    from transformers import BridgeTowerForImageAndTextRetrieval, CLIPConfig, CLIPModel

    home = tmp_path_factory.mktemp("winoground")
    scenes.build(home / "scenes", rows=32, validation_rows=16, seed=0, max_size=120)
    rows = pq.read_table(home / "scenes" / "train.parquet").to_pylist()
    (home / "data" / "data").mkdir(parents=True)
    (home / "data" / "apart.jpg").write_bytes(rows[0]["image"]["bytes"])
    table = {
        "id": list(range(EXAMPLES)),
        "image_0": [{"bytes": rows[2 * n]["image"]["bytes"], "path": f"ex_{n}_img_0"} for n in range(EXAMPLES)],
        "image_1": [{"bytes": rows[2 * n + 1]["image"]["bytes"], "path": f"ex_{n}_img_1"} for n in range(EXAMPLES)],
        "caption_0": [rows[2 * n]["image_description"] for n in range(EXAMPLES)],
        "caption_1": [rows[2 * n + 1]["image_description"] for n in range(EXAMPLES)],
        "tag": ["Noun"] * EXAMPLES,
        "collapsed_tag": ["Object"] * EXAMPLES,
    }
    table["image_0"][0] = {"bytes": None, "path": "apart.jpg"}
    pq.write_table(pa.table(table), home / "data" / "data" / "test-00000-of-00001.parquet")
    torch.manual_seed(0)
    tower = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    text = {**tower, "vocab_size": 512, "eos_token_id": 2, "max_position_embeddings": 77}
    CLIPModel(CLIPConfig(text_config=text, vision_config={**tower, "image_size": 32, "patch_size": 16}, projection_dim=16)).save_pretrained(
        home / "clip"
    )
    BridgeTowerForImageAndTextRetrieval(config(bridgetower.Parameters(model="tiny"))).save_pretrained(home / "bridgetower")
    for family in ("clip", "bridgetower"):
        shutil.copy(home / "scenes" / "tokenizer" / "tokenizer.json", home / family)
    return home


def parameters(home: Path, family: str, **changes: Any) -> workload.Parameters:
    weights = {f"{name}_weights": str(home / name) for name in ("clip", "bridgetower")}
    return workload.Parameters(**{"family": family, "batch_size": 2, "steps": 3, "warmup_steps": 1, "threads": 1, **weights, **changes})


def test_what_trains_is_refused() -> None:
    """Micro-batches too: a forward pass takes one batch."""
    for name, value in (
        ("accumulation_steps", 2),
        ("optimizer", "fused"),
        ("activation_checkpointing", "selective"),
        ("parallel", "fsdp2"),
    ):
        with pytest.raises(ValidationError, match=f"{name} has no effect: nothing is trained here"):
            workload.Parameters.model_validate({name: value})


def source(home: Path) -> DataSource:
    return DataSource(uri=str(home / "data"), fingerprint="f")


def drawn_source(home: Path) -> DataSource:
    return DataSource(uri=str(home / "scenes"), fingerprint="f", tokenizer=str(home / "scenes" / "tokenizer"))


def test_the_local_copy_is_read_in_its_own_layout(home: Path, tmp_path: Path) -> None:
    found = list(winoground.read(home / "data"))
    assert len(found) == EXAMPLES and all(example.tag == "Noun" for example in found)
    assert found[0].images[0] == (home / "data" / "apart.jpg").read_bytes()
    assert found[3].name == "test-00000-of-00001.parquet row 3 (id 3)"
    table = pq.read_table(home / "data" / "data" / "test-00000-of-00001.parquet")
    with pytest.raises(winoground.WinogroundError, match=r"no \*\.parquet"):
        list(winoground.read(tmp_path))
    path = tmp_path / "w.parquet"
    pq.write_table(table.drop(["image_1"]), path)
    with pytest.raises(winoground.WinogroundError, match="no column image_1; it has id"):
        list(winoground.read(tmp_path))
    for bad, message in [("../secret", "is outside of"), ("gone.jpg", "there is no image"), (None, "row 0 .id 0.: no image")]:
        images = [{"bytes": None, "path": bad}, *table["image_0"].to_pylist()[1:]]
        pq.write_table(table.set_column(1, "image_0", pa.array(images, table["image_0"].type)), path)
        with pytest.raises(winoground.WinogroundError, match=message):
            list(winoground.read(tmp_path))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(winoground.WinogroundError, match="not a whole Parquet file"):
        list(winoground.read(tmp_path))


@pytest.mark.parametrize("family", ["clip", "bridgetower"])
def test_scores_are_those_of_the_model_pair_by_pair(home: Path, family: str) -> None:
    """The batch of examples against one forward pass for each caption with each image, with two-dimensional masks."""
    one = workload.build(Context(parameters(home, family), source(home), "cpu", 0, 1, 2))
    model: Any = one.model()
    batch = next(one.batches())
    assert batch["pixels"].shape == (4, one.image_size, one.image_size, 3)
    with torch.inference_mode():
        found = one.scores(model, batch)
        assert found.shape == (2, 2, 2)
        images = inputs(batch, "eager")["pixel_values"]
        for example, caption, image in itertools.product(range(2), range(2), range(2)):
            c, i = 2 * example + caption, 2 * example + image
            output = model(
                input_ids=batch["input_ids"][c : c + 1],
                attention_mask=batch["attention_mask"][c : c + 1],
                pixel_values=images[i : i + 1],
            )
            alone = output.logits_per_image[0, 0] if family == "clip" else output.logits[0, 1]
            assert float(found[example, caption, image]) == pytest.approx(float(alone), abs=1e-4)
    assert len({round(value, 6) for value in found.flatten().tolist()}) == 8, "the pairs can be told apart"
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        low = one.scores(model, batch)
    assert low.dtype == torch.float32 and not torch.equal(low, found)
    assert torch.allclose(low, found, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("family", ["clip", "bridgetower"])
def test_a_trial_reports_the_three_scores_beside_chance(home: Path, tmp_path: Path, family: str) -> None:
    trial = cpu_trial("winoground", parameters(home, family).model_dump(mode="json"), source(home))
    before = torch.get_num_threads()
    try:
        with Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
            context = TrialSession(trial, Ranks(), recorder, tmp_path).run()
    finally:
        torch.set_num_threads(before)
    journal = read_journal(tmp_path / "journal.jsonl")
    found = summarise(journal.steps, journal.window, journal.evaluations)
    one: Any = context.workload
    with torch.inference_mode():
        scores = one.scores(context.train_step.plain, one._pairs()[list(range(EXAMPLES))])
    for name, value in winoground.summary(scores.tolist()).items():
        assert found[f"eval_{name}_before"] == value
    assert found["eval_chance_winoground_group_before"] == pytest.approx(1 / 6)
    assert found["eval_winoground_examples_before"] == EXAMPLES and "eval_winoground_text_after" not in found
    assert found["service_time_p50_s"] is not None and found["samples"] == 3 * 2


RANDOM: dict[str, Any] = {"weights": "random", "size": "tiny", "dataset": "drawn"}


@pytest.mark.parametrize("family", ["clip", "bridgetower"])
def test_random_weights_give_the_speed_and_no_scores(home: Path, tmp_path: Path, family: str) -> None:
    values = {"family": family, "batch_size": 2, "steps": 3, "warmup_steps": 1, "threads": 1, **RANDOM}
    trial = cpu_trial("winoground", workload.Parameters.model_validate(values).model_dump(mode="json"), drawn_source(home))
    with torch.random.fork_rng(devices=[]), Recorder(JournalWriter(tmp_path / "journal.jsonl", 1)) as recorder:
        context = TrialSession(trial, Ranks(), recorder, tmp_path).run()
    journal = read_journal(tmp_path / "journal.jsonl")
    found = summarise(journal.steps, journal.window, journal.evaluations)
    assert found["samples"] == 3 * 2 and (found["throughput"] or 0) > 0
    assert [name for name, value in found.items() if "winoground" in name and value is not None] == []
    assert "the weights are random: what is measured is the speed, and there are no scores" in [note["text"] for note in journal.notes]
    assert context.workload.image_size == 64  # type: ignore[attr-defined]


def test_large_models_are_the_published_ones() -> None:
    """ViT-L/14 of CLIP has 427.6 million parameters (openai/clip-vit-large-patch14), BridgeTower Large has 294-pixel images."""
    from transformers import CLIPModel

    with torch.device("meta"):
        model = CLIPModel(workload._config(workload.Parameters(family="clip", weights="random", dataset="drawn")))
    assert sum(each.numel() for each in model.parameters()) == 427_616_513
    tower = workload._config(workload.Parameters(family="bridgetower", weights="random", dataset="drawn"))
    assert (tower.vision_config.image_size, tower.hidden_size, tower.num_hidden_layers) == (294, 1024, 6)


def test_drawn_examples_are_two_rows_each(home: Path) -> None:
    rows = pq.read_table(home / "scenes" / "train.parquet").to_pylist()
    examples = list(winoground.drawn(home / "scenes"))
    assert len(examples) == 16 and examples[15].name == "drawn example 15"
    assert examples[9].captions == (rows[18]["image_description"], rows[19]["image_description"])
    assert examples[9].images == (rows[18]["image"]["bytes"], rows[19]["image"]["bytes"])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"dataset": "drawn"}, "dataset drawn: its scores mean nothing; set weights to random, or give a copy of Winoground"),
        ({"weights": "random", "dataset": "/some/folder"}, "weights random go with dataset drawn"),
        ({"weights": "random", "clip_weights": "/some/folder"}, "clip_weights has no effect with weights random"),
        ({"size": "tiny"}, "size has no effect with weights given"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        workload.Parameters.model_validate(values)


def test_random_weights_lack_the_drawn_scenes_alone() -> None:
    assert workload.Parameters(weights="random").lacking() == {"dataset": "drawn"}
    assert workload.Parameters.model_validate(RANDOM).lacking() == {}


def test_what_is_missing_is_named(home: Path) -> None:
    with pytest.raises(DataError, match="clip_weights is not set"):
        workload.build(Context(workload.Parameters(family="clip"), source(home), "cpu", 0, 1, 2))
    with pytest.raises(DataError, match="dataset is not set"):
        workload.build(Context(parameters(home, "clip"), None, "cpu", 0, 1, 2))
    with pytest.raises(ValidationError, match="clip_revision must be its commit"):
        workload.Parameters(clip_weights="openai/clip-vit-base-patch32")
    with pytest.raises(DataError, match=r"row 7: not an image"):
        workload.pixels(b"no image", 32, "row 7")


@pytest.mark.parametrize(("profile", "pool"), [("full", None), ("smoke", None), ("cpu", None), ("gpu", "cuda"), ("gpu_random", "cuda")])
def test_the_suite_is_valid_in_every_profile(profile: str, pool: str | None) -> None:
    suite = load_suite("winoground", profile=profile, pools=load_pools(), pool_names=[pool] if pool else None)
    assert [cell.axes["family"] for cell in expand(suite)] == ["clip", "bridgetower"]
