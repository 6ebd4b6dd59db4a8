"""What `sweep export` writes: each form read again, and each row saying what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from experiments.config.errors import ConfigError
from experiments.trial import Outcome
from tasks.analysis.results import load_sweep
from tasks.export.write import ExportError, Format, _csv, export_sweep
from tasks.sweep.store import SweepStore
from tests.tasks.fake_sweep import Fake, make_sweep

STEPS = 60
ROOT = Path(__file__).resolve().parents[3]


def axes(count: int) -> dict[str, Any]:
    return {"pool": "cpu", "model": "tiny", "dataloader_workers": count}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells with two repeats, one that did not fit, one on an emulated device."""
    fakes = [
        Fake(axes(0), rate=100, repeats=2, environment={"cpu": "Made-up", "cores": 4}),
        Fake(axes(1), rate=150, repeats=2, parameters={"precision": "fp8_simulated"}),
        Fake(axes(2), outcome=Outcome.DOES_NOT_FIT, reason="out of memory on box"),
        Fake(axes(3), rate=500, emulated=True),
    ]
    return make_sweep(tmp_path_factory.mktemp("runs"), fakes)


def tables(folder: Path, form: str) -> dict[str, pd.DataFrame]:
    read = pd.read_csv if form == "csv" else pd.read_parquet
    return {path.stem: read(path) for path in folder.glob(f"*.{form}")}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_tables_are_whole_and_each_row_says_what_it_is(sweep: Path, tmp_path: Path, form: str) -> None:
    files, damage = export_sweep(sweep, form, tmp_path / "out")
    assert [path.name for path in files] == [f"cells.{form}", f"trials.{form}", f"steps.{form}"] and damage == []
    found = tables(tmp_path / "out", form)
    cells, trials, steps = found["cells"], found["trials"], found["steps"]
    assert cells["axis.dataloader_workers"].tolist() == [0, 1, 2, 3] and cells["emulated"].tolist() == [False, False, False, True]
    assert cells["simulated"].isna().tolist() == [True, False, True, True] and cells["simulated"][1] == "precision: fp8_simulated"
    assert cells["outcome"].tolist() == ["ok", "ok", "does_not_fit", "ok"]
    assert trials.groupby("emulated").size().to_dict() == {False: 5, True: 1}
    assert trials["simulated"].notna().sum() == 2
    assert steps.groupby("emulated").size().to_dict() == {False: 4 * STEPS, True: STEPS}
    assert steps["simulated"].notna().sum() == 2 * STEPS
    assert set(steps["trial_key"]) == set(trials.loc[trials["outcome"] == "ok", "trial_key"])


def test_numbers_are_those_of_the_sweep_to_the_last_bit(sweep: Path, tmp_path: Path) -> None:
    export_sweep(sweep, "csv", tmp_path / "csv")
    export_sweep(sweep, "parquet", tmp_path / "parquet")
    rates = [row.summary.get("throughput") for row in load_sweep(sweep).rows]
    for form in ("csv", "parquet"):
        found = tables(tmp_path / form, form)["trials"]["throughput"]
        assert [None if pd.isna(value) else value for value in found] == rates


def test_no_host_is_named(sweep: Path, tmp_path: Path) -> None:
    export_sweep(sweep, "parquet", tmp_path)
    trials = tables(tmp_path, "parquet")["trials"]
    assert "env.host" not in trials and trials["env.host_id"].tolist() == ["0123456789ab"] * 6
    assert trials["reason"].dropna().tolist() == ["out of memory on host 0123456789ab"]


def test_of_a_host_only_sentences_are_freed_and_there_only_as_a_word(tmp_path: Path) -> None:
    """A model, an axis or another word may be called as the host is."""
    host = {"host": "base", "host_id": "0123456789ab"}
    reason = "lost base (base:22), not base-2, database or base.py"
    fakes = [Fake({"pool": "cpu", "model": "base", "dataloader_workers": 0}, outcome=Outcome.CRASHED, reason=reason, environment=host)]
    export_sweep(make_sweep(tmp_path / "runs", fakes), "parquet", tmp_path / "out")
    [row] = tables(tmp_path / "out", "parquet")["trials"].to_dict("records")
    assert row["axis.model"] == "base" and "base" in row["name"]
    assert row["reason"] == "lost host 0123456789ab (host 0123456789ab:22), not base-2, database or host 0123456789ab.py"


def test_whole_numbers_stay_whole_beside_a_null(tmp_path: Path) -> None:
    large = 2**53 + 1  # the first that no float is
    _csv(pa.table({"attempt": [1, None], "bytes": [large, None], "rate": [0.1, None], "on": [True, None]}))(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().splitlines() == ["attempt,bytes,rate,on", f"1,{large},0.1,True", ",,,"]


def test_a_card_of_a_sweep_without_git_names_no_commit(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "runs", [Fake(axes(0))])
    store = SweepStore(folder.name, folder.parent)
    store.save_plan(store.load_plan().model_copy(update={"git": {"commit": None, "dirty": None}}))
    export_sweep(folder, "hf", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "None" not in text and "(UTC)\n" in text


def test_a_hugging_face_folder_has_a_card_that_names_its_tables(sweep: Path, tmp_path: Path) -> None:
    files, _ = export_sweep(sweep, "hf", tmp_path)
    assert [path.name for path in files] == ["cells.parquet", "trials.parquet", "steps.parquet", "README.md"]
    _, front, body = (tmp_path / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert [(config["config_name"], config["data_files"]) for config in card["configs"]] == [
        ("cells", "cells.parquet"),
        ("trials", "trials.parquet"),
        ("steps", "steps.parquet"),
    ]
    assert [config.get("default", False) for config in card["configs"]] == [True, False, False]
    assert all(pq.read_metadata(tmp_path / config["data_files"]).num_rows for config in card["configs"])
    assert "license" not in card and "1 of 6 trials ran on an emulated device: these are no measurements" in body
    assert "Made-up CPU" in body and "`sweep run made_up --profile smoke`" in body


def test_benchmark_records_have_the_form_of_pytorchs_database(sweep: Path, tmp_path: Path) -> None:
    [path], _ = export_sweep(sweep, "pytorch-hud", tmp_path)
    records = json.loads(path.read_text())
    throughput = [record for record in records if record["metric"]["name"] == "throughput"]
    assert [len(record["metric"]["benchmark_values"]) for record in throughput] == [2, 2, 1], "what did not fit has no value"
    assert [record["benchmark"]["extra_info"]["emulated"] for record in throughput] == ["false", "false", "true"]
    assert throughput[1]["benchmark"]["extra_info"]["simulated"] == "precision: fp8_simulated"
    first = throughput[0]
    assert (first["benchmark"]["name"], first["benchmark"]["mode"], first["benchmark"]["dtype"]) == ("made_up", "training", "fp32")
    assert (first["model"]["name"], first["model"]["origins"]) == ("bridgetower tiny", ["sweepbench"])
    assert first["metric"]["benchmark_values"][0] == load_sweep(sweep).rows[0].summary["throughput"]
    assert (first["runners"][0]["cpu_info"], first["runners"][0]["cpu_count"], first["runners"][0]["gpu_count"]) == ("Made-up", 4, 0)
    assert first["dependencies"] == {"torch": {"repo": "pytorch/pytorch", "version": "2.13.0", "extra_info": {}}}
    for record in records:
        assert set(record) == {"benchmark", "model", "metric", "runners", "dependencies"}
        for part in (record["benchmark"], record["model"], record["metric"], *record["runners"]):
            assert all(isinstance(value, str) for value in part["extra_info"].values())
    assert "box" not in path.read_text().split()


def test_an_earlier_export_is_replaced_and_anything_else_is_kept(sweep: Path, tmp_path: Path) -> None:
    export_sweep(sweep, "csv", tmp_path)
    (tmp_path / "cells.csv").write_text("old")
    export_sweep(sweep, "csv", tmp_path)
    assert (tmp_path / "cells.csv").read_text() != "old"
    with pytest.raises(ConfigError, match=r"--out: .*holds other things \(cells.csv\); name an empty folder"):
        export_sweep(sweep, "parquet", tmp_path)


def test_what_cannot_be_is_said(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--format: xml: is no format; one of csv, parquet, hf, pytorch-hud"):
        export_sweep(sweep, "xml", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; name a folder"):
        export_sweep(sweep, Format.CSV, tmp_path / "file")
    with pytest.raises(ExportError, match="cannot be written"):
        export_sweep(sweep, Format.CSV, tmp_path / "file" / "below")


def test_a_published_sweep_is_exported_too(tmp_path: Path) -> None:
    published = next((ROOT / "docs" / "results" / "bert-h200").glob("bert-*"))
    export_sweep(published, "parquet", tmp_path)
    found = tables(tmp_path, "parquet")
    assert (len(found["cells"]), len(found["trials"])) == (2, 6)
    assert len(found["steps"]) == pq.read_metadata(published / "steps.parquet").num_rows
    assert found["cells"]["energy_kwh_per_million_samples"].notna().all()


def test_a_sweep_of_which_nothing_ran_has_no_steps(tmp_path: Path) -> None:
    export_sweep(make_sweep(tmp_path / "runs", [Fake(axes(0), outcome=None)]), "csv", tmp_path / "out")
    found = tables(tmp_path / "out", "csv")
    assert (len(found["cells"]), len(found["trials"]), len(found["steps"])) == (1, 1, 0)
    assert {"trial_key", "emulated", "simulated"} <= set(found["steps"].columns)
