"""Both engines, lazy and eager, with and without graphs: other ways to compute the same steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.components.workload import Unsupported
from tests.gaudi_support import HABANA, PAIRS, SMALL, losses, run_here

# Fused or not, lazy or eager, a step sums in another order: fp32 rounding, magnified over six steps
FP32 = 1e-4
BF16 = 2e-2


@pytest.fixture(scope="module")
def native(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """BridgeTower's losses in fp32 with engine native."""
    return losses(run_here(tmp_path_factory.mktemp("native"), "bridgetower", drawn, **PAIRS))


def test_both_engines_learn_the_same(drawn: Path, native: list[float], tmp_path: Path) -> None:
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    before = FusedAdamW.steps
    other = losses(run_here(tmp_path, "bridgetower", drawn, **PAIRS, **HABANA))
    assert FusedAdamW.steps == before + 6, "the fused optimiser did it"
    assert other == pytest.approx(native, rel=FP32)
    assert native[-1] != pytest.approx(native[0], rel=1e-3), "it learned something"


def test_the_engines_agree_in_bf16_and_bf16_is_not_fp32(drawn: Path, native: list[float], tmp_path: Path) -> None:
    plain = losses(run_here(tmp_path / "n", "bridgetower", drawn, **{**PAIRS, "precision": "bf16"}))
    habana = losses(run_here(tmp_path / "h", "bridgetower", drawn, **{**PAIRS, **HABANA, "precision": "bf16"}))
    assert habana == pytest.approx(plain, rel=BF16)
    assert plain != pytest.approx(native, rel=1e-6), "autocast was on"
    assert plain == pytest.approx(native, rel=BF16)


def test_fp8_is_the_transformer_engines_under_either_engine(drawn: Path, tmp_path: Path) -> None:
    """Emulated: rounded to what 8 bits hold."""
    from habana_frameworks.torch.hpex.experimental.transformer_engine import Linear

    plain = losses(run_here(tmp_path / "bf16", "bridgetower", drawn, **{**PAIRS, "precision": "bf16"}))
    for name, changes in (("n", {}), ("h", HABANA)):
        before = Linear.passes
        journal = run_here(tmp_path / name, "bridgetower", drawn, **{**PAIRS, **changes, "precision": "fp8"})
        assert Linear.passes > before, "its layers computed in 8 bits"
        assert losses(journal) == pytest.approx(plain, rel=5 * BF16) and losses(journal) != pytest.approx(plain, rel=1e-6)
        assert any(str(note["text"]).startswith("precision fp8, kernels stock: ") for note in journal.notes)
    trained, before = Linear.passes - before, Linear.passes
    run_here(tmp_path / "evaluated", "bridgetower", drawn, **{**PAIRS, **HABANA, "precision": "fp8", "evaluate": True})
    assert Linear.passes - before == trained, "held-out pairs are read in bf16: the engine finds its scales in training"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_replayed_graphs_give_exactly_what_no_graphs_give(drawn: Path, tmp_path: Path, precision: str) -> None:
    from habana_frameworks.torch import hpu

    settings = {**PAIRS, **HABANA, "precision": precision, "clip_grad_norm": 1.0}
    without = losses(run_here(tmp_path / "without", "bridgetower", drawn, **settings))
    captures, replays = hpu.HPUGraph.captures, hpu.HPUGraph.replays
    journal = run_here(tmp_path / "with", "bridgetower", drawn, **{**settings, "hpu_graphs": True, "evaluate": True})
    assert hpu.HPUGraph.captures == captures + 2, "one forward, one backward, for one shape; evaluation makes none"
    assert hpu.HPUGraph.replays == replays + 2 * 6
    assert losses(journal) == without
    assert [evaluation["when"] for evaluation in journal.evaluations] == ["before", "after"]


def test_clip_trains_under_both_engines_and_graphs(tmp_path: Path) -> None:
    found = [
        losses(run_here(tmp_path / str(number), "clip_pairs", **{**SMALL, **changes}))
        for number, changes in enumerate([{}, HABANA, {**HABANA, "hpu_graphs": True}, {"compile": "layer"}])
    ]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=FP32)


def test_inference_graphs_give_what_no_graphs_give(drawn: Path, tmp_path: Path) -> None:
    from habana_frameworks.torch import hpu

    settings = {**PAIRS, "engine": "optimum_habana", "precision": "bf16"}
    settings.pop("learning_rate")
    without = losses(run_here(tmp_path / "without", "bridgetower_inference", drawn, **settings))
    captures = hpu.HPUGraph.captures
    assert losses(run_here(tmp_path / "with", "bridgetower_inference", drawn, **{**settings, "hpu_graphs": True})) == without
    assert hpu.HPUGraph.captures == captures + 1


def test_compiled_layers_run_on_the_habana_back_end_in_eager_mode(drawn: Path, native: list[float], tmp_path: Path) -> None:
    from habana_frameworks.torch.dynamo import compile_backend

    before = compile_backend.GRAPHS
    journal = run_here(tmp_path, "bridgetower", drawn, **{**PAIRS, "compile": "layer"})
    assert before < compile_backend.GRAPHS
    assert journal.environment["lazy_mode"] is False
    assert losses(journal) == pytest.approx(native, rel=FP32)


@pytest.mark.parametrize("workers", [1, 2])
def test_dataloader_processes_change_no_loss(drawn: Path, native: list[float], tmp_path: Path, workers: int) -> None:
    assert losses(run_here(tmp_path, "bridgetower", drawn, **{**PAIRS, "dataloader_workers": workers})) == pytest.approx(native, rel=1e-6)


def test_clipping_is_the_fused_one_and_limits_the_norm(tmp_path: Path) -> None:
    from habana_frameworks.torch.hpex.normalization import FusedClipNorm

    before = FusedClipNorm.calls
    settings = {**SMALL, "clip_grad_norm": 1e-3}
    fused = losses(run_here(tmp_path / "fused", "clip_pairs", **settings, **HABANA))
    assert FusedClipNorm.calls == before + 6
    assert losses(run_here(tmp_path / "plain", "clip_pairs", **settings)) == pytest.approx(fused, rel=FP32)


def test_a_model_that_was_saved_goes_on_where_it_was(drawn: Path, tmp_path: Path) -> None:
    """Trained on the device, saved, loaded on the device: the held-out loss is the same."""
    from cluster.devices import load
    from cluster.worker.train.choose_engine import choose_engine
    from cluster.worker.train.train_step import TrainStep
    from experiments.components.workload import Context
    from experiments.workloads import bridgetower
    from tests.gaudi_support import make_trial, mode

    def made(**changes: Any) -> TrainStep:
        trial = make_trial("bridgetower", drawn, **{**PAIRS, **HABANA, **changes})
        parameters = bridgetower.Parameters.model_validate(trial.parameters)
        device = load("hpu")
        workload = bridgetower.build(Context(parameters, trial.data, "hpu", 0, 1, 8))
        engine = choose_engine(parameters, device, 1)
        engine.adapt()
        with device.torch_device:
            model = workload.model()
        return TrainStep(workload, model, parameters, device, engine)

    with mode(lazy=True):
        one = made()
        batches = one.workload.batches()
        for step in (1, 2):
            one.forward_backward(one.place(next(batches)))
            one.update(step)
        one.plain.save_pretrained(tmp_path / "saved")
        again = made(weights=str(tmp_path / "saved"), tokenizer=str(drawn / "tokenizer"))
        fresh = made(seed=1)
    assert next(again.plain.parameters()).device.type == "hpu"
    loss = one.evaluate()["loss"]
    assert again.evaluate()["loss"] == pytest.approx(loss, rel=1e-6)
    assert fresh.evaluate()["loss"] != pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"precision": "fp16"}, "fp16"),
        ({"precision": "tf32"}, "tf32"),
        ({"activation_checkpointing": True}, "refuses gradient checkpointing"),
        ({"activation_checkpointing": True, **HABANA}, "refuses gradient checkpointing"),
        ({"ddp": "fast"}, "needs engine optimum_habana"),
        ({"hpu_graphs": True, "hpu_lazy": False}, "needs lazy mode"),
        ({"compile": "layer", "hpu_lazy": True}, "needs eager mode"),
    ],
)
def test_what_a_gaudi_cannot_do_is_unsupported_and_says_why(drawn: Path, tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        run_here(tmp_path, "bridgetower", drawn, **{**PAIRS, **changes})


def test_checkpointing_is_only_refused_by_models_that_refuse_it(tmp_path: Path) -> None:
    plain = losses(run_here(tmp_path / "plain", "clip_pairs", **SMALL))
    assert losses(run_here(tmp_path / "c", "clip_pairs", **{**SMALL, "activation_checkpointing": True})) == pytest.approx(plain, rel=FP32)


def test_the_emulated_device_is_a_device_of_its_own() -> None:
    """Else none of this would show that everything is moved to it."""
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="hpu") + torch.ones(2)
