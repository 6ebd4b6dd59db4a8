"""What a template imports, in which order, and that no trial is forked from one that has half a package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str, *arguments: str, path: Path | None = None, told: str = "") -> list[str]:
    """The lines that a fresh Python prints. `path`: a folder to import from; `told`: its standard input."""
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True, timeout=300, env=environment)
    return done.stdout.splitlines()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that trials enter by its module `entry`. As in torch's inductor, its modules import each other."""
    folder = tmp_path / "circular"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "entry.py").write_text("from circular import lowering\n")
    (folder / "lowering.py").write_text(
        "known = []\ndef register(name):\n    known.append(name)\nfrom circular import kernel_a, kernel_b\n"
    )
    (folder / "kernel_a.py").write_text("from circular.lowering import register\nregister('a')\n")
    (folder / "kernel_b.py").write_text("from circular.lowering import register\nfrom circular.codegen import Template\nregister('b')\n")
    (folder / "codegen.py").write_text("from circular import lowering\nclass Template: ...\n")
    return tmp_path


def test_a_lesson_lists_modules_in_the_order_in_which_their_imports_began(package: Path) -> None:
    code = """
from cluster.worker.template_imports import Lesson
lesson = Lesson()
import circular.entry
print(*lesson.modules)
"""
    names = [f"circular{name}" for name in ("", ".entry", ".lowering", ".kernel_a", ".kernel_b", ".codegen")]
    assert run(code, path=package) == [" ".join(names)]


@pytest.mark.parametrize(
    ("names", "known", "why"),
    [
        ("entry lowering kernel_a kernel_b codegen", "a b", "None"),
        # kernel_a was registered with a module that is gone: of what a trial would then compile it would be missing
        (
            "codegen entry kernel_a kernel_b lowering",
            "b",
            "circular.codegen was imported half-way (ImportError: cannot import name 'Template'",
        ),
    ],
    ids=["as a trial did", "by name"],
)
def test_nothing_is_forked_once_a_package_was_imported_half_way(package: Path, names: str, known: str, why: str) -> None:
    code = """
import sys
from cluster.worker.template_imports import import_modules, spoiled
import_modules([f"circular.{name}" for name in sys.argv[1].split()])
import circular.entry
print(*sys.modules["circular.lowering"].known)
print(spoiled())
"""
    found, problem = run(code, names, path=package)
    assert (found, problem[: len(why)]) == (known, why)


def test_who_asks_whether_a_module_is_there_has_not_begun_to_import_it() -> None:
    code = """
import importlib.util
from cluster.worker.template_imports import Lesson
lesson = Lesson()
importlib.util.find_spec("colorsys")
import sched, colorsys
print([name for name in lesson.modules if name in ("sched", "colorsys")])
"""
    assert run(code) == ["['sched', 'colorsys']"]


@pytest.mark.parametrize("error", ["", "    raise ImportError('no device') from error\n"], ids=["as it is", "as another error"])
def test_a_module_that_is_not_there_or_asks_for_a_device_spoils_nothing(tmp_path: Path, error: str) -> None:
    """Also after it imported others of its package: they are whole, and the trial imports it anew."""
    (tmp_path / "asks").mkdir()
    (tmp_path / "asks" / "__init__.py").touch()
    (tmp_path / "asks" / "helper.py").touch()
    ask = "import torch.cuda\ntry:\n    torch.cuda._lazy_init()\nexcept RuntimeError as error:\n"
    (tmp_path / "asks" / "for_a_device.py").write_text(f"from asks import helper\n{ask}{error or '    raise'}\n")
    code = """
import sys
from cluster.worker.template_imports import import_modules, spoiled
import_modules(["asks.for_a_device", "made_by_a_trial.kernel"])
print("asks.helper" in sys.modules, "asks.for_a_device" in sys.modules, spoiled())
"""
    assert run(code, path=tmp_path) == ["True False None"]


def test_inductor_knows_every_matrix_product_where_there_is_a_gpu() -> None:
    """There its modules import each other in another way. Those that a trial had imported were once imported by name: without a lowering
    for bmm, every trial with stock attention crashed that was compiled in a process forked then."""
    learn = """
import json
from cluster.worker.template_imports import Lesson
lesson = Lesson()
import torch._inductor.compile_fx
print(json.dumps(lesson.modules))
"""
    code = """
import json, sys
import torch
from cluster.worker.template_imports import import_modules, spoiled
torch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 1
import_modules(json.loads(sys.stdin.read()))
from torch._inductor.lowering import lowerings
aten = torch.ops.aten
print([op in lowerings for op in (aten.mm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default)], spoiled())
"""
    (modules,) = run(learn)
    assert json.loads(modules).index("torch._inductor.lowering") < json.loads(modules).index("torch._inductor.kernel.bmm")
    assert run(code, told=modules) == ["[True, True, True, True] None"]
