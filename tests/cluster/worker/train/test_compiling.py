"""torch.compile as a trial asks for it: which mode goes with what, what is compiled, what CUDA graphs ask of a step, and equal losses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.worker.train import compiling
from cluster.worker.train.choose_engine import choose_engine
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.layers import cross_entropy
from experiments.components.workload import Context, Unsupported
from experiments.datasets import scenes, texts
from experiments.trial import DataSource
from experiments.workloads import synthetic


class Gpu(Cpu):
    """Computes on the CPU and says that it is a GPU."""

    kind = "cuda"


class Hpu(Cpu):
    kind = "hpu"
    compile_backend = "hpu_backend"


Log = list[Any]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What torch.compile was told, each call of what it gave, and each step that was marked. Nothing is compiled."""
    told: Log = []

    def compile_(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        told.append(settings)

        def called(*arguments: Any, **named: Any) -> Any:
            told.append("call")
            return function(*arguments, **named)

        return called

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: told.append("mark"))
    return told


class Inferred(synthetic.Synthetic):
    """Reads its loss where the network wrote it, as a graph does."""

    trains = False

    def loss(self, model: Any, batch: Any) -> torch.Tensor:
        self.output: torch.Tensor = model(batch["vectors"])
        model(batch["vectors"])  # once more in this step
        return self.output[0, 0]  # type: ignore[no-any-return]


def learner(device: Cpu, workload: type[synthetic.Synthetic] = synthetic.Synthetic, **values: Any) -> tuple[TrainStep, Any]:
    parameters = synthetic.Parameters(**{"batch_size": 4, "steps": 4, **values})
    made = workload(Context(parameters, None, "cpu", 0, 1, 4))
    step = TrainStep(made, made.model(), parameters, device)
    return step, next(iter(made.batches()))


GRAPHED: dict[str, Any] = {"compile": "model", "compile_mode": "reduce-overhead"}


@pytest.mark.parametrize(
    ("device", "values", "why"),
    [
        (
            Cpu(),
            {"compile_mode": "reduce-overhead"},
            "compile_mode reduce-overhead: all it does is to record CUDA graphs, which cpu has none of",
        ),
        (Cpu(), {"compile_mode": "max-autotune"}, None),
        (Cpu(), {"compile_mode": "max-autotune-no-cudagraphs"}, None),
        (Gpu(), {"compile_mode": "reduce-overhead"}, None),
        (Gpu(), {"compile_mode": "max-autotune"}, None),
        (Gpu(), {"multi_kernel": True}, None),
        (Cpu(), {"multi_kernel": True}, "multi_kernel: a choice between Triton kernels, and cpu is compiled for without them; use false"),
        (Hpu(), {"multi_kernel": True}, "multi_kernel: a choice between Triton kernels, and hpu is compiled for without them; use false"),
        (Hpu(), {"compile_mode": "default"}, None),
        (Hpu(), {"compile_mode": "max-autotune"}, "compile_mode max-autotune: a mode of inductor, and hpu compiles with hpu_backend"),
    ],
)
def test_a_mode_that_the_device_does_not_have_is_unsupported(device: Cpu, values: dict[str, Any], why: str | None) -> None:
    parameters = synthetic.Parameters(**{"compile": "layer", **values})
    if why is None:
        choose_engine(parameters, device, 1)
    else:
        with pytest.raises(Unsupported, match=why):
            choose_engine(parameters, device, 1)
    graphs = device.kind == "cuda" and "compile_mode" in values
    assert compiling.records_cuda_graphs(parameters, device) is graphs


def test_cuda_graphs_are_for_one_device_that_trains(log: Log) -> None:
    parameters = synthetic.Parameters(**GRAPHED, devices=2)
    engine = choose_engine(parameters, Gpu(), 2)
    with pytest.raises(Unsupported, match="compile_mode reduce-overhead: on several devices CUDA graphs hold gradients"):
        engine.distribute(torch.nn.Linear(2, 2), find_unused=False, units=[])
    made = Inferred(Context(parameters, None, "cpu", 0, 2, 4))
    TrainStep(made, made.model(), parameters, Gpu(), engine)  # inference on several devices shares nothing


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"compile": "none"}, []),
        ({"compile": "layer"}, [{"backend": "inductor"}] * 3),
        ({"compile": "layer", "compile_mode": "max-autotune"}, [{"backend": "inductor", "mode": "max-autotune"}] * 3),
        ({"compile": "layer", "multi_kernel": True}, [{"backend": "inductor", "options": {"triton.multi_kernel": 1}}] * 3),
        (
            {"compile": "model", "compile_mode": "reduce-overhead", "multi_kernel": True},
            [{"backend": "inductor", "options": {"triton.cudagraphs": True, "triton.multi_kernel": 1}}],
        ),
        ({"compile": "model"}, [{"backend": "inductor"}]),
        (GRAPHED, [{"backend": "inductor", "mode": "reduce-overhead"}]),
    ],
)
def test_what_torch_is_told(log: Log, values: dict[str, Any], expected: list[Any]) -> None:
    learner(Gpu(), depth=2, **values)
    assert log == expected


@pytest.mark.parametrize("compile_", ["layer", "model"])
def test_kernels_are_chosen_anew_in_each_process(log: Log, monkeypatch: pytest.MonkeyPatch, compile_: str) -> None:
    name = "TORCHINDUCTOR_DISABLE_MULTI_KERNEL_CACHE"
    monkeypatch.setenv(name, "0")
    learner(Gpu(), depth=2, compile=compile_)
    assert os.environ[name] == "0"
    learner(Gpu(), depth=2, compile=compile_, multi_kernel=True)
    assert os.environ[name] == "1"


@pytest.mark.parametrize(("compile_", "limit"), [("layer", compiling.GRAPHS), ("model", 8), ("none", 8)])
def test_layers_alone_may_have_more_graphs(log: Log, monkeypatch: pytest.MonkeyPatch, compile_: str, limit: int) -> None:
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 8)
    learner(Gpu(), depth=2, compile=compile_)
    assert torch._dynamo.config.recompile_limit == limit


def test_a_compiled_model_keeps_the_names_of_its_parameters(log: Log) -> None:
    step, batch = learner(Cpu(), compile="model")
    assert [name for name, _ in step.model.named_parameters()] == [name for name, _ in step.workload.model().named_parameters()]
    step.forward_backward(batch)
    assert log[1:] == ["call"]
    step.evaluate()
    assert log[1:] == ["call"], "evaluation is eager"


def test_each_step_of_training_is_marked_and_its_loss_copied(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    step, batch = learner(Gpu(), **GRAPHED)
    written: list[torch.Tensor] = []
    loss_of = step.workload.loss
    monkeypatch.setattr(step.workload, "loss", lambda model, one: written.append(loss_of(model, one)) or written[-1])
    for number in (1, 2):
        loss = step.forward_backward(batch)
        assert not loss.requires_grad and loss.data_ptr() != written[-1].data_ptr() and loss.item() == written[-1].item()
        step.update(number)
        assert all(parameter.grad is None for parameter in step.trained), "the next ones are written where a graph has its own"
    assert log[1:] == ["mark", "call"] * 2

    plain, batch = learner(Gpu(), compile="model")
    log.clear()
    plain.forward_backward(batch)
    assert log == ["call"], "without graphs nothing is marked"


@pytest.mark.parametrize("how", ["model", "layer"])
def test_each_call_of_inference_is_marked_and_its_output_copied(log: Log, how: str) -> None:
    step, batch = learner(Gpu(), Inferred, **{**GRAPHED, "compile": how})
    log[:] = []
    loss = step.forward_backward(batch)
    calls = 1 if how == "model" else len(step.workload.layers(step.plain))
    assert log == [*["mark", *["call"] * calls] * 2]
    assert loss.data_ptr() != step.workload.output.data_ptr()  # type: ignore[attr-defined]


class Sources(NamedTuple):
    scenes: DataSource
    texts: DataSource


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folders = [tmp_path_factory.mktemp(name) for name in Sources._fields]
    scenes.build(folders[0], rows=32, validation_rows=16, seed=0, max_size=96)
    texts.build(folders[1], rows=32, validation_rows=16, seed=0)
    return Sources(*[DataSource(uri=str(folder), fingerprint="f", tokenizer=str(folder / "tokenizer")) for folder in folders])


@pytest.fixture
def captured() -> Iterator[Callable[[], tuple[int, list[str]]]]:
    """How many graphs dynamo has captured, and why it had to break any."""
    torch.compiler.reset()
    counters: Any = torch._dynamo.utils.counters
    counters.clear()
    yield lambda: (counters["stats"]["unique_graphs"], list(counters["graph_break"]))
    torch.compiler.reset()


class Case(NamedTuple):
    name: str
    values: dict[str, Any]
    graphs: int = 1
    data: str | None = "scenes"
    # No C++ compiler is called, which takes minutes: aot_eager runs the differentiated graphs that inductor begins from, eager dynamo's
    backend: str = "aot_eager"
    left_out: str | None = None  # the function before which the graph ends

    def __str__(self) -> str:
        return "-".join([self.name, *[str(self.values[of]) for of in ("phase", "family", "cross_entropy") if of in self.values]])


PAIRS: dict[str, Any] = {"model": "tiny", "text_length": 16}
PASSAGES: dict[str, Any] = {"model": "tiny", "sequence_length": 32}
RANDOM: dict[str, Any] = {"weights": "random", "size": "tiny", "dataset": "drawn"}
CASES = [
    Case("bert", PASSAGES, data="texts"),
    Case("bert_inference", PASSAGES, data="texts"),
    Case("bridgetower", {**PAIRS, "attention": "sdpa"}),
    Case("bridgetower_inference", PAIRS),
    Case("canary", {}, data=None),
    # The decoder, and what `chunked` compiles by itself: one chunk's loss and gradient. The loop over chunks is left out
    Case("causal_lm", {"model": "llama3-tiny", "sequence_length": 32}, 2, "texts", left_out="_chunked"),
    Case("causal_lm", {"model": "llama3-tiny", "sequence_length": 32, "cross_entropy": "logits"}, data="texts"),
    # A prompt for which the cache is made, and one that finds it there; decoding, the prompt, and a token after it
    Case("causal_lm_inference", {"model": "qwen3-tiny", "sequence_length": 16, "phase": "prefill"}, 2, "texts"),
    Case("causal_lm_inference", {"model": "qwen3-tiny", "sequence_length": 16, "phase": "decode", "new_tokens": 4}, 2, "texts"),
    Case("clip", {"model": "pico"}),
    Case("flava", {**PAIRS, "long_text_length": 32, "kinds": "balanced"}, 5, backend="eager"),
    Case("linear_layer", {}, data=None),
    Case("synthetic", {}, data=None),
    Case("t5", {"source_length": 32, "target_length": 8}, data="texts"),
    # The encoder; the decoder for the first token, for the second, and for all further ones
    Case("t5_inference", {"source_length": 32, "target_length": 6}, 4, "texts"),
    Case("vit", {"model": "tiny"}, data=None),
    Case("winoground", {**RANDOM, "family": "clip"}),
    Case("winoground", {**RANDOM, "family": "bridgetower"}),
]
ELSEWHERE = {"stable_diffusion"}  # tests/experiments/workloads/test_stable_diffusion.py asserts the same of it, in fp32


def test_every_workload_is_compiled_whole_by_a_test() -> None:
    ours = {name for name in workloads.names() if not workloads.is_extra(name)}
    assert {case.name for case in CASES} | ELSEWHERE == ours, "docs/settings.md says so of each: a new one needs a case"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_whole_model_has_under_autocast_the_losses_that_it_has_eagerly(
    case: Case, sources: Sources, monkeypatch: pytest.MonkeyPatch, captured: Callable[[], tuple[int, list[str]]]
) -> None:
    monkeypatch.setattr(Cpu, "compile_backend", case.backend)
    chunk = torch.compile(cross_entropy.loss_and_gradient, backend=case.backend)
    monkeypatch.setattr(cross_entropy, "_compiled", lambda: chunk)  # its own is inductor's on every device
    module, losses, gradients = workloads.load(case.name), {}, {}
    for how in ("none", "model"):
        parameters = module.Parameters(batch_size=2, precision="bf16", threads=1, steps=4, compile=how, **case.values)
        one = module.build(Context(parameters, case.data and getattr(sources, case.data), "cpu", 0, 1, 2))
        torch.manual_seed(0)
        step = TrainStep(one, one.model(), parameters, Cpu())
        torch.manual_seed(0)
        batches, losses[how] = one.batches(), []
        for number in (1, 2, 3):
            losses[how].append(float(step.forward_backward(step.place(next(batches)))))
            if number == 1:
                gradients[how] = float(torch.nn.utils.get_total_norm([each.grad for each in step.trained if each.grad is not None]))
            step.update(number)
    assert losses["model"][0] == pytest.approx(losses["none"][0], rel=2e-3)
    assert losses["model"] == pytest.approx(losses["none"], rel=1e-2)  # how bf16 is rounded differs between CPUs, and updates carry it on
    assert gradients["model"] == pytest.approx(gradients["none"], rel=1e-2) and (gradients["model"] > 0) is step.trains
    graphs, breaks = captured()
    assert graphs == case.graphs
    assert len(breaks) == (case.left_out is not None) and all(f"<function {case.left_out} " in why for why in breaks)
