"""What a template imports, in which order, and that no trial is forked from one that has half a package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python_support import Forks, forks_of


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """As a template is when it begins: with the module that imports the others, and torch, which that imports."""
    with forks_of("cluster.worker.template_imports", folder=tmp_path_factory.mktemp("template")) as made:
        yield made


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


def test_a_lesson_lists_modules_in_the_order_in_which_their_imports_began(template: Forks, package: Path) -> None:
    code = """
from cluster.worker.template_imports import Lesson
lesson = Lesson()
import circular.entry
print(*lesson.modules)
"""
    names = [f"circular{name}" for name in ("", ".entry", ".lowering", ".kernel_a", ".kernel_b", ".codegen")]
    assert template.run(code, path=package) == [" ".join(names)]


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
def test_nothing_is_forked_once_a_package_was_imported_half_way(template: Forks, package: Path, names: str, known: str, why: str) -> None:
    code = """
import sys
from cluster.worker.template_imports import import_modules, spoiled
import_modules([f"circular.{name}" for name in sys.argv[1].split()])
import circular.entry
print(*sys.modules["circular.lowering"].known)
print(spoiled())
"""
    found, problem = template.run(code, names, path=package)
    assert (found, problem[: len(why)]) == (known, why)


def test_what_was_imported_half_way_is_left_out_by_the_next_template_and_whole_in_its_trial(template: Forks, package: Path) -> None:
    code = """
import sys
from cluster.worker.template_imports import half_imported, import_modules, leave_out, spoiled
leave_out(sys.argv[1].split())
import_modules([f"circular.{name}" for name in ("codegen", "entry", "kernel_a", "kernel_b", "lowering")])
print(*half_imported())
print(spoiled() is None, "circular.lowering" in sys.modules)
import circular.entry
print(*sys.modules["circular.lowering"].known)
"""
    half, first, _ = template.run(code, "", path=package)
    assert (half, first) == ("circular.codegen", "False True")
    assert template.run(code, half, path=package) == ["", "True True", "a b"]


def test_who_asks_whether_a_module_is_there_has_not_begun_to_import_it(template: Forks) -> None:
    code = """
import importlib.util
from cluster.worker.template_imports import Lesson
lesson = Lesson()
importlib.util.find_spec("colorsys")
import sched, colorsys
print([name for name in lesson.modules if name in ("sched", "colorsys")])
"""
    assert template.run(code) == ["['sched', 'colorsys']"]


@pytest.mark.parametrize("error", ["", "    raise ImportError('no device') from error\n"], ids=["as it is", "as another error"])
def test_a_module_that_is_not_there_or_asks_for_a_device_spoils_nothing(template: Forks, tmp_path: Path, error: str) -> None:
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
    assert template.run(code, path=tmp_path) == ["True False None"]


def test_what_went_on_without_the_device_it_asked_for_is_left_to_the_trials_and_the_next_template(template: Forks, tmp_path: Path) -> None:
    """As bitsandbytes does: a trial forked with it had its library for CPUs, and crashed on its GPU."""
    (tmp_path / "chooses").mkdir()
    (tmp_path / "chooses" / "__init__.py").write_text("from chooses import library\n")
    choose = "    torch.cuda.get_device_properties(0)\nexcept RuntimeError:\n    kind = 'cpu'\n"
    (tmp_path / "chooses" / "library.py").write_text(f"import torch.cuda\nkind = 'cuda'\ntry:\n{choose}")
    (tmp_path / "uses.py").write_text("import colorsys, chooses\n")
    code = """
import sys
from cluster.worker.template_imports import half_imported, import_modules, leave_out, spoiled
leave_out(sys.argv[2:])
import_modules(sys.argv[1].split())
print(*half_imported())
print(spoiled())
print("chooses" in sys.modules)
"""
    first = template.run(code, "uses chooses chooses.library", path=tmp_path)
    assert first == ["chooses chooses.library uses", "uses was imported without the device that it asked for", "True"]
    second = template.run(code, "uses chooses chooses.library", *first[0].split(), path=tmp_path)
    assert second == ["", "None", "False"]
    refused = "import torch.cuda, chooses\ntorch.cuda._lazy_init()\n"  # its own question ends the import, that of chooses did not
    (tmp_path / "asks_too.py").write_text(refused)
    assert template.run(code, "asks_too", path=tmp_path)[0] == "asks_too chooses chooses.library"


@pytest.mark.parametrize("package", ["chooses", "bitsandbytes"])
def test_what_imports_a_refused_package_is_left_to_the_trials_at_once_and_whole_there(
    template: Forks, tmp_path: Path, package: str
) -> None:
    """Not module by module, each with a template that forks nothing any more: half the trials of Stable Diffusion were fresh processes, as
    diffusers imports bitsandbytes. `package`: one that an earlier template learnt of, and the one that is known."""
    choose = "try:\n    torch.cuda.get_device_properties(0)\n    kind = 'gpu'\nexcept RuntimeError:\n    kind = 'cpu'\n"
    files = {
        package: f"import torch.cuda\n{choose}",
        "asks": f"import importlib.util\nassert importlib.util.find_spec('{package}').origin\n",
        "models/whole": "",
        "models/first": f"from models import whole\nimport {package} as chosen\n",
        "models/second": f"from models import whole, first\nimport {package} as chosen\n",
    }
    (tmp_path / "models").mkdir()
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    code = """
import sys, torch.cuda
from cluster.worker.template_imports import half_imported, import_modules, leave_out, spoiled
package = sys.argv[1]
leave_out(["chooses"])
import_modules(["models.second", "models.first", "models.whole", package, f"{package}.library", "asks"])
print(half_imported(), spoiled())
print(*(name in sys.modules for name in (package, "models.first", "models.second", "models.whole", "asks")))
whole = sys.modules["models.whole"]
torch.cuda.get_device_properties = lambda device: None
import models.first, models.second
print(models.second.chosen.kind, models.first.chosen is models.second.chosen, models.second.whole is models.first.whole is whole)
"""
    assert template.run(code, package, path=tmp_path) == ["[] None", "False False False True True", "gpu True True"]


@pytest.mark.parametrize(("asks", "tries"), [("import bitsandbytes", 1), ("torch.cuda._lazy_init()", 1), ("import not_there", 2)])
def test_what_was_refused_is_not_tried_again_after_each_trial(template: Forks, tmp_path: Path, asks: str, tries: int) -> None:
    """Each trial imports it, and so tells the template to. What is not there yet may be by the next one."""
    (tmp_path / "bitsandbytes.py").touch()
    (tmp_path / "tried.py").write_text(f"import sys, torch.cuda\nsys.argv.append('tried')\n{asks}\n")
    code = """
import sys
from cluster.worker.template_imports import import_modules, spoiled
for _ in range(2):
    import_modules(["tried"])
print(sys.argv.count("tried"), "tried" in sys.modules, spoiled())
"""
    assert template.run(code, path=tmp_path) == [f"{tries} False None"]


def test_what_goes_on_without_a_refused_package_is_left_to_the_trials_and_the_next_template(template: Forks, tmp_path: Path) -> None:
    """In a trial it would go on with it."""
    (tmp_path / "bitsandbytes.py").touch()
    (tmp_path / "goes_on.py").write_text("try:\n    import bitsandbytes\nexcept Exception:\n    bitsandbytes = None\n")
    (tmp_path / "uses.py").write_text("import goes_on\n")
    code = """
import sys
from cluster.worker.template_imports import half_imported, import_modules, leave_out, spoiled
leave_out(sys.argv[1:])
import_modules(["uses", "made_by_a_trial"])
print(*half_imported())
print(spoiled(), "goes_on" in sys.modules)
import goes_on
print(goes_on.bitsandbytes is not None)
"""
    first = template.run(code, path=tmp_path)
    assert first[:2] == ["goes_on uses", "uses was imported without the device that it asked for True"]
    assert template.run(code, *first[0].split(), path=tmp_path) == ["", "None False", "True"]


def test_a_refused_package_that_is_not_installed_is_not_found(template: Forks, tmp_path: Path) -> None:
    (tmp_path / "does_without.py").write_text("try:\n    import bitsandbytes\nexcept ModuleNotFoundError:\n    found = False\n")
    code = """
import sys
from cluster.worker.template_imports import import_modules, spoiled
before = list(sys.meta_path)
import_modules(["does_without"])
print(sys.modules["does_without"].found, spoiled(), sys.meta_path == before)
"""
    assert template.run(code, path=tmp_path) == ["False None True"]


def test_inductor_knows_every_matrix_product_where_there_is_a_gpu(template: Forks) -> None:
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
    (modules,) = template.run(learn)
    assert json.loads(modules).index("torch._inductor.lowering") < json.loads(modules).index("torch._inductor.kernel.bmm")
    assert template.run(code, told=modules) == ["[True, True, True, True] None"]


def test_a_template_with_a_thread_or_an_open_device_forks_nothing(template: Forks) -> None:
    code = """
import threading, torch
from cluster.worker.template_imports import import_modules, spoiled
print(spoiled())
event = threading.Event()
thread = threading.Thread(target=event.wait, name="pool")
thread.start()
print(spoiled())
event.set(), thread.join()
torch.cuda.is_initialized = lambda: True
print(spoiled())
"""
    assert template.run(code) == ["None", "an import has started a thread (pool)", "an import has initialised CUDA"]


def test_imports_get_no_device_and_what_fails_is_left_to_the_trials(template: Forks, tmp_path: Path) -> None:
    (tmp_path / "asks_for_a_device.py").write_text("import torch.cuda\ntorch.cuda._lazy_init()\n")
    (tmp_path / "harmless.py").write_text("")
    for name in ("torchao", "bitsandbytes"):  # they ask for one, as is known
        (tmp_path / f"{name}.py").write_text("")
    code = """
import sys
from cluster.worker.template_imports import import_modules
import_modules(["asks_for_a_device", "harmless", "torchao", "bitsandbytes"])
print(*(name in sys.modules for name in ("harmless", "asks_for_a_device", "torchao", "bitsandbytes")))
"""
    assert template.run(code, path=tmp_path) == ["True False False False"]


def test_the_compiler_is_imported_in_the_template_and_starts_nothing_there(template: Forks) -> None:
    """Its processes start with the first compilation, in the trial. Importing it there would take each compiled trial seconds."""
    code = """
import os, sys, psutil
from cluster.worker.template_imports import import_modules, spoiled
import_modules(["torch._inductor.compile_fx", "torch._inductor.async_compile", "torch._dynamo.backends.inductor"])
print("torch._inductor.async_compile" in sys.modules, spoiled(), psutil.Process().children(), flush=True)
import torch
pid = os.fork()
if pid == 0:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    print(torch.compile(lambda x: x * 2 + 1, backend="aot_eager")(torch.ones(2)).tolist(), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert template.run(code) == ["True None []", "[3.0, 3.0]", "0"]


def test_what_inductor_hashes_of_torch_is_hashed_in_the_template_and_not_in_its_trials(template: Forks) -> None:
    code = """
import os, sys
from cluster.worker.template_imports import import_modules, spoiled
import_modules([])
print("torch._inductor.codecache" in sys.modules, flush=True)
import_modules(["torch._inductor.codecache"])
from torch._inductor import codecache
def refuse(*_):
    raise AssertionError("hashed again")
codecache.build_code_hash = refuse
pid = os.fork()
if pid == 0:
    print(len(codecache.torch_key()), spoiled(), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert template.run(code) == ["False", "32 None", "0"]
