"""The registry of summary metrics: what each measures, in which unit, which way is better, and how it is averaged and printed.

Reports, figures, nights, suites, MLflow and the command line look a metric up here by its name; nothing is read from how a name is spelled.

To add a metric:
1. Let `summarise` (experiments/summary.py) or a workload's `evaluate` return it. `evaluate`'s `accuracy` becomes `eval_accuracy_before` and
   `eval_accuracy_after`.
2. Add a `Metric` to REGISTRY. A name may hold `<number>` (digits), `<when>` (before or after) or `<tensor>` (anything); the first entry
   that fits is taken.
3. Run `python -m tasks.documents`, which writes the table of docs/metrics.md. tests/experiments/test_metrics.py names what is missing.

A workload outside this repository may evaluate what is not listed here: such a metric is shown, but no cell is judged by it, since nobody
said which way is better.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from experiments.config.errors import ConfigError, choose
from experiments.metric import Direction, Kind, Metric, Scale


def _rate(name: str, unit: str, description: str, effect: float = 0.03, short: str = "") -> Metric:
    return Metric(name, unit, Direction.HIGHER, Scale.LOG, effect, Kind.RATE, description, depends_on_node=True, short=short)


def _seconds(name: str, description: str, effect: float, short: str, *, batch: bool = False, scale: Scale = Scale.LOG) -> Metric:
    lower, kind = Direction.LOWER, Kind.SECONDS
    return Metric(name, "s", lower, scale, effect, kind, description, depends_on_node=True, depends_on_batch=batch, short=short)


def _share(name: str, description: str, direction: Direction = Direction.LOWER, *, node: bool = True) -> Metric:
    return Metric(name, "", direction, Scale.LINEAR, 0.02, Kind.SHARE, description, depends_on_node=node)


def _count(name: str, description: str, direction: Direction = Direction.NEITHER, unit: str = "", *, seed: bool = False) -> Metric:
    return Metric(name, unit, direction, Scale.COUNT, 1.0, Kind.COUNT, description, depends_on_seed=seed)


def _loss(name: str, description: str, direction: Direction = Direction.LOWER) -> Metric:
    return Metric(name, "", direction, Scale.LOG, 0.03, Kind.NUMBER, description, depends_on_seed=True)


def _score(name: str, description: str, direction: Direction = Direction.HIGHER) -> Metric:
    return Metric(name, "", direction, Scale.LINEAR, 0.02, Kind.NUMBER, description, depends_on_seed=True)


def _cost(end: str, description: str) -> Metric:
    name, short, words = f"cost_per_million_samples{end}", f"cost of a million samples{end.replace('_', ', ')}", ("dearer", "cheaper")
    return Metric(name, "", Direction.LOWER, Scale.LOG, 0.03, Kind.NUMBER, description, depends_on_node=True, short=short, words=words)


def _state(name: str, unit: str, effect: float, description: str, short: str) -> Metric:
    return Metric(name, unit, Direction.NEITHER, Scale.LOG, effect, Kind.NUMBER, description, short=short)


# What the sampler saw in the window (experiments/device_state.py). None says that a setting is better, so none has a direction
_STATE: tuple[Metric, ...] = (
    _state(
        "clock_mean_mhz",
        "MHz",
        0.01,
        "mean clock in the window, sampled: CUDA's SM clock, Gaudi's SoC clock, on a CPU that of the busy cores; see "
        "[measuring](measuring.md#the-state-of-the-device), like the following",
        "mean clock",
    ),
    _state("clock_min_mhz", "MHz", 0.01, "lowest clock sampled in the window", "lowest clock"),
    _state("memory_clock_mhz", "MHz", 0.01, "mean memory clock in the window, sampled; CUDA only", "memory clock"),
    _state("sampled_power_w", "W", 0.05, "mean power draw in the window, sampled; unknown under 1 s", "sampled power"),
    _count("temperature_max_c", "highest temperature sampled in the window", unit="°C"),
    _share("capped_share", "part of the window in which the clock was capped, by power or otherwise", Direction.NEITHER, node=False),
    _share(
        "cpu_others_share",
        "part of all cores' time, or of those that the trial is held to, that others used",
        Direction.NEITHER,
        node=False,
    ),
    _share("steal_share", "part of the same time that the hypervisor took", Direction.NEITHER, node=False),
    _share("psi_cpu_share", "part of the window in which some process waited for a core (Linux PSI)", Direction.NEITHER, node=False),
    _share("throttled_share", "part of the periods in which the cgroup's CPU quota was used up", Direction.NEITHER, node=False),
    _count("other_processes", "most processes on the device at once that are not the trial's", unit="processes"),
    _count("neighbour_gpus", "most at once of the other GPUs that the host shows, on which a process had a context", unit="GPUs"),
    _share("state_coverage", "part of the window that the sampler covered", Direction.NEITHER, node=False),
)


def _batch_times(label: str, description: str) -> tuple[Metric, ...]:
    """Percentiles over the measured batches, and the median by sample."""
    name = label.replace(" ", "_")

    def of(rank: str, text: str, effect: float) -> Metric:
        return _seconds(f"{name}_{rank}_s", text, effect, f"{label} {rank.replace('_', ' ')}", batch=True)

    return (
        of("p50", f"{description}; median, see [below](#latency)", 0.03),
        of("p90", "the same, 90th percentile", 0.05),
        of("p99", "the same, 99th percentile; null below 1,000 batches", 0.10),
        replace(
            of("per_sample", "the median of the same divided by the samples of a batch, such as images; none is done before it", 0.03),
            meaning=f"the {label} of a batch divided by its samples, of which none is done before the batch",
        ),
        of("per_token", "the same median by token of a sample, of language models: of decoding, the time between two tokens", 0.03),
    )


def _interval(name: str, unit: str, description: str, short: str, beside: tuple[str, ...] = ()) -> tuple[Metric, ...]:
    """A rate that is throughput times something, and the ends of its interval. `beside`: of Metric, of the rate."""
    ends = (_rate(f"{name}_{end}", unit, f"the same of throughput_{end}", short=f"{short} {end}") for end in ("low", "high"))
    return replace(_rate(name, unit, description, short=short), beside=beside), *ends


REGISTRY: tuple[Metric, ...] = (
    _rate("throughput", "samples/s", "samples of all ranks over the longest wall time of a rank's window"),
    _rate("throughput_low", "samples/s", "lower end of throughput's 95 % interval over steps"),
    _rate("throughput_high", "samples/s", "upper end of throughput's 95 % interval over steps"),
    _count("effective_steps", "as many independent steps would give an interval as narrow; null, as it is, under 40 steps", unit="steps"),
    _rate("throughput_settled", "samples/s", "throughput from the step on at which step times are level"),
    _count("measured_steps", "steps of the measured window that its rate is of", unit="steps"),
    _count("compiled_steps", "steps of the window in which torch compiled; null of early trials", unit="steps"),
    _count("left_out_steps", "further steps of the window, which no rate has: torch compiled in them or in their round", unit="steps"),
    _count("first_measured_step", "number of the first measured step; the first step of all is 1"),
    _count("samples", "samples of the measured steps, over all ranks", unit="samples"),
    _seconds(
        "step_time_p05_s",
        "5th percentile of them: a step that nothing disturbed; varies far less than the mean, and tells nothing of what slows some",
        0.03,
        "step time p05",
        batch=True,
    ),
    _seconds("step_time_median_s", "median of the measured steps", 0.03, "step time median", batch=True),
    _seconds("step_time_p90_s", "90th percentile of the measured steps", 0.05, "step time p90", batch=True),
    *_batch_times("service time", "inference with `execution: queued` only: a batch's time in a queue of up to 3, 1 / throughput"),
    *_batch_times("latency", "inference with `execution: synchronous` only: from a batch on the host to its output, one batch at a time"),
    _share("data_wait_share", "part of the measured steps' time that waits for the host: for a batch, and for its Python and journal"),
    _share("loader_wait_share", "the host's time in the loader's `next` over the measured steps' time; the device may compute meanwhile"),
    _share("data_wait_worst_share", "several devices only: data_wait_share of the rank that waits most, where all else is rank 0's"),
    _share("h2d_share", "part of the measured steps' time that copies the batch to the device"),
    _share("forward_backward_share", "part of the measured steps' time in forward and backward pass", Direction.NEITHER),
    _share("optimizer_share", "part of the measured steps' time in the optimiser", Direction.NEITHER),
    _count("settled", "1 if step times became level in the window, else 0; null under 8 steps, which are too few to tell"),
    _count("settled_at_step", "the step from which on they are level"),
    _share("drift", "relative change of the step times from there to the window's end, by a straight line", Direction.NEITHER),
    Metric(
        "peak_memory_bytes",
        "B",
        Direction.LOWER,
        Scale.LOG,
        0.03,
        Kind.BYTES,
        "CUDA: most memory held by tensors in the window, of the worst rank; CPU: most memory held by the process since it started",
        short="peak memory",
    ),
    _count("alloc_retries", "allocations in the window that first had to empty the allocator's cache; null on a CPU", Direction.LOWER),
    _seconds("time_to_first_step_s", "from the start of the process to the end of the first step", 0.20, "time to first step"),
    _seconds(
        "compile_seconds",
        "what torch.compile took until the warm-up ended, with nothing in its cache before; null where nothing is compiled, or not cold",
        0.20,
        "compile time",
    ),
    _seconds("compile_cached_seconds", "the same where graphs, or some, came from the cache", 0.20, "compile time, cached"),
    _state(
        "trace_seconds",
        "s",
        0.20,
        "what tracing further steps, reading the traces and measuring their matrix products took; null where nothing is traced",
        "time for the trace",
    ),
    _state(
        "batch_search_seconds",
        "s",
        0.20,
        "what the search for the largest batch took beyond one of its processes, as many as a repeat has; null where none was searched for",
        "time for the batch search",
    ),
    _state(
        "mean_power_w",
        "W",
        0.05,
        "mean of the devices' energy counters over the window, of all together; null where there is none or the window is below 10 s",
        "mean power",
    ),
    _seconds(
        "communication_s",
        "several devices only: one all-reduce of all gradients with nothing beside it, see [measuring](measuring.md#communication)",
        0.05,
        "communication",
    ),
    _seconds(
        "communication_exposed_s",
        "several devices only: how much longer forward and backward take with the all-reduce than without it, at least 0",
        0.001,
        "exposed communication",
        scale=Scale.LINEAR,
    ),
    _share("communication_share", "several devices only: the exposed communication's part of a step"),
    *_STATE,
    _count("loss_spikes", "loss spikes, where the trial looks for them, see [measuring](measuring.md#spikes)", Direction.LOWER, seed=True),
    _count("rms_spikes", "RMS spikes of the first tensor watched", Direction.LOWER, seed=True),
    _count("loss_spikes_explained", "loss spikes that an RMS spike of that tensor explains", seed=True),
    Metric(
        "energy_j_per_sample",
        "J",
        Direction.LOWER,
        Scale.LOG,
        0.05,
        Kind.NUMBER,
        "the devices' energy over the window by sample; null where there is no counter or the window is below 10 s",
        short="energy per sample",
        words=("more", "less"),
    ),
    _cost("", "in the currency of the pool's price, where its entry has one, see [measuring](measuring.md#cost-and-energy)"),
    _cost("_low", "the same of throughput_high"),
    _cost("_high", "the same of throughput_low"),
    Metric(
        "mfu",
        "",
        Direction.HIGHER,
        Scale.LOG,
        0.03,
        Kind.SHARE,
        "FLOPs of a sample x throughput / (devices x peak FLOP/s of the precisions that compute)",
        depends_on_node=True,
        short="MFU",
        meaning="model FLOP utilisation, against the peak of the precisions that compute",
    ),
    *_interval("tflops_per_device", "TFLOP/s", "FLOPs of a sample x throughput / devices / 10^12", "TFLOP/s per device"),
    *_interval("tokens_per_s", "tokens/s", "of language models: throughput x tokens of a sample", "tokens/s", beside=("mfu",)),
    *_interval("tokens_per_s_per_device", "tokens/s", "tokens_per_s / devices", "tokens/s per device", beside=("mfu",)),
    _seconds(
        "epoch_time_s",
        "samples of the epoch that the workload names (vit: the 1,281,167 training images of ImageNet-1K) / throughput",
        0.03,
        "epoch time",
    ),
    Metric(
        "batch_size",
        "samples",
        Direction.HIGHER,
        Scale.LOG,
        0.02,
        Kind.COUNT,
        "samples per device and micro-batch; where the trial looks for the largest that fits, what it found",
    ),
    _loss("first_loss", "training loss of the first step; none where it is not finite", Direction.NEITHER),
    _loss("final_loss", "training loss of the last step of the learning rate's schedule"),
    _loss("eval_loss_<when>", "loss on held-out data, before and after training"),
    _loss("eval_chance_loss_<when>", "the loss of a model that knows nothing", Direction.NEITHER),
    _loss("eval_matching_loss_<when>", "FLAVA: loss of matching image and text"),
    _score("eval_accuracy_<when>", "share of held-out samples with the right class, 0 to 1"),
    _score("eval_recall_at_<number>_<when>", "share of captions whose image is among so many nearest, 0 to 1"),
    _count("eval_retrieval_pool_<when>", "images and captions that recall is measured on"),
    _count("eval_corrupt_rows_<when>", "rows of the data set that could not be decoded", Direction.LOWER),
    _score("eval_winoground_text_<when>", "share of Winoground's examples with the right caption for both images, 0 to 1"),
    _score("eval_winoground_image_<when>", "share of examples with the right image for both captions"),
    _score("eval_winoground_group_<when>", "share of examples with both right"),
    _score("eval_chance_winoground_<score>_<when>", "the score text, image or group of a model that guesses", Direction.NEITHER),
    _count("eval_winoground_examples_<when>", "examples that the scores are of"),
    _count("eval_image_codes_<when>", "FLAVA: different codes that its codebook gave to the images", seed=True),
    Metric(
        "eval_magnitude_<number>_<when>",
        "",
        Direction.NEITHER,
        Scale.LOG,
        0.03,
        Kind.NUMBER,
        "CLIP: mean absolute output of the vision tower's block of that number",
        depends_on_seed=True,
    ),
    _share("eval_quantise_share_<when>", "linear layers: part of a forward and backward pass in quantising, timed apart"),
    Metric("rms.<tensor>", "", Direction.NEITHER, Scale.LOG, 0.03, Kind.NUMBER, "a field of each step: RMS_t of the tensor", of_steps=True),
)

_UNLISTED = _score("eval_<metric>_<when>", "what a workload outside this repository evaluates", Direction.NEITHER)
_HOLES = {"number": r"\d+", "when": "before|after", "tensor": ".+", "score": "text|image|group", "metric": "[a-z0-9_]+"}


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<(\w+)>", lambda hole: f"({_HOLES[hole[1]]})", re.escape(name)) + r"\Z")


_PLAIN = {metric.name: metric for metric in REGISTRY if "<" not in metric.name}
_PATTERNS = [(_pattern(metric.name), metric) for metric in REGISTRY if "<" in metric.name]


@lru_cache(maxsize=1024)
def metric_of(name: str, *, unlisted: bool = True) -> Metric:
    """The metric of that name; of a name with `*` in place of a number, what those metrics have in common.

    `unlisted`: an evaluation metric that REGISTRY does not list is taken as a number of no direction. Raises ConfigError with the nearest
    known name for any other name.
    """
    asked = name.replace("*", "1")
    listed = _PLAIN.get(asked) or next((metric for pattern, metric in _PATTERNS if pattern.match(asked)), None)
    if listed is None and unlisted and _pattern(_UNLISTED.name).match(asked):
        listed = _UNLISTED
    if listed is None:
        near = choose(name, names())
        hint = near if near.startswith("did") else _with_word(name)
        raise ConfigError.one("metric", None, name, "unknown metric", hint)
    return listed if listed.name == name else replace(listed, name=name)


def _with_word(word: str) -> str:
    """A hint at a name with this word, such as `loss`: sooner at one with a direction, and sooner at one that ends with it."""
    found = [name for name in names() if f"_{word}_" in f"_{name}_"]
    best = min(found, key=lambda name: (metric_of(name).direction is Direction.NEITHER, not name.endswith(word)), default=None)
    return f"did you mean {best!r}?" if best else "docs/metrics.md lists them all"


def names() -> list[str]:
    """Every name to suggest; 1 for a number. Without what only a step has."""
    found = list(_PLAIN)
    for metric in REGISTRY:
        if "<when>" in metric.name:
            filled = [metric.name.replace("<number>", "1").replace("<score>", score) for score in ("text", "image", "group")]
            found += [one.replace("<when>", when) for one in dict.fromkeys(filled) for when in ("before", "after")]
    return found
