"""Plans that earlier versions wrote, brought to what this one reads. plan.json itself stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.sweep.seal import SEALED_SINCE

# Before schema 3 the service time of queued batches was called latency
RENAMED = {f"latency_{rank}_s": f"service_time_{rank}_s" for rank in ("p50", "p90", "p99", "per_sample")}

# What captions of profiles said of the machine, or of devices that a sweep of the profile need not have
_FIT = "; the sizes are chosen for GPUs of 141 GB, and smaller ones may hold none of them"
CAPTIONS = {
    "How large a model each strategy holds on two GPUs of 141 GB, in sizes that lie within 10 % of the next": (
        f"How large a model each strategy holds on two GPUs, in sizes that lie within 10 % of the next{_FIT}"
    ),
    "How large a model each strategy holds on four GPUs of 141 GB, in sizes of ours that lie within 10 % of the next": (
        f"How large a model each strategy holds on four GPUs, in sizes of ours that lie within 10 % of the next{_FIT}"
    ),
    "Four GPUs of this machine with 16 CPU cores each, and 1 and 2 of them; short windows, for a campaign": (
        "Large by number of GPUs, setting, batch and DataLoader processes, with 16 CPU cores for each GPU; short windows, for a campaign"
    ),
    "Every rung on four GPUs of this machine with 16 CPU cores each, and both ends on 1 and 2; short windows, for a campaign": (
        "The ladder, and its two ends by number of GPUs, with 16 CPU cores for each GPU; short windows, for a campaign"
    ),
    "Nothing provoked, on one GPU; a larger learning rate and batch and a slower second moment, where AdamW may spike by itself": (
        "Nothing provoked; a larger learning rate and batch and a slower second moment, where AdamW may spike by itself"
    ),
}


def upgraded(plan: Mapping[str, Any], *, night: bool) -> dict[str, Any]:
    """The content of a plan.json as this version writes it. `night`: of a night, whose first plans kept only a part of their suite."""
    version, suite = plan.get("schema_version", 1), plan.get("suite")
    if not isinstance(version, int) or not isinstance(suite, dict) or not isinstance(suite.get("report"), dict):
        return dict(plan)  # whoever validates it says what is wrong
    if version < 2 and night:
        suite = _whole_suite(suite, len(plan["trials"]))
    if version < SEALED_SINCE:
        suite = {**suite, "report": _with_names_of_today(suite["report"])}
    return {**plan, "suite": _with_captions_of_today(suite)}


def _with_captions_of_today(suite: Mapping[str, Any]) -> dict[str, Any]:
    """A suite whose texts do not speak of the machine."""
    said, report = str(suite.get("description", "")), suite["report"]
    title = {"title": _of_no_machine(report["title"])} if report.get("title") else {}
    return {**suite, "description": CAPTIONS.get(said) or _of_no_machine(said), "report": {**report, **title}}


def _of_no_machine(text: str) -> str:
    return text.replace("on a GPU of this machine", "on one GPU").replace(" of this machine", "")


def _whole_suite(suite: Mapping[str, Any], trials: int) -> dict[str, Any]:
    """A complete suite. Before schema 2 nights kept only the keys of a suite that a report reads."""
    empty: dict[str, Any] = {name: {} for name in ("pools", "fixed", "axes", "sets", "only", "baseline")}
    empty |= {name: [] for name in ("linked", "conditions", "exclude", "include")}
    own = {"workload": "", "profile": "nightly", "file": "", "repeats": 1, "limit": trials}
    return {**empty, **own, **suite, "report": {**suite["report"], "columns": suite["report"]["columns"] or None}}


def _with_names_of_today(report: Mapping[str, Any]) -> dict[str, Any]:
    """The suite's report settings, with the metrics' names of today."""
    result = {**report, "metric": RENAMED.get(str(report.get("metric")), report.get("metric"))} if "metric" in report else dict(report)
    if report.get("figures"):
        result["figures"] = [{**figure, "metric": RENAMED.get(figure["metric"], figure["metric"])} for figure in report["figures"]]
    return result
