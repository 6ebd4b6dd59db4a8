"""Initial weights that trials share: the first draws them and keeps them in a file, later ones read it.

Drawing a large model's weights takes longer than reading them. A trial that reads builds the same model without values (on torch's meta
device, where nothing is computed), and puts the file's in. What it then trains with equals what it would have drawn, bit by bit:
parameters, all buffers, and the state of the random generators. Where that cannot be had, a trial draws:

- the model built without values must have the same tensors as the drawn one (names, types, shapes, which are the same one under two
  names), no other tensor may be left without a value, and building it may not have used random numbers outside the meta device;
- sums over the values must be those of the values that were drawn.
"""

from __future__ import annotations

import gc
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from cluster.kept_files import make_private
from cluster.worker.measure.recorder import Recorder
from experiments.atomic_file import atomic_file
from experiments.parameters import NOT_OF_THE_MODEL, TrainingParameters
from experiments.trial import Trial, digest

WORTH_S, WORTH_BYTES = 1.0, 64 * 2**20  # of drawing and of weights, from which a file is worth it
# Of drawing in a process that had to import the model's modules meanwhile: on one H200 that made 7.3 s of the 0.2 s in which BridgeTower
# Large is drawn. A later trial of the template, which has imported them, sees what drawing takes
WORTH_WITH_IMPORTS_S = 30.0
IMPORTS = 20  # modules; fewer take no time that matters
LIMIT_BYTES = 32 * 2**30  # of all files; beyond it those that were used longest ago are removed
DEVICES = ("cpu", "cuda")  # on which weights are drawn that are kept
_CPU_STATE, _DEVICE_STATE = ".generator.cpu", ".generator.device"  # no parameter's name begins with a dot
_LIBRARIES = ("python", "torch", "transformers", "diffusers", "numpy")
_HARDWARE = ("device_name", "cpu", "threads")  # what a generator's kernels, and so the numbers, may depend on

Draw = Callable[[], torch.nn.Module]


class NotTheSame(Exception):
    """This model cannot be had from a file exactly as it would be drawn."""


class Damaged(Exception):
    """A file does not hold what was written."""


@dataclass(frozen=True)
class Built:
    """A model with its initial weights, and how long that took (s). `drawn_s`: of this trial's drawing, or of that which made the file."""

    model: torch.nn.Module
    drawn_s: float
    read_s: float | None = None  # None: they were drawn here
    kept_s: float = 0.0  # of writing the file

    def record(self) -> dict[str, float | None]:
        """For the journal's window record."""
        return {"weights_drawn_s": self.drawn_s, "weights_read_s": self.read_s, "weights_kept_s": self.kept_s or None}


BuildModel = Callable[[Draw, int, torch.device | None], Built]  # what to call, seed, where (None: the CPU)


def weights_key(trial: Trial, parameters: TrainingParameters, device: torch.device, facts: Mapping[str, Any]) -> str | None:
    """The key of a trial's initial weights: all that they depend on. `device`: the trial's, `facts`: its environment.

    None where they are not drawn (a checkpoint is read), or where it is unknown which code draws them.
    """
    values = {name: value for name, value in parameters.model_dump(mode="json").items() if name not in NOT_OF_THE_MODEL}
    checkpoint = any(isinstance(value, str) and name.split("_")[-1] == "weights" for name, value in values.items())
    drawn_on = device.type if parameters.build_on == "device" else "cpu"
    if checkpoint or drawn_on not in DEVICES or "code" not in trial.key_parts:
        return None
    known = {name: facts.get(name) for name in (*_LIBRARIES, *_HARDWARE)}
    data = trial.data.fingerprint if trial.data else None
    return digest([trial.workload, trial.key_parts["code"], values, data, drawn_on, torch.backends.cpu.get_cpu_capability(), known])


class StagedWeights:
    """The weights of one key: how a trial comes to them, and whether it keeps them for others."""

    def __init__(
        self, folder: Path, key: str, recorder: Recorder, *, keeps: bool = True, worth: tuple[float, int] = (WORTH_S, WORTH_BYTES)
    ) -> None:
        """`keeps`: whether this process writes files, as one rank of a node does. `worth`: s of drawing and bytes from which it does."""
        self._folder, self._key, self._recorder, self._say = folder, key, recorder, recorder.note
        self._keeps, self._worth = keeps, worth

    def build(self, draw: Draw, seed: int, place: torch.device | None) -> Built:
        """The model that `draw` makes from `seed` on `place` (None: the CPU), and torch's generators as that leaves them.

        `draw` may be called a second time, after it failed or made another model without values. Raises what it raises.
        """
        path, refused = self._folder / f"{self._key}.safetensors", self._folder / f"{self._key}.refused"
        if path.exists() and not refused.exists():
            try:
                return self._read(path, draw, seed, place or torch.device("cpu"))
            except (Damaged, SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
                self._say(f"weights: {path.name} is damaged and was removed ({_line(error)}); drawn again")
            except Exception as error:
                self._say(f"weights: drawn again, and from now on always: without values the model is another ({_line(error)})")
                refused.touch()
            path.unlink(missing_ok=True)
        modules = len(sys.modules)
        built = drawn(draw, seed, place)
        worth_s = WORTH_WITH_IMPORTS_S if len(sys.modules) - modules > IMPORTS and self._worth[0] else self._worth[0]
        size = sum(tensor.nbytes for tensor in {id(tensor): tensor for _, tensor in _named(built.model)}.values())
        if built.drawn_s < worth_s or size < self._worth[1] or not self._keeps or refused.exists():
            return built
        self._recorder.phase("keep_weights")
        kept_s = self._keep(path, built, size, place or torch.device("cpu"))
        self._recorder.phase("build")
        return replace(built, kept_s=kept_s)

    def _keep(self, path: Path, built: Built, size: int, device: torch.device) -> float:
        """Write the file (`size` bytes) if there is room. Returns how long that took, s. A trial goes on without the file."""
        started = time.perf_counter()
        try:
            tensors = _keepable(built.model, device)
            make_private(self._folder)
            make_room(self._folder, size)
            about = {"structure": json.dumps(structure(built.model)), "sums": json.dumps(_sums(tensors)), "drawn_s": str(built.drawn_s)}
            everything = {**tensors, **_generators(device)}
            atomic_file(path, lambda temporary: save_file(everything, temporary, about))
        except (NotTheSame, SafetensorError, OSError, RuntimeError, ValueError) as error:
            self._say(f"weights: drawn in {built.drawn_s:.1f} s and not kept: {_line(error)}")
            return time.perf_counter() - started
        kept_s = time.perf_counter() - started
        self._say(f"weights: drawn in {built.drawn_s:.1f} s; written in {kept_s:.1f} s for later trials ({size / 2**30:.2f} GiB)")
        return kept_s

    def _read(self, path: Path, draw: Draw, seed: int, device: torch.device) -> Built:
        """The model with the file's values. Raises Damaged, NotTheSame, and what reading and building raise."""
        started = time.perf_counter()
        with safe_open(path, framework="pt", device=str(device)) as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
        if device.type == "cpu":
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # from the mapped file into memory aligned as torch's
        cpu_state, device_state = tensors.pop(_CPU_STATE), tensors.pop(_DEVICE_STATE, None)
        if _sums(tensors) != json.loads(about["sums"]):
            raise Damaged("its values have other sums")
        model = without_values(draw, seed, device)
        if structure(model) != json.loads(about["structure"]):
            raise NotTheSame("it has other tensors")
        _fill(model, tensors)
        if _tensors_without_values() and (gc.collect() or _tensors_without_values()):
            raise NotTheSame("it has tensors that are neither parameters nor buffers")
        torch.set_rng_state(cpu_state.cpu())
        if device_state is not None:
            torch.cuda.set_rng_state(device_state.cpu(), device)
        path.touch()  # it was used
        built = Built(model, float(about["drawn_s"]), time.perf_counter() - started)
        self._say(f"weights: read in {built.read_s:.1f} s, as an earlier trial drew them in {built.drawn_s:.1f} s")
        return built


def drawn(draw: Draw, seed: int, place: torch.device | None) -> Built:
    """The model that `draw` makes from `seed` on `place` (None: the CPU). Raises what it raises."""
    started = time.perf_counter()
    torch.manual_seed(seed)
    with nullcontext() if place is None else place:
        model = draw()
    if place is not None and place.type == "cuda":
        torch.cuda.synchronize(place)
    return Built(model, time.perf_counter() - started)


def without_values(draw: Draw, seed: int, device: torch.device) -> torch.nn.Module:
    """The model that `draw` makes, on the meta device. Raises NotTheSame if it used random numbers elsewhere, and what `draw` raises."""
    torch.manual_seed(seed)
    before = _generators(device)
    with torch.device("meta"):
        model = draw()
    if any(not torch.equal(state, before[name]) for name, state in _generators(device).items()):
        raise NotTheSame("it draws random numbers on a device that it names")
    return model


def make_room(folder: Path, size: int, limit: int = LIMIT_BYTES) -> None:
    """Remove the files used longest ago until `size` bytes more are within the limit. Raises OSError if that or the disk is too small."""
    free = shutil.disk_usage(folder).free
    if size > limit or 2 * size > free:
        raise OSError(f"{size / 2**30:.2f} GiB, of {limit / 2**30:.0f} GiB for all, and {free / 2**30:.2f} GiB are free on the disk")
    files = sorted(((file.stat(), file) for file in folder.iterdir()), key=lambda entry: entry[0].st_mtime)
    total = sum(about.st_size for about, _ in files) + size
    for about, file in files:
        if total <= limit:
            return
        file.unlink(missing_ok=True)
        total -= about.st_size


def structure(model: torch.nn.Module) -> dict[str, list[Any]]:
    """Each tensor of a model by name: the first name of the same tensor, its kind, type, shape, and whether it gets a gradient."""
    first: dict[int, str] = {}
    return {
        name: [first.setdefault(id(tensor), name), type(tensor).__name__, str(tensor.dtype), list(tensor.shape), tensor.requires_grad]
        for name, tensor in _named(model)
    }


def _named(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """All parameters and buffers, also those that a state_dict leaves out, under all of their names."""
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def _keepable(model: torch.nn.Module, device: torch.device) -> dict[str, torch.Tensor]:
    """Each tensor once, by its first name. Raises NotTheSame if a file could not give one back as it is."""
    tensors: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in _named(model):
        tensors.setdefault(id(tensor), (name, tensor))
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise NotTheSame(f"{name} is a {type(tensor).__name__}")
        if tensor.device.type != device.type or not tensor.is_contiguous():
            raise NotTheSame(f"{name} is on {tensor.device}, with strides {tensor.stride()}")
        if tensor._backward_hooks:
            raise NotTheSame(f"{name} has hooks")
    return {name: tensor.detach() for name, tensor in tensors.values()}


def _sums(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Of each tensor the sum of its 64-bit words, or of its bytes where they are no whole words, modulo 2^64. One wrong bit changes it."""
    sums = {}
    for name, tensor in tensors.items():
        data = tensor.reshape(-1).view(torch.uint8)
        sums[name] = (data.view(torch.int64) if data.numel() % 8 == 0 else data).sum(dtype=torch.int64)
    return {name: int(value) for name, value in sums.items()}


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    """The states of the generators that models are drawn with."""
    states = {_CPU_STATE: torch.get_rng_state()}
    return states | {_DEVICE_STATE: torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def _fill(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put `tensors`, by first name, in the place of the model's own. What is one tensor under two names stays one."""
    values: dict[int, torch.Tensor] = {}
    for name, empty in _named(model):
        if id(empty) not in values:
            tensor, parameter = tensors[name], isinstance(empty, torch.nn.Parameter)
            values[id(empty)] = torch.nn.Parameter(tensor, empty.requires_grad) if parameter else tensor
            vars(values[id(empty)]).update(vars(empty))
    for module in model.modules():
        for place in (module._parameters, module._buffers):
            for name, old in place.items():
                if old is not None:
                    place[name] = values[id(old)]  # type: ignore[assignment]  # a parameter for a parameter


def _tensors_without_values() -> bool:
    """Whether a tensor on the meta device is there, in whatever object."""
    return any(issubclass(type(each), torch.Tensor) and each.device.type == "meta" for each in gc.get_objects())


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n", 1)[0][:200]
