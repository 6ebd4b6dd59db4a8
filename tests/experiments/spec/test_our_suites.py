"""The suites of this repository: all are valid, and BridgeTower's are its document's experiment."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from cluster.pools.pool import load_pools
from experiments.parameters import REFERENCE_SEEDS, as_reference
from experiments.spec.load import list_suites, load_suite
from experiments.spec.matrix import expand
from experiments.spec.schema import Suite
from experiments.stats.loss_parity import MINIMUM_STEPS
from tests.experiments.spec.suite_helpers import every_profile, workshop

__all__ = ["workshop"]


def test_every_suite_here_is_valid_and_read_without_torch() -> None:
    code = """
import sys
from cluster.pools.pool import load_pools
from experiments.spec.matrix import expand, trial_count
from experiments.spec.load import list_suites, load_suite
for info in list_suites():
    for profile in info.profiles:
        suite = load_suite(info.name, profile=profile, pools=load_pools())
        print(info.name, profile, trial_count(expand(suite), suite.repeats))
heavy = {"torch", "transformers", "ray", "prefect", "mlflow"} & set(sys.modules)
assert not heavy, heavy
"""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    sizes = {tuple(line.split()[:2]): int(line.split()[2]) for line in done.stdout.splitlines()}
    assert sizes["bridgetower", "full"] == 144
    assert sizes["bridgetower", "smoke"] <= 27  # two minutes on two cores


def test_bridgetower_is_the_documents_experiment() -> None:
    cells = expand(load_suite("bridgetower", pools=load_pools()))
    settings = {(cell.pool, cell.parameters["batch_size"], cell.parameters["devices"]) for cell in cells}
    assert settings == {("gaudi2", 48, 8), ("a100", 32, 8)}
    axes = [(cell.axes["model"], cell.axes["precision"], cell.axes["dataloader_workers"], cell.pool) for cell in cells]
    assert sorted(axes) == sorted(product(("base", "large"), ("fp32", "bf16", "fp8"), (0, 1, 2, 4), ("gaudi2", "a100")))
    assert {(cell.parameters["text_length"], cell.parameters["learning_rate"]) for cell in cells} == {(128, 1e-5)}
    (one,) = {(cell.parameters["devices"], cell.parameters["batch_size"]) for cell in expand(_on_cuda())}
    assert one == (1, 32)


@pytest.mark.parametrize("profile", ["smoke", "axes"])
def test_bridgetower_spans_model_precision_and_loading_in_minutes_too(profile: str) -> None:
    """At each size and precision a cell is there to compare the others of its size with."""
    suite = load_suite("bridgetower", profile=profile, pools=load_pools())
    cells = expand(suite)
    models, precisions, counts = ({cell.axes[name] for cell in cells} for name in ("model", "precision", "dataloader_workers"))
    assert (len(models), len(precisions), len(counts)) == {"smoke": (2, 2, 3), "axes": (2, 3, 4)}[profile]
    by_model = {model: {cell.axes["precision"] for cell in cells if cell.axes["model"] == model} for model in models}
    alone = {"mini": {"fp32"}} if profile == "smoke" else {}  # a CPU without units for bf16 takes a minute for a round of it
    assert by_model == {model: alone.get(str(model), precisions) for model in models}
    assert suite.rounds is not None and suite.rounds.budget == {"smoke": "2m", "axes": "10m"}[profile]


def _on_cuda() -> Suite:
    return load_suite("bridgetower", pools=load_pools(), pool_names=["cuda"])


COMPILED_FIRST = {("clip_precision", "fast"), ("llm", "fast"), ("llm", "x2_fast")}


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("flava", "settings"),
        ("flava", "large_batch"),
        ("flava", "launches"),
        ("clip_precision", "fast"),
        ("llm", "fast"),
        ("llm", "qwen"),
        ("llm", "lora"),
        ("llm", "x2_fast"),
        ("t5", "fast"),
    ],
)
def test_the_first_cell_is_what_the_loss_of_the_others_is_compared_with(name: str, profile: str) -> None:
    """So loss parity costs no trials of its own."""
    suite = load_suite(name, profile=profile, pools=load_pools())
    cells = list(expand(suite))
    assert not any(cell.reference for cell in cells)
    assert as_reference(cells[0].parameters, suite.parity_precision) == cells[0].parameters
    assert cells[0].parameters["compile"] == ("layer" if (name, profile) in COMPILED_FIRST else "none")
    assert suite.rounds is not None or suite.repeats == suite.parity_reference
    assert suite.parity_reference >= REFERENCE_SEEDS
    assert all(cell.parameters["steps"] + cell.parameters["warmup_steps"] >= MINIMUM_STEPS for cell in cells)


NUMBERS = {"two": 2, "four": 4, "eight": 8}


@pytest.mark.parametrize("name", [info.name for info in list_suites()])
def test_a_caption_states_no_machine_and_no_number_of_devices_that_a_sweep_of_the_profile_may_not_have(name: str) -> None:
    """It stands on pages of sweeps on other machines, and of parts of a profile (`--only devices=...`). The page names the devices."""
    for profile, suite in every_profile(name).items():
        for caption in (suite.description, suite.report.title or ""):
            told = f"{name}, {profile}: {caption}"
            assert "this machine" not in caption, told
            assert not re.search(r"\d GB\b", caption) or "meant for" in caption or "chosen for" in caption, told
            numbers = {NUMBERS[word.lower()] for word in re.findall(rf"\b({'|'.join(NUMBERS)}) GPUs", caption, re.IGNORECASE)}
            assert numbers <= {suite.fixed.get("devices")} and not (numbers and "devices" in suite.axes), told
