"""The JSON Schemas that editors read: every file that is shipped fits its own, and what the code refuses does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from experiments.config.yaml_document import load
from experiments.regression.definition import nights
from experiments.spec.campaign import campaigns
from experiments.spec.load import list_suites
from flows.cli.commands import app
from flows.cli.schema import Kind, schema_text

ROOT = Path(__file__).resolve().parents[3]
FILES = [
    *((Kind.SUITE, Path(info.file)) for info in list_suites()),
    (Kind.POOLS, ROOT / "cluster" / "pools" / "pools.yaml"),
    *((Kind.NIGHTLY, path) for path in nights().values()),
    *((Kind.CAMPAIGN, path) for path in campaigns().values()),
]


@pytest.fixture(scope="module")
def validators() -> dict[Kind, Draft202012Validator]:
    schemas = {kind: json.loads(schema_text(kind)) for kind in Kind}
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    return {kind: Draft202012Validator(schema) for kind, schema in schemas.items()}


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[path.name for _, path in FILES])
def test_every_file_that_is_shipped_fits_its_schema(kind: Kind, path: Path, validators: dict[Kind, Draft202012Validator]) -> None:
    problems = [f"{error.json_path}: {error.message}" for error in validators[kind].iter_errors(load(ROOT / path).data)]
    assert problems == []


def suite(**changes: Any) -> dict[str, Any]:
    return {"suite": "s", "workload": "bridgetower", "axes": {"pool": ["cpu"], "precision": ["fp32"]}, **changes}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({}, None),
        ({"parity_reference": True}, None),
        ({"fixed": {"text_length": 16, "learning_rate": 1, "measure_s": None}}, None),
        ({"fixed": {"text_lenght": 16}}, "$.fixed"),
        ({"fixed": {"text_length": "16"}}, "$.fixed.text_length"),
        ({"fixed": {"precision": "fp31"}}, "$.fixed.precision"),
        ({"axes": {"pool": ["cpu"], "precision": ["fp31"]}}, "$.axes.precision[0]"),
        ({"axes": {"pool": ["cpu"], "width": [3]}}, "$.axes"),
        ({"workload": "synthetic", "axes": {"pool": ["cpu"], "width": [3]}}, None),
        ({"workload": "of_my_own", "axes": {"pool": ["cpu"], "anything": [3]}}, None),
        ({"linked": [{"steps": [2, 3], "stepz": [4, 5]}]}, "$.linked[0]"),
        ({"conditions": [{"when": {"pool": "cpu"}, "set": {"steps": 1}}]}, "$.conditions[0].set.steps"),
        ({"profiles": {"smoke": {"fixed": {"steps": 1}}}}, "$.profiles.smoke.fixed.steps"),
        ({"profiles": {"smoke": {"axis": {}}}}, "$.profiles.smoke"),
        ({"repeats": 0}, "$.repeats"),
        ({"repeat": 3}, "$"),
        ({"parity_reference": 21}, "$.parity_reference"),
    ],
)
def test_what_a_suite_must_not_hold_is_found_where_it_stands(
    changes: dict[str, Any], where: str | None, validators: dict[Kind, Draft202012Validator]
) -> None:
    paths = {error.json_path for error in validators[Kind.SUITE].iter_errors(suite(**changes))}
    assert paths == ({where} if where else set())


def test_every_key_says_what_it_is(validators: dict[Kind, Draft202012Validator]) -> None:
    for kind, validator in validators.items():
        for name, one in validator.schema["properties"].items():
            assert one.get("description"), f"{kind}: {name}"
    assert all(one.get("description") for one in validators[Kind.POOLS].schema["$defs"]["PoolEntry"]["properties"].values())


def test_a_workload_of_ones_own_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workloads").mkdir()
    text = (
        "from experiments.parameters import TrainingParameters\nclass Parameters(TrainingParameters):\n    height: int = 3\nbuild = print\n"
    )
    (tmp_path / "workloads" / "schema_of_mine.py").write_text(text)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path))
    properties = json.loads(schema_text(Kind.SUITE))["$defs"]["fixed.schema_of_mine"]["properties"]
    assert properties["height"]["type"] == "integer" and properties["steps"] == {"$ref": "#/$defs/parameters/properties/steps"}


def test_the_command_prints_or_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["schema", "pools"])
    assert printed.exit_code == 0 and json.loads(printed.stdout)["title"] == "Pools of sweepbench"
    target = tmp_path / "deep" / "pools.json"
    written = CliRunner().invoke(app, ["schema", "pools", "--out", str(target)])
    assert written.exit_code == 0 and target.read_text() == printed.stdout
    wrong = CliRunner().invoke(app, ["schema", "pool"])
    assert wrong.exit_code == 2 and "'nightly'" in wrong.output
