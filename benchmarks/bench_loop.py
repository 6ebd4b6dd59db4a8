"""What measuring costs, how far a step is from the device's ceiling, and what transformers.Trainer makes of the same work.

    python -m benchmarks.bench_loop                                        # tiny on the CPU
    python -m benchmarks.bench_loop --device cuda --set model=large text_length=128 batch_size=48 precision=bf16 attention=sdpa \
        optimizer=fused dataloader_workers=8 threads=8
    python -m benchmarks.bench_loop --workload causal_lm --device cuda --loops measured bare --set model=qwen3-0.6b sequence_length=8192 \
        batch_size=2 packing=plain precision=bf16 compile=layer optimizer=fused dataloader_workers=2 threads=8

Five loops take turns in blocks of --steps (A B C D E, E D C B A, ...), on one model, one data set and one DataLoader:

- sampled: what a trial runs: `measured`, with the sampler of the device's state (cluster/sampler) beside it. In the other loops' blocks it
  is suspended;
- measured: the loop that trials use, its device events and its journal included;
- bare: the same as one writes it by hand; copy, forward, backward, step, and nothing that times or writes;
- compute_only: the same step on one batch that lies on the device already, the ceiling of any input pipeline;
- trainer: transformers.Trainer with its defaults (gradients clipped to norm 1, the loss read in every step) and this setting's precision,
  optimiser, learning rate and batch. It is given the same batches and moves them to the device itself.

A block is timed from the end of a step to the end of a step, the device idle at both. Rounds begin until --seconds are spent, at least
--rounds of them. Ratios are of samples/s, with a 95 % paired interval over the rounds. Progress goes to stderr, one JSON object to stdout.
Exit status 1 where sampled / bare is surely below 0.99, or measured / bare below 0.98: the whole interval is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from cluster.devices import Device, load
from cluster.journal.journal import JournalWriter
from cluster.sampler.state_file import read_records
from cluster.trial_layout import DEVICE_STATE, JOURNAL
from cluster.worker.device_sampler import sampling
from cluster.worker.measure.loop import run_steps
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.train.train_step import TrainStep
from experiments import workloads
from experiments.components.workload import Context
from experiments.datasets import scenes, texts
from experiments.stats.estimate import Estimate
from experiments.stats.repeats import paired_ratio
from experiments.trial import DataSource, Trial

DEFAULTS = {"model": "tiny", "text_length": 32, "batch_size": 16, "threads": 1, "steps": 1_000_000, "dataloader_workers": 1}
LEAST_RATIOS = {"sampled_over_bare": 0.99, "measured_over_bare": 0.98}
TRAINER_LEAD = 2  # steps of each Trainer.train() before its clock starts: its optimiser's first step makes the state
RATIOS = {
    "sampled_over_bare": ("sampled", "bare"),
    "sampled_over_measured": ("sampled", "measured"),
    "measured_over_bare": ("measured", "bare"),
    "of_ceiling": ("measured", "compute_only"),
    "over_trainer": ("measured", "trainer"),
}
SHOWN = (
    *("model", "precision", "batch_size", "attention", "optimizer", "compile", "compile_mode", "text_length"),
    *("dataloader_workers", "prefetch_factor", "image_decode", "activation_checkpointing", "prefetch_to_device", "pin_memory", "threads"),
)

Loop = Callable[[int], float]  # steps -> seconds


def main() -> int:
    options = parse()
    began = time.perf_counter()
    module = workloads.load(options.workload)
    defaults = {name: value for name, value in DEFAULTS.items() if name in module.Parameters.model_fields}
    parameters = module.Parameters.model_validate({**defaults, **dict(map(setting, options.set))})
    device = load(options.device)
    device.set_threads(parameters.threads, 1)
    device.set_precision(parameters.precision)
    with tempfile.TemporaryDirectory() as folder:
        say(began, f"drawing {options.rows} rows")
        data = draw(Path(folder), options.rows, text=getattr(parameters, "dataset", None) == "drawn-text")
        say(began, f"building {options.workload} on {device.describe()['device_name']}")
        workload = module.build(Context(parameters, data, device.kind, 0, 1, parameters.batch_size))
        torch.manual_seed(parameters.seed)
        with device.torch_device:  # drawing large weights on the CPU takes longer than all that follows
            model = workload.model()
        train_step = TrainStep(workload, model, parameters, device)
        batches = iter(workload.batches())
        with Recorder(JournalWriter(Path(folder) / JOURNAL, 1)) as recorder, suspended_sampler(device, Path(folder)) as sampler:
            loops: dict[str, Loop] = {
                "sampled": lambda steps: sampled(steps, sampler, batches, train_step, device, recorder),
                "measured": lambda steps: measured(steps, batches, train_step, device, recorder),
                "bare": lambda steps: bare(steps, batches, train_step, device),
                "compute_only": compute_only(next(batches), train_step, device),
                "trainer": lambda steps: trainer(steps, batches, train_step, device, Path(folder)),
            }
            loops = {name: loop for name, loop in loops.items() if name in options.loops}
            for name, loop in loops.items():
                say(began, f"warming up {name}: {options.warmup} steps took {loop(options.warmup):.1f} s")
            rounds = run_rounds(loops, options, parameters.batch_size, began)
    return report(options, device, parameters, rounds, began)


def run_rounds(loops: dict[str, Loop], options: argparse.Namespace, batch_size: int, began: float) -> list[dict[str, float]]:
    """Samples/s of each loop in each round."""
    rounds: list[dict[str, float]] = []
    deadline = time.perf_counter() + options.seconds
    while len(rounds) < options.rounds or time.perf_counter() < deadline:
        order = list(loops) if len(rounds) % 2 == 0 else list(loops)[::-1]  # neither is always first after the other
        seconds = {name: loops[name](options.steps) for name in order}
        rounds.append({name: batch_size * options.steps / seconds[name] for name in loops})
        say(began, f"round {len(rounds)}: " + ", ".join(f"{name} {rate:.4g}" for name, rate in rounds[-1].items()) + " samples/s")
    return rounds


def measured(steps: int, batches: Iterator[Any], train_step: TrainStep, device: Device, recorder: Recorder) -> float:
    """Seconds of `steps` steps of the loop that trials use, journal included."""
    clock = device.clock()
    device.synchronize()
    started = time.perf_counter()
    clock.begin()
    run_steps(range(1, steps + 1), batches, train_step, clock, lambda timing: recorder.step(timing, measured=True))
    device.synchronize()
    return time.perf_counter() - started


def sampled(
    steps: int, sampler: psutil.Process, batches: Iterator[Any], train_step: TrainStep, device: Device, recorder: Recorder
) -> float:
    """As `measured`, with the sampler beside it."""
    sampler.resume()
    try:
        return measured(steps, batches, train_step, device, recorder)
    finally:
        sampler.suspend()


@contextlib.contextmanager
def suspended_sampler(device: Device, folder: Path) -> Iterator[psutil.Process]:
    """The sampler's process, suspended after its first record. It samples into the folder while it is resumed."""
    trial = Trial(
        key=secrets.token_hex(8),
        key_parts={},
        sweep_id="loop-20260101-000000-0000",
        suite="loop",
        workload="none",
        pool="none",
        device=device.kind,
        cell="none",
        repeat=1,
        index=0,
        axes={},
        parameters={},
    )
    with sampling(trial, Ranks(), folder, 1):
        (process,) = (child for child in psutil.Process().children() if "cluster.sampler.main" in child.cmdline())
        while len(read_records(folder / DEVICE_STATE, 1)) < 3:
            time.sleep(0.05)
        process.suspend()
        yield process
        process.resume()  # a suspended one would not end
        records = read_records(folder / DEVICE_STATE, 1)
        print(f"the sampler wrote {len(records)} records; sources: {records[1]['sources']}", file=sys.stderr, flush=True)


def bare(steps: int, batches: Iterator[Any], train_step: TrainStep, device: Device) -> float:
    """Seconds of `steps` steps as one would write them by hand: copy, forward, backward, step."""
    parameters, workload, model, optimizer = train_step.parameters, train_step.workload, train_step.model, train_step.optimizer
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(parameters.precision)
    place = device.torch_device
    device.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        batch = {name: value.to(place, non_blocking=True) if torch.is_tensor(value) else value for name, value in next(batches).items()}
        batch = workload.prepare(batch)
        with torch.autocast(place.type, dtype) if dtype else contextlib.nullcontext():
            loss = workload.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    device.synchronize()
    return time.perf_counter() - started


def compute_only(batch: Any, train_step: TrainStep, device: Device) -> Loop:
    """The ceiling: the same step on one batch that lies on the device already."""
    placed = train_step.place(batch)

    def run(steps: int) -> float:
        device.synchronize()
        started = time.perf_counter()
        for step in range(1, steps + 1):
            train_step.forward_backward(placed)
            train_step.update(step)
        device.synchronize()
        return time.perf_counter() - started

    return run


def trainer(steps: int, batches: Iterator[Any], train_step: TrainStep, device: Device, folder: Path) -> float:
    """Seconds of the last `steps` steps of a Trainer.train(); set-up and the optimiser's first step are before them."""
    import transformers

    workload, parameters = train_step.workload, train_step.parameters
    marks: list[float] = []

    class Timer(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, _arguments: Any, state: Any, _control: Any, **_others: Any) -> None:
            if state.global_step in (TRAINER_LEAD, TRAINER_LEAD + steps):
                device.synchronize()
                marks.append(time.perf_counter())

    class Batches:
        def __iter__(self) -> Iterator[Any]:
            return batches

    class Same(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return Batches()

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
            return workload.loss(model, workload.prepare(inputs))

    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=TRAINER_LEAD + steps,
        per_device_train_batch_size=parameters.batch_size,
        learning_rate=parameters.learning_rate,
        weight_decay=parameters.weight_decay,
        adam_beta2=parameters.beta2,
        optim="adamw_torch_fused" if parameters.optimizer == "fused" else "adamw_torch",
        bf16=parameters.precision == "bf16",
        fp16=parameters.precision == "fp16",
        use_cpu=device.kind == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    low = parameters.precision in ("bf16", "fp16")

    def check(*_: Any) -> None:
        if torch.is_autocast_enabled(device.torch_device.type) is not low:
            raise RuntimeError(f"transformers.Trainer does not compute in {parameters.precision}")

    hook = next(train_step.plain.children()).register_forward_pre_hook(check)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it prints what it trained
            Same(model=train_step.plain, args=arguments, callbacks=[Timer()]).train()
    finally:
        hook.remove()
        for name in ("forward", "_original_forward", "_is_accelerate_prepared"):  # accelerate wraps a model's forward in autocast, once
            vars(train_step.plain).pop(name, None)
        train_step.plain.train()
        train_step.plain.zero_grad(set_to_none=True)
    return marks[1] - marks[0]


def report(options: argparse.Namespace, device: Device, parameters: Any, rounds: list[dict[str, float]], began: float) -> int:
    loops = list(rounds[0])
    summary: dict[str, Any] = {
        "benchmark": "loop",
        "device": device.describe()["device_name"],
        "workload": options.workload,
        "settings": {name: value for name, value in parameters.model_dump().items() if name in SHOWN},
        "samples_per_s": {name: round(statistics.median(one[name] for one in rounds), 2) for name in loops},
    }
    comparisons = ratios(rounds)
    for name, ratio in comparisons.items():
        summary[name] = {"value": round(ratio.value, 4), "low": round(ratio.low, 4), "high": round(ratio.high, 4)}
        say(began, f"{name} {ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f})")
    summary |= {
        "rounds": len(rounds),
        "steps_per_block": options.steps,
        "peak_memory_bytes": device.peak_memory_bytes(),
        "seconds": round(time.perf_counter() - began, 1),
        "samples_per_s_by_round": [{name: round(rate, 3) for name, rate in one.items()} for one in rounds],
    }
    print(json.dumps(summary), flush=True)
    return 1 if any(comparisons[name].high < least for name, least in LEAST_RATIOS.items() if name in comparisons) else 0


def ratios(rounds: list[dict[str, float]]) -> dict[str, Estimate]:
    """One loop's samples/s over another's, paired by round; only of loops that ran."""
    pairs = {name: pair for name, pair in RATIOS.items() if {*pair} <= rounds[0].keys()}
    rates = {loop: [one[loop] for one in rounds] for loop in rounds[0]}
    return {name: paired_ratio(rates[one], rates[other]) for name, (one, other) in pairs.items()}


def say(began: float, text: str) -> None:
    print(f"[{time.perf_counter() - began:6.1f} s] {text}", file=sys.stderr, flush=True)


def draw(folder: Path, rows: int, *, text: bool) -> DataSource:
    """A set of documents, or of captioned scenes."""
    (texts if text else scenes).build(folder, rows=rows, validation_rows=16, seed=0)
    return DataSource(uri=str(folder), fingerprint="bench", tokenizer=str(folder / "tokenizer"))


def setting(text: str) -> tuple[str, Any]:
    """name=value; the value as JSON where it is JSON, else as it stands."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parse() -> argparse.Namespace:
    loops = ("sampled", "measured", "bare", "compute_only", "trainer")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="bridgetower")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="workload parameters")
    parser.add_argument("--loops", nargs="+", default=list(loops), choices=loops, help="which loops take turns; all by default")
    parser.add_argument("--rows", type=int, default=256, help="drawn rows: documents, or images with captions")
    parser.add_argument("--steps", type=int, default=8, help="steps of one block")
    parser.add_argument("--rounds", type=int, default=3, help="least number of rounds")
    parser.add_argument("--seconds", type=float, default=25, help="no round begins later than this after the warm-up")
    parser.add_argument("--warmup", type=int, default=4, help="steps of each loop before the first round")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
