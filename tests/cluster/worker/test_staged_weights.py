"""Weights that are read equal those that would have been drawn, bit by bit, and so does all that is computed from them."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from cluster.worker import staged_weights
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from cluster.worker.staged_weights import StagedWeights, drawn, make_room, weights_key
from cluster.worker.trial_session import TrialSession
from experiments import workloads
from experiments.components.workload import Context
from experiments.parameters import NOT_OF_THE_MODEL
from experiments.trial import Trial
from tasks.sweep import dataset
from tests.contracts import make_trial

KEY = "feed000000000001"
ALWAYS = (0.0, 0)  # worth a file, however small and quick
CPU = torch.device("cpu")


class Sink:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def append(self, kind: str, t: float | None = None, **fields: Any) -> None:
        self.records.append({"kind": kind, **fields})

    def close(self) -> None: ...

    def all(self, kind: str, name: str) -> list[Any]:
        return [record[name] for record in self.records if record["kind"] == kind]


class Odd(nn.Module):
    """Tied and frozen parameters, buffers that a state_dict leaves out, a number alone, and what is not a float."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(3, 5)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)
        self.scale = nn.Parameter(torch.tensor(2.5))
        self.register_buffer("places", torch.arange(7).expand((1, -1)), persistent=False)
        self.register_buffer("mask", torch.rand(3) > 0.5)
        self.norm, self.short = nn.BatchNorm1d(2), nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.first.weight.remark = "kept"  # type: ignore[assignment]


def stage(folder: Path, draw: Callable[[], nn.Module], sink: Sink | None = None, seed: int = 7, **options: Any) -> staged_weights.Built:
    return StagedWeights(folder, KEY, Recorder(sink or Sink()), **{"worth": ALWAYS, **options}).build(draw, seed, CPU)


def file_of(folder: Path) -> Path:
    return folder / f"{KEY}.safetensors"


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(staged_weights._named(one), staged_weights._named(other), strict=True)
    equal = all(a == b and x.dtype == y.dtype and torch.equal(x, y) for (a, x), (b, y) in pairs)
    return equal and staged_weights.structure(one) == staged_weights.structure(other)


@pytest.fixture(autouse=True)
def _torch_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_model_is_read_as_it_was_drawn_and_the_generator_goes_on_as_if_it_had_been(tmp_path: Path) -> None:
    sink = Sink()
    first = stage(tmp_path / "w", Odd, sink)
    after = torch.rand(3)
    assert first.read_s is None and first.kept_s > 0 and sink.all("phase", "name") == ["keep_weights", "build"]
    torch.manual_seed(99)
    second = stage(tmp_path / "w", Odd, sink)
    assert torch.equal(torch.rand(3), after), "dropout draws what it would have drawn"
    assert second.read_s is not None and second.drawn_s == first.drawn_s and second.kept_s == 0
    assert same(first.model, second.model) and same(second.model, drawn(Odd, 7, CPU).model)
    model: Any = second.model
    assert model.second.weight is model.first.weight and model.first.weight.remark == "kept"
    assert not model.second.bias.requires_grad and model.first.bias.requires_grad and list(model.state_dict()) == list(Odd().state_dict())
    assert all(tensor.data_ptr() % 64 == 0 for tensor in model.parameters()), "aligned as torch's own, not as in the file"
    assert sink.all("note", "text")[1].startswith("weights: read in ")
    assert (tmp_path / "w").stat().st_mode & 0o077 == 0


def test_what_is_quickly_drawn_or_small_is_not_kept_and_one_rank_of_a_node_keeps(tmp_path: Path) -> None:
    for options in ({"worth": (3600.0, 0)}, {"worth": (0.0, 2**30)}, {"keeps": False}):
        assert stage(tmp_path, Odd, **options).read_s is None
    assert not list(tmp_path.iterdir())
    assert (staged_weights.WORTH_S, staged_weights.WORTH_BYTES) == (1.0, 64 * 2**20)


@pytest.mark.parametrize(("modules", "took", "kept"), [(21, 29.9, False), (21, 30.0, True), (20, 1.0, True), (20, 0.99, False)])
def test_imports_are_not_taken_for_drawing(modules: int, took: float, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process that imports the model's modules while it draws, only a drawing that is long beside any import is worth a file."""
    now = [0.0]
    monkeypatch.setattr(staged_weights.time, "perf_counter", lambda: now[0])

    def importing() -> torch.nn.Module:
        now[0] += took
        for index in range(modules):
            monkeypatch.setitem(sys.modules, f"imported_{index}", sys)
        return torch.nn.Linear(4, 4)

    StagedWeights(tmp_path, KEY, Recorder(Sink()), worth=(1.0, 0)).build(importing, 1, CPU)
    assert (tmp_path / f"{KEY}.safetensors").exists() is kept


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _header(path: Path) -> None:
    path.write_bytes(b"\xff" * 16 + path.read_bytes()[16:])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def _no_metadata(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path)


@pytest.mark.parametrize("damage", [_cut, _header, _empty, _bit, _no_metadata])
def test_a_damaged_file_is_removed_and_the_weights_drawn_and_kept_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    first, sink = stage(tmp_path, Odd), Sink()
    damage(file_of(tmp_path))
    again = stage(tmp_path, Odd, sink)
    told, kept = sink.all("note", "text")
    assert f"{KEY}.safetensors is damaged and was removed" in told and "drawn again" in told and "written in" in kept
    assert again.read_s is None and same(again.model, first.model)
    assert stage(tmp_path, Odd).read_s is not None


@pytest.mark.parametrize("step", ["write", "room"])
def test_a_full_disk_costs_the_file_and_not_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    fired: list[str] = []

    def full(*given: Any) -> Any:
        fired.append(step)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(staged_weights, *(("save_file", full) if step == "write" else ("make_room", full)))
    sink = Sink()
    built = stage(tmp_path, Odd, sink)
    assert fired and built.read_s is None and same(built.model, drawn(Odd, 7, CPU).model)
    assert "not kept: OSError" in sink.all("note", "text")[0] and "No space left" in sink.all("note", "text")[0]
    assert not list(tmp_path.iterdir()), "nothing half written stays"


def test_the_files_used_longest_ago_make_room(tmp_path: Path) -> None:
    for place, name in enumerate(("old", "older", "new")):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 - 500 * (place == 1) + 500 * (place == 2),) * 2)
    make_room(tmp_path, 100, limit=400)
    assert len(list(tmp_path.iterdir())) == 3, "exactly the limit"
    make_room(tmp_path, 101, limit=400)
    assert {path.name for path in tmp_path.iterdir()} == {"old", "new"}
    with pytest.raises(OSError, match="of 0 GiB for all"):
        make_room(tmp_path, 401, limit=400)


class Secret(nn.Module):
    """Keeps a tensor where nobody looks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.beside = nn.Linear(2, 2), [torch.randn(2)]


class Named(nn.Module):
    """Draws on a device that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.share = nn.Linear(2, 2), torch.rand(1, device="cpu")


class Reads(nn.Module):
    """Decides by a value that it draws."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 3 if torch.rand(1).item() < 2 else 4)


@pytest.mark.parametrize("kind", [Secret, Named, Reads])
def test_a_model_that_is_another_without_values_is_always_drawn(tmp_path: Path, kind: type[nn.Module]) -> None:
    first = stage(tmp_path, kind)
    sink = Sink()
    second = stage(tmp_path, kind, sink)
    assert second.read_s is None and same(first.model, second.model)
    assert "from now on always" in sink.all("note", "text")[0]
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.refused"]
    assert stage(tmp_path, kind, sink).read_s is None and len(sink.all("note", "text")) == 1


def test_a_model_with_other_tensors_than_the_file_is_drawn(tmp_path: Path) -> None:
    stage(tmp_path, lambda: nn.Linear(2, 3))
    sink = Sink()
    built = stage(tmp_path, lambda: nn.Linear(2, 4), sink)
    assert built.read_s is None and "NotTheSame: it has other tensors" in sink.all("note", "text")[0]


def test_tensors_that_a_file_would_change_are_not_kept(tmp_path: Path) -> None:
    def transposed() -> nn.Module:
        model = nn.Linear(2, 3)
        model.weight = nn.Parameter(torch.randn(2, 3).T)
        return model

    def hooked() -> nn.Module:
        model = nn.Linear(2, 3)
        model.weight.register_hook(lambda gradient: gradient)
        return model

    for draw, why in ((transposed, "strides"), (hooked, "has hooks")):
        sink = Sink()
        stage(tmp_path, draw, sink)
        assert "not kept: NotTheSame: weight" in sink.all("note", "text")[0] and why in sink.all("note", "text")[0]
    assert not list(tmp_path.iterdir())


def test_one_wrong_bit_changes_a_sum_and_so_does_a_byte_beyond_whole_words() -> None:
    data = torch.arange(5, dtype=torch.float32)
    other = data.clone()
    other.view(torch.uint8)[19] ^= 128
    assert staged_weights._sums({"a": data}) != staged_weights._sums({"a": other})
    assert staged_weights._sums({"a": torch.tensor([1, 2**62]), "b": torch.tensor(3.0), "c": torch.zeros(0)}) == {
        "a": 2**62 + 1,
        "b": int.from_bytes(b"\x40") + int.from_bytes(b"\x40"),
        "c": 0,
    }


def _keyed(folder: Path, workload: str = "synthetic", **parameters: Any) -> Trial:
    trial = make_trial(folder, "aaaa00000000000f", workload, **parameters)
    return trial.model_copy(update={"key_parts": {"code": "c0de"}, "data": dataset.resolve(trial.parameters)})


def _key(trial: Trial, device: str = "cpu", **facts: Any) -> str | None:
    parameters = workloads.load(trial.workload).Parameters.model_validate(trial.parameters)
    return weights_key(trial, parameters, torch.device(device), {"torch": "2.13", "device_name": "a", "threads": 1, **facts})


def test_the_key_has_all_that_weights_depend_on_and_nothing_of_the_loop(tmp_path: Path) -> None:
    usual = _key(_keyed(tmp_path))
    assert usual and usual == _key(_keyed(tmp_path, steps=9, batch_size=2, learning_rate=0.5, compile="layer", dataloader_workers=1))
    other = [_keyed(tmp_path, seed=1), _keyed(tmp_path, width=9), _keyed(tmp_path, precision="bf16"), _keyed(tmp_path, threads=2)]
    other.append(_keyed(tmp_path).model_copy(update={"key_parts": {"code": "d0de"}}))
    keys = [_key(trial) for trial in other]
    keys += [_key(_keyed(tmp_path), **{name: "b"}) for name in ("torch", "transformers", "device_name", "cpu", "threads", "python")]
    keys.append(_key(_keyed(tmp_path), "cuda"))
    assert None not in keys and len({usual, *keys}) == 1 + len(keys)
    assert _key(_keyed(tmp_path, build_on="host"), "cuda") == _key(_keyed(tmp_path, build_on="host")), "the CPU draws both"


def test_no_key_where_weights_are_read_anyway_or_it_is_unknown_what_draws_them(tmp_path: Path) -> None:
    assert _key(_keyed(tmp_path, "bridgetower", weights="/some/folder")) is None
    assert _key(_keyed(tmp_path, "bridgetower")) is not None
    assert _key(make_trial(tmp_path, "aaaa00000000000f")) is None
    assert _key(_keyed(tmp_path), "hpu") is None and _key(_keyed(tmp_path, build_on="host"), "hpu") is not None


MODELS = {
    **{name: {"drawn_rows": 64} for name in ("bert", "bert_inference", "bridgetower", "bridgetower_inference", "clip", "flava", "t5")},
    **{name: {"drawn_rows": 64, "sequence_length": 32} for name in ("causal_lm", "causal_lm_inference")},
    **{"t5_inference": {"drawn_rows": 64}, "stable_diffusion": {}, "vit": {}, "linear_layer": {}, "canary": {}, "synthetic": {}},
}


@pytest.mark.parametrize("name", MODELS)
def test_every_workload_can_be_read_and_no_model_reads_a_parameter_of_the_loop(name: str, tmp_path: Path) -> None:
    module, seen = workloads.load(name), set[str]()

    class Watched(module.Parameters):  # type: ignore[name-defined, misc]
        def __getattribute__(self, attribute: str) -> Any:
            seen.add(attribute)
            return super().__getattribute__(attribute)

    parameters = Watched(**MODELS[name])
    values = parameters.model_dump(mode="json")
    dataset.build(values)
    workload = module.build(Context(parameters, dataset.resolve(values), "cpu", 0, 1, 2))
    seen.clear()
    first = stage(tmp_path / "w", workload.model, seed=parameters.seed)
    assert not seen & (NOT_OF_THE_MODEL - {"parallel"}), "parallel: FLAVA says something of it"
    second = stage(tmp_path / "w", workload.model, seed=parameters.seed)
    assert second.read_s is not None and same(first.model, second.model)


@pytest.mark.parametrize(
    ("name", "more"), [("bert", {"dropout": 0.1}), ("vit", {}), ("clip", {"zero_layer_scale": True}), ("bridgetower", {"dropout": 0.1})]
)
def test_a_trial_that_reads_its_weights_has_the_losses_of_one_that_draws(
    name: str, more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_rows = {} if name == "vit" else {"drawn_rows": 64}
    known = {key: value for key, value in more.items() if key in workloads.load(name).Parameters.model_fields}
    trial = _keyed(tmp_path, name, steps=3, warmup_steps=1, batch_size=2, threads=1, **drawn_rows, **known)
    dataset.build(trial.parameters)
    monkeypatch.setattr(staged_weights, "WORTH_S", 0.0)

    def losses() -> tuple[list[float], dict[str, Any]]:
        sink = Sink()
        TrialSession(trial, Ranks(), Recorder(sink), tmp_path).run()
        environment = [record for record in sink.records if record["kind"] == "environment"][-1]
        return sink.all("step", "loss"), {**sink.records[-1], "weights": environment.get("weights")}

    usual, _ = losses()
    monkeypatch.setenv("SWEEPBENCH_KEPT", str(tmp_path / "kept"))
    monkeypatch.setattr(StagedWeights.__init__, "__kwdefaults__", {"keeps": True, "worth": ALWAYS})
    drawing, _ = losses()
    assert len(list((tmp_path / "kept" / ".weights").glob("*.safetensors"))) == 1
    reading, window = losses()
    assert len(usual) == 4 and usual == drawing == reading
    assert window["weights"] == "staged" and window["weights_read_s"] > 0 and json.dumps(window)
