"""What a template process imports, so that trials forked from it need not, and when it may no longer be forked from."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import NoReturn

from cluster.worker.torch_internals import compute_cache_keys
from experiments.components import flop_count

BASE = ("cluster.worker.trial_session", "cluster.worker.ray_train", "ray.train.torch")
# What every trial comes to import: for its optimizer, Ray Train's context and its figures. Here that is done while the flow starts; else
# the first trial does it while it is waited for, and the template again after it
EVERY_TRIAL = ("torch._dynamo", "scipy.optimize", "ray.tune")
# Not imported in the template, by name: they ask for a device, are an entry point, or belong to one process
_NOT_HERE = (
    "torch._inductor.compile_worker.__main__",
    "torchao",
    "__main__",
    "__mp_main__",
    "multiprocessing.resource_tracker",
)


_half_imported: dict[str, str] = {}  # module -> what went wrong
_asked: list[str] = []  # the packages that asked for a device while they were imported here, once for each time
# Modules that are left to the trials: another template had imported them half-way, or here they were refused what they asked for. Each
# trial tells that it had to import the latter, so that they are wanted again: of Stable Diffusion 180, which took 0.65 s after every trial
_left_out: set[str] = set()
# Packages that nothing imports here, not even another import: they are refused to it as a device is. By their names, as most importers find
# out by those whether they are there. bitsandbytes goes on without a device
_refused: set[str] = {"bitsandbytes"}


def import_modules(names: Iterable[str]) -> None:
    """Import modules that are not yet there, with no device to be had. One that cannot be imported here is left to the trials.

    `names`: in the order in which a trial first came to them. In another one a package whose modules import each other can fail half-way.
    Then some of its modules are there and hold on to others that are made anew by the next import: of inductor's matrix products those of
    mm were known to it and those of bmm were not. No trial may have such a package; see `spoiled`. A module that fails since it asks for a
    device is no such case: the trial imports it anew, and what it had imported is whole, unless that imports it in turn, which nothing here
    looks for. One that goes on without a device is: bitsandbytes would load its library for CPUs, and no trial forked with it could use its
    GPU. So such a package is refused, and what imports it fails and is imported anew by the trial, at once: left out by name alone, it
    would come with the next module that imports it.
    """
    wanted = [name for name in names if name not in sys.modules and _is_for_here(name)]
    gc.disable()  # imports make no garbage, and collections that look for some take a sixth of their time
    with _no_device(), _refusal():
        for name in wanted:
            _import(name)
        compute_cache_keys()  # each trial would read thousands of files for them; computed once, they are not computed again
    gc.freeze()  # a collection in a forked process must not write to, and so copy, what it shares with the template
    gc.enable()


def _is_for_here(name: str) -> bool:
    return name not in _left_out and _package(name) not in _refused and not name.startswith(_NOT_HERE)


def _import(name: str) -> None:
    before, first = set(sys.modules), len(_asked)
    refused = False
    try:
        importlib.import_module(name)
    except Exception as error:
        refused = _was_refused_a_device(error)
        if refused:
            _left_out.add(name)
        if not refused and any(_package(each) == _package(name) for each in sys.modules.keys() - before):
            _half_imported[name] = f"{name} was imported half-way ({type(error).__name__}: {error})"
    went_on = set(_asked[first:-1] if refused else _asked[first:])
    if went_on:
        new = {each for each in sys.modules.keys() - before if _package(each) in went_on}
        _half_imported.update(dict.fromkeys(sorted({name, *new}), f"{name} was imported without the device that it asked for"))


def _package(name: str) -> str:
    return name.partition(".")[0]


def leave_out(names: Iterable[str]) -> None:
    """Import none of these modules in this process: each trial imports them itself. A whole package is refused to what imports it, too: a
    part is not, since its package may be imported half-way without it."""
    for name in names:
        (_refused if name == _package(name) else _left_out).add(name)


def half_imported() -> list[str]:
    """The modules whose imports failed half-way in this process."""
    return list(_half_imported)


class Lesson:
    """What this process imports, and of which models it counts FLOPs, from now on: for the template to learn."""

    def __init__(self) -> None:
        self._before, self._counts, self._began = set(sys.modules), flop_count.known_counts(), _Began()
        sys.meta_path.insert(0, self._began)

    @property
    def modules(self) -> list[str]:
        """Those that are there by now, in the order in which their imports began. sys.modules has the one in which they ended."""
        return [name for name in list(self._began.names) if name in sys.modules and name not in self._before]

    @property
    def counts(self) -> dict[str, flop_count.Counted]:
        return {name: count for name, count in flop_count.known_counts().items() if name not in self._counts}


class _Began(MetaPathFinder):
    """Finds nothing, and knows which modules were looked for, in that order."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        self.names.pop(fullname, None)  # before, somebody may have asked whether it is there, without importing it
        self.names[fullname] = None


class DeviceRefused(RuntimeError):
    """An import asked for a device, or for a package that would."""


def _was_refused_a_device(error: BaseException | None) -> bool:
    """Whether that is the error, or what it came from."""
    while error is not None and not isinstance(error, DeviceRefused):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def _no_device() -> Iterator[None]:
    """Let no import initialise CUDA: a process forked after that cannot use it."""
    import torch.cuda

    def refuse() -> NoReturn:
        _asked.append(_asking_package())
        raise DeviceRefused("the template process opens no device")

    before = torch.cuda._lazy_init
    torch.cuda._lazy_init = refuse
    try:
        yield
    finally:
        torch.cuda._lazy_init = before


class _Refuses(MetaPathFinder):
    """Finds the packages that are refused, where they are installed: who only asks for them learns that they are there."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname not in _refused:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((spec for finder in others if (spec := finder.find_spec(fullname, path, target)) is not None), None)
        if spec is not None:
            spec.loader = _RefusingLoader()
        return spec


class _RefusingLoader(Loader):
    def exec_module(self, module: ModuleType) -> NoReturn:
        _asked.append(_asking_package())
        raise DeviceRefused(f"the template process does not import {module.__name__}, which would ask for a device")


@contextmanager
def _refusal() -> Iterator[None]:
    """Let nothing import what is refused."""
    finder = _Refuses()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _asking_package() -> str:
    """The package that has called torch or imports, by the innermost frame that is of neither."""
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(sys._getframe(2)))
    return next((name for name in map(_package, frames) if name not in ("torch", "importlib")), "torch")


def spoiled() -> str | None:
    """Why no trial may be forked from this process any more; None if one may."""
    import torch.cuda

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "an import has initialised CUDA"
    if threading.active_count() > 1:
        return f"an import has started a thread ({threading.enumerate()[-1].name})"
    return next(iter(_half_imported.values()), None)
