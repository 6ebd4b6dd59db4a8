"""What a template imports, in which order, and that no trial is forked from one that has half a package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str, *arguments: str, path: Path | None = None) -> list[str]:
    """The lines that a fresh Python prints."""
    environment = (
        os.environ if path is None else {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, timeout=300, env={**environment}
    )
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


def test_a_module_that_is_not_there_or_asks_for_a_device_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "asks_for_a_device.py").write_text("import sched\nimport torch.cuda\ntorch.cuda._lazy_init()\n")
    code = """
import sys
from cluster.worker.template_imports import import_modules, spoiled
import_modules(["asks_for_a_device", "made_by_a_trial.kernel"])
print("sched" in sys.modules, spoiled())
"""
    assert run(code, path=tmp_path) == ["True None"]


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
    done = subprocess.run([sys.executable, "-c", code], input=modules, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "[True, True, True, True] None\n"
