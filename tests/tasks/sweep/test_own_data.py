"""The user's own data in a plan: looked at before anything starts, guesses in the trials' parameters, made ready once."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from experiments import workloads
from experiments.config.paths import runs_root
from experiments.trial import Trial
from tasks.sweep.dataset import DatasetError, resolve
from tasks.sweep.own_data import Folders, is_local, is_made, make_ready
from tasks.sweep.plan import make_plan, renew
from tasks.sweep.store import Request
from tests.own_data_support import captioned, classes, pairs, parquet, save_dict

ONLY = {"model": ["tiny"], "precision": ["fp32"], "dataloader_workers": [0, 1]}


def plan_of(folder: Path, suite: str = "bridgetower", said: list[str] | None = None, **sets: object) -> list[Trial]:
    only = {"bridgetower": ONLY}.get(suite, {})
    request = Request(suite=suite, profile="smoke", set={"dataset": str(folder), **sets}, only=only, repeats=1)
    return make_plan(request, say=(said if said is not None else []).append)[0].trials


def test_a_guess_is_a_parameter_of_the_trials_and_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    trials = plan_of(captioned(tmp_path / "d", 60), said=said)
    assert len(trials) == 2 and {trial.parameters["caption_column"] for trial in trials} == {"text"}
    assert said == [
        f"data set {tmp_path}/d: caption column: text, the only column of texts (--set caption_column=text)",
        f"data set {tmp_path}/d: held-out rows: 16 of 60 rows are cut off, always the same; 44 are left to train on",
        f"data set {tmp_path}/d: tokenizer: trained on the training rows' text, at most 1024 tokens (--set tokenizer=FOLDER takes another)",
    ]
    told = plan_of(tmp_path / "d", caption_column="text")
    assert told[0].data == trials[0].data and told[0].parameters == trials[0].parameters


def test_the_key_of_a_trial_changes_with_the_files_and_with_the_cut(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 60)
    first = plan_of(folder)[0]
    assert plan_of(folder)[0].key_parts["data"] == first.key_parts["data"]
    assert first.data is not None and first.key_parts["data"] == first.data.fingerprint
    os.utime(folder / "003.png", ns=(1, 1))
    assert plan_of(folder)[0].key_parts["data"] != first.key_parts["data"]


def test_files_that_can_be_read_as_they_are_keep_the_key_that_they_had(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "d", train=pairs(40), validation=pairs(16))
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    (trial, _) = plan_of(folder, tokenizer=str(tmp_path / "tokenizer"))
    assert trial.data == resolve({"dataset": str(folder)}) and not is_made(trial.data)
    make_ready(trial)
    assert not (runs_root() / "data").exists()


def test_a_set_is_made_once_under_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.datasets.own import prepare as preparing

    (trial, other) = plan_of(captioned(tmp_path / "d", 60))
    assert is_made(trial.data) and trial.data == other.data and trial.data is not None
    made, real = list[Path](), preparing.prepare

    def prepare(directory: Path, *rest: object) -> None:
        with pytest.raises(TimeoutError):
            FileLock(directory.with_suffix(".lock")).acquire(timeout=0)
        made.append(directory)
        real(directory, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(preparing, "prepare", prepare)
    make_ready(trial)
    make_ready(other)
    assert made == [Path(trial.data.uri)] and Path(trial.data.uri).parent == runs_root() / "data"
    assert pq.read_metadata(made[0] / "train.parquet").num_rows == 44
    assert trial.data.tokenizer == f"{made[0]}/tokenizer" and (made[0] / "tokenizer" / "tokenizer.json").is_file()


def test_files_that_changed_since_the_plan_are_not_made_into_its_set(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 60)
    plan, _ = make_plan(Request(suite="bridgetower", profile="smoke", set={"dataset": str(folder)}, only=ONLY, repeats=1))
    os.utime(folder / "003.png", ns=(1, 1))
    with pytest.raises(DatasetError, match=r"/d has changed since the sweep was planned: `sweep resume` takes what is there"):
        make_ready(plan.trials[0])
    again = renew(plan)
    assert again.trials[0].data != plan.trials[0].data and [entry.why[:12] for entry in again.superseded] == ["data changed"] * 2
    make_ready(again.trials[0])


def test_everything_that_is_missing_ends_the_plan_with_what_to_give(tmp_path: Path) -> None:
    folder = classes(tmp_path / "my pictures", 12)
    with pytest.raises(DatasetError) as caught:
        plan_of(folder)
    assert str(caught.value).splitlines() == [
        f"dataset {folder}, as workload bridgetower reads it, lacks:",
        "  caption column: there is no column 'image_description'; columns: image, label "
        "(--set caption_column=NAME, of a column that holds this)",
        "  training rows: 6 are fewer than a batch of 16 on 1 device; give more rows (--set batch_size=6)",
        "  held-out rows: 6 are fewer than one evaluation batch of 16; give more rows (--set evaluation_batch_size=6)",
        f"`sweep data check '{folder}' --workload bridgetower` shows what is there",
    ]


def test_images_that_cannot_be_decoded_are_missing_too(tmp_path: Path) -> None:
    folder = captioned(tmp_path / "d", 60)
    for row in range(4):
        (folder / f"{row:03}.png").write_bytes(b"no image")
    with pytest.raises(DatasetError, match=r"images: 4 of the first 16 cannot be decoded, such as 000\.png: not an image in"):
        plan_of(folder)
    (folder / "003.png").write_bytes((folder / "005.png").read_bytes())
    assert plan_of(folder), "a few are left out by the trial"


def test_classes_are_read_by_vit(tmp_path: Path) -> None:
    trials = plan_of(classes(tmp_path / "d", 60), suite="vit")
    assert {trial.data for trial in trials} == {trials[0].data} and is_made(trials[0].data)
    assert trials[0].data is not None and trials[0].data.tokenizer is None
    make_ready(trials[0])
    assert (Path(trials[0].data.uri) / "validation.parquet").is_file()


def test_a_split_that_was_guessed_is_made_under_its_name(tmp_path: Path) -> None:
    (trial, _) = plan_of(save_dict(tmp_path / "d", train=pairs(40), test=pairs(16)))
    assert trial.parameters["validation_split"] == "test" and trial.data is not None
    make_ready(trial)
    assert pq.read_metadata(Path(trial.data.uri) / "test.parquet").num_rows == 16


def test_vit_without_a_data_set_has_none() -> None:
    request = Request(suite="vit", profile="smoke", repeats=1)
    assert {trial.data for trial in make_plan(request)[0].trials} == {None}


def test_a_remote_set_is_read_as_it_is_and_needs_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"hf://datasets/a/b@{'0' * 40}/c"
    with pytest.raises(
        DatasetError, match=r"/c: give --set tokenizer=FOLDER, with a tokenizer\.json; one is trained on a local folder only"
    ):
        plan_of(Path("x"), dataset=place)
    trial = plan_of(Path("x"), dataset=place, tokenizer="/some/where")[0]
    assert trial.data == resolve({"dataset": place})
    assert [is_local(name) for name in ("d", "/d", "file:///d", "s3://b/d", place)] == [True, True, True, False, False]


def test_a_folder_is_listed_once_for_all_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.datasets.own import recognise

    looked: list[Path] = []
    real = recognise.recognise
    monkeypatch.setattr(recognise, "recognise", lambda folder, named: looked.append(folder) or real(folder, named))
    folders = Folders()
    base = plan_of(captioned(tmp_path / "d", 200))[0].parameters
    looked.clear()
    sources = {folders.settle("bridgetower", {**base, "batch_size": size, "precision": "bf16"}).source for size in (2, 4, 8)}
    assert len(sources) == 1 and looked == [tmp_path / "d"]


def test_a_workload_is_looked_for_once_for_all_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    load = workloads.load
    monkeypatch.setattr(workloads, "load", lambda name: looked.append(name) or load(name))
    folders = Folders()
    for name in ("synthetic", "canary", "synthetic", "canary"):
        folders.settle(name, load(name).Parameters().model_dump())
    assert looked == ["synthetic", "canary"]


def test_a_set_made_elsewhere_is_not_taken_for_ours(tmp_path: Path) -> None:
    source = plan_of(captioned(tmp_path / "d", 60))[0].data
    assert source is not None
    assert not is_made(source.model_copy(update={"uri": str(tmp_path / "own-1")})) and not is_made(None)


def test_a_disk_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.datasets.own import prepare as preparing

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(preparing, "prepare", full)
    (trial, _) = plan_of(captioned(tmp_path / "d", 60))
    with pytest.raises(DatasetError, match=r"own-[0-9a-f]{16} cannot be written: No space left on device"):
        make_ready(trial)
