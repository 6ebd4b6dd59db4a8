"""JSON Schema of a suite, so that editors complete and check its keys, a workload's parameters included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import workloads
from experiments.parameters import TrainingParameters
from experiments.spec.schema import SuiteFile
from experiments.trial import RUN_AXES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_COMMON = "parameters"  # the definition of those that every workload has


def suite_schema() -> dict[str, Any]:
    """The schema of a suite file. What may stand under `fixed`, `axes` and the like depends on its `workload`.

    Raises ConfigError for a workload that cannot be read.
    """
    schema = SuiteFile.model_json_schema()
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    common = TrainingParameters.model_json_schema()
    definitions[_COMMON] = {"type": "object", "properties": common["properties"]}
    schema["allOf"] = []
    for name in workloads.names():
        own = workloads.load(name).Parameters.model_json_schema()
        definitions |= own.pop("$defs", {})
        definitions[f"fixed.{name}"], definitions[f"axes.{name}"] = _sections(name, own["properties"], common["properties"])
        sections = _places(f"#/$defs/fixed.{name}", f"#/$defs/axes.{name}")
        then = {"properties": {**sections, "profiles": {"additionalProperties": {"properties": sections}}}}
        schema["allOf"].append({"if": {"properties": {"workload": {"const": name}}, "required": ["workload"]}, "then": then})
    return {"$schema": DIALECT, **schema, "title": "A suite of sweepbench"}


def _sections(name: str, own: Mapping[str, Any], common: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What may stand under `fixed` and under `axes` of a suite of this workload."""
    fixed = {
        parameter: {"$ref": f"#/$defs/{_COMMON}/properties/{parameter}"} if common.get(parameter) == one else one
        for parameter, one in own.items()
    }
    words = {"pool": "where trials run (`sweep pools`)", "environment": "library versions", "commit": "a branch, tag or hash, or worktree"}
    axes: dict[str, Any] = {
        axis: {"type": "array", "items": {"type": "string"}, "minItems": 1, "description": words[axis]} for axis in RUN_AXES
    }
    for parameter in own:
        axes[parameter] = {"type": "array", "items": {"$ref": f"#/$defs/fixed.{name}/properties/{parameter}"}, "minItems": 1}
        axes[parameter] |= {"description": own[parameter]["description"]} if "description" in own[parameter] else {}
    closed = {"type": "object", "additionalProperties": False}
    return {**closed, "properties": fixed}, {**closed, "properties": axes}


def _places(fixed: str, axes: str) -> dict[str, Any]:
    """Where parameters stand in a suite or a profile. `fixed`, `axes`: references to what may."""
    return {
        "fixed": {"$ref": fixed},
        "axes": {"$ref": axes},
        "linked": {"items": {"$ref": axes}},
        "conditions": {"items": {"properties": {"set": {"$ref": fixed}}}},
    }
