"""Traps of the real optimum-habana 1.21.2 and of the bridge: each test shows the trap itself, and that our side of it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tests.gaudi_support import LAZY, ROOT, SMALL, losses, mode, run_here
from tests.ports_support import free_port


@pytest.fixture(autouse=True)
def _adapted() -> None:
    """As the engine adapts it, in this process."""
    from cluster.worker.train.engine_habana import adapt

    adapt()


def test_adapting_transformers_breaks_clip_and_ours_does_not() -> None:
    from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi
    from transformers.models.clip import modeling_clip

    from cluster.worker.train.engine_habana import CLIP_CLASSES, preserve_clip_classes
    from experiments import workloads

    clip_pairs = workloads.load("clip_pairs")
    batch = clip_pairs.pairs(4, 0)

    def embeddings(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            image = model.get_image_features(batch["pixel_values"])
            return image, model.get_text_features(batch["input_ids"])

    assert {getattr(modeling_clip, name).__module__ for name in CLIP_CLASSES} == {"transformers.models.clip.modeling_clip"}, "put back"
    torch.manual_seed(0)
    stock = modeling_clip.CLIPModel(clip_pairs.config()).eval()
    image, text = embeddings(stock)
    with preserve_clip_classes():
        adapt_transformers_to_gaudi()
        broken = modeling_clip.CLIPModel(clip_pairs.config()).eval()
        broken.load_state_dict(stock.state_dict())
        with torch.no_grad():
            seen = broken.get_image_features(batch["pixel_values"])
            with pytest.raises((TypeError, ValueError, AttributeError, RuntimeError)):  # the text model raises
                broken.get_text_features(batch["input_ids"])
        assert torch.nn.functional.cosine_similarity(seen, image).min() < 0.999, "the vision model silently computes something else"
    after = modeling_clip.CLIPModel(clip_pairs.config()).eval()
    after.load_state_dict(stock.state_dict())
    assert all(torch.equal(one, other) for one, other in zip(embeddings(after), (image, text), strict=True))


def test_optimum_habana_needs_this_pythons_pip_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    from optimum.habana.utils.misc import get_habana_frameworks_version

    from cluster.worker.train.engine_habana import _own_programs

    mine = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != mine))
    with pytest.raises(IndexError):  # another Python's pip does not know the bridge; importing optimum-habana asks it
        get_habana_frameworks_version()
    with _own_programs():
        assert str(get_habana_frameworks_version()).startswith("1.24")


_RANKS = """
    import hashlib, json, os, sys, torch
    os.environ["PT_HPU_LAZY_MODE"] = "1"
    from cluster.devices.hpu import init_process_group, open_device
    device = open_device(int(os.environ["LOCAL_RANK"]))
    init_process_group()
    from cluster.worker.train.engine_habana import OptimumHabana
    from cluster.worker.train.train_step import TrainStep
    from experiments.workloads import synthetic
    from experiments.components.workload import Context
    rank = int(os.environ["RANK"])
    parameters = synthetic.Parameters(engine="optimum_habana", ddp="fast", optimizer="fused", steps=4, warmup_steps=2)
    found = []
    for guarded in (False, True):
        engine = OptimumHabana(parameters, device, 2)
        engine.adapt()
        workload = synthetic.build(Context(parameters, None, "hpu", rank, 2, 8))
        train_step = TrainStep(workload, workload.model(), parameters, device, engine)
        if not guarded:
            engine.after_update = lambda optimizer: optimizer.zero_grad(set_to_none=True)
        for step, batch in zip(range(1, 5), workload.batches()):
            train_step.forward_backward(train_step.place(batch))
            train_step.update(step)
        weights = torch.cat([one.detach().cpu().flatten() for one in train_step.plain.parameters()])
        found.append(hashlib.sha256(weights.numpy().tobytes()).hexdigest())
    print(json.dumps(found))
"""


def test_gradients_made_anew_are_not_in_fast_ddps_graphs_and_the_ranks_drift_apart() -> None:
    port = str(free_port())
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_RANKS)],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    one, other = (json.loads(rank.communicate(timeout=240)[0].splitlines()[-1]) for rank in ranks)
    assert one[0] != other[0], "the trap: the ranks' weights differ, and nothing says so"
    assert one[1] == other[1], "ours: equal weights"


def test_the_mode_must_be_chosen_since_unset_means_two_things(monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.devices.hpu import open_device

    monkeypatch.delenv(LAZY, raising=False)
    with pytest.raises(RuntimeError, match="must be 0 or 1"):
        open_device(0)


def test_marks_hand_over_what_lazy_mode_gathered_and_eager_mode_has_nothing_to_hand_over() -> None:
    """Without it an event would be recorded before the work that it ends."""
    from habana_frameworks.torch import core

    from cluster.devices import load

    for lazy in (True, False):
        with mode(lazy):
            clock = load("hpu").clock()
        before = core.STEPS
        clock.begin()
        for boundary in range(4):
            clock.mark(boundary)
        clock.finish(1, 8, torch.zeros((), device="hpu"))
        clock.drain()
        assert (core.STEPS - before > 3) == lazy


def test_the_fused_optimisers_own_defaults_are_other_training() -> None:
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    from cluster.devices import load
    from cluster.worker.train.engine_habana import OptimumHabana
    from experiments.workloads import synthetic

    weight = torch.nn.Parameter(torch.zeros(2, device="hpu"))
    own = FusedAdamW([weight]).defaults
    with mode(lazy=True):
        device = load("hpu")
    parameters = synthetic.Parameters(engine="optimum_habana", optimizer="fused")
    ours = OptimumHabana(parameters, device, 1).optimizer([weight]).defaults
    torchs = torch.optim.AdamW([weight]).defaults
    assert own["eps"] != torchs["eps"]
    assert (ours["eps"], ours["weight_decay"]) == (torchs["eps"], parameters.weight_decay)


def test_the_trainer_forgets_bf16_and_ours_is_not_it(tmp_path: Path) -> None:
    from optimum.habana import GaudiConfig, GaudiTrainer, GaudiTrainingArguments
    from transformers.models.clip import modeling_clip

    from cluster.worker.train.engine_habana import preserve_clip_classes
    from experiments import workloads

    before = dict(os.environ)
    try:  # its state is in variables, too
        options = {"use_habana": True, "use_lazy_mode": True, "bf16": True, "report_to": "none"}
        with preserve_clip_classes():  # its arguments adapt transformers once more
            arguments = GaudiTrainingArguments(output_dir=str(tmp_path), **options)
            assert arguments.bf16
            model = modeling_clip.CLIPModel(workloads.load("clip_pairs").config())
            GaudiTrainer(model=model, gaudi_config=GaudiConfig(), args=arguments)
        assert not arguments.bf16, "the trap: whoever reads it afterwards takes the run for fp32"
    finally:
        os.environ.clear()
        os.environ.update(before)
    found = {}
    for precision in ("fp32", "bf16"):
        settings = {**SMALL, "engine": "optimum_habana", "precision": precision}
        found[precision] = losses(run_here(tmp_path / precision, "clip_pairs", **settings))
    assert found["fp32"] != found["bf16"] and found["bf16"] == pytest.approx(found["fp32"], rel=2e-2)
