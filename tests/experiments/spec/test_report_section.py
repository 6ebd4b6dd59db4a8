"""Figures that a suite asks for are checked with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments.config.errors import ConfigError
from experiments.spec.load import list_suites, load_suite
from experiments.spec.matrix import expand
from experiments.spec.schema import ReportSettings
from tests.experiments.spec.suite_helpers import every_profile

ROOT = Path(__file__).resolve().parents[3]
OF_OUR_OWN = ("canary", "synthetic")  # parts of a night, and of tests


def test_a_figure_of_what_is_not_there_is_refused_with_its_place(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "suites" / "flava.yaml").read_text()
    path = tmp_path / "flava.yaml"
    path.write_text(text.replace("      metric: batch_size\n      x: model", "      metric: batch\n      x: modell"))
    with pytest.raises(ConfigError) as refused:
        load_suite(str(path), pools=load_pools())
    assert "report.figures[2].metric: unknown metric 'batch'" in str(refused.value)
    assert "report.figures[2].x: 'modell' is not an axis" in str(refused.value)


def test_every_suite_has_a_deployment() -> None:
    deployed = (ROOT / "prefect.yaml").read_text()
    for name in (info.name for info in list_suites() if info.name not in OF_OUR_OWN):
        assert f"  - name: {name}\n" in deployed and f"suite: {name}\n" in deployed
        assert any(info.name == name and info.problem is None for info in list_suites())


def test_every_axis_with_values_is_a_row_or_the_column_of_its_suites_table() -> None:
    """An axis that is neither becomes a row behind the others: the suite says where it belongs."""
    lacking = {}
    for info in list_suites():
        for profile, suite in every_profile(info.name).items():
            values: dict[str, set[str]] = {}
            for cell in expand(suite):
                for axis, value in cell.axes.items():
                    values.setdefault(axis, set()).add(repr(value))
            varied = {axis for axis, seen in values.items() if len(seen) > 1}
            lacking[info.name, profile] = varied - {*suite.report.rows, suite.report.columns}
    assert {where: axes for where, axes in lacking.items() if axes} == {}
    assert {("llm", "x2"), ("bert", "unpadded"), ("bridgetower", "full")} <= lacking.keys()


def test_a_metric_with_a_number_in_its_name_needs_no_axis(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "suites" / "clip_precision.yaml").read_text()
    path = tmp_path / "clip_precision.yaml"
    path.write_text(text)
    suite = load_suite(str(path), pools=load_pools())
    assert [figure.x for figure in suite.report.figures if "*" in figure.metric] == ["block", "block"]
    path.write_text(text.replace("metric: eval_magnitude_*_after", "metric: magnitude_*"))
    with pytest.raises(ConfigError, match=r"unknown metric 'magnitude_\*'"):
        load_suite(str(path), pools=load_pools())


def test_a_published_column_that_nobody_published_is_refused_with_its_place(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "suites" / "bert.yaml").read_text()
    path = tmp_path / "bert.yaml"
    path.write_text(text.replace("published: {accelerator: gaudi1, batch: 32}", "published: {accelerator: gaudi2, batch: 48}", 1))
    with pytest.raises(ConfigError, match=r"report.published.batch: gaudi2 has no line with batch 48; one of 32, 64"):
        load_suite(str(path), pools=load_pools())
    path.write_text(text.replace("published: {accelerator: gaudi1, batch: 32}", "published: {accelerator: gaudi}", 1))
    with pytest.raises(ConfigError, match=r"nobody published throughput of bert on 'gaudi'.*gaudi1"):
        load_suite(str(path), pools=load_pools())


def test_a_name_that_no_axis_has_is_refused_in_a_condition_and_in_a_figure(tmp_path: Path) -> None:
    text = (ROOT / "experiments" / "suites" / "flava.yaml").read_text()
    path = tmp_path / "flava.yaml"
    path.write_text(text.replace("strategy: [fsdp2, fsdp2+ac]", "strategy: [fsdp2, fsdp2_ac]", 1))
    with pytest.raises(
        ConfigError, match=r"strategy\[1\]: 'fsdp2_ac' is no value of the axis strategy in any profile; did you mean 'fsdp2\+ac'"
    ):
        load_suite(str(path), pools=load_pools())
    path.write_text(text.replace("where: {strategy: [ddp, fsdp2, fsdp2+ac]}", "where: {strategy: [ddp, fsdp3]}", 1))
    with pytest.raises(ConfigError, match=r"figures\[0\].where.strategy\[1\]: 'fsdp3' is no value"):
        load_suite(str(path), pools=load_pools())


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (
            "  metric: eval_winoground_group_before",
            "  metric: eval_winoground_gruop_before",
            22,
            "report.metric: unknown metric 'eval_winoground_gruop_before'; did you mean 'eval_winoground_group_before'",
        ),
        ("  metric: eval_winoground_group_before", "  metric: eval_bleu_before", 22, "report.metric: unknown metric 'eval_bleu_before'"),
        ("  metric: eval_winoground_group_before", "  metric: settled_at_step", 22, "settled_at_step is better neither high nor low"),
        ("  metric: eval_winoground_group_before", "  metric: throughput\n  minimum_effect: 1.0", 23, "report.minimum_effect: is 1; write"),
        ("  metric: eval_winoground_group_before", "  beside: [throughput, mfuu]", 22, "report.beside[1]: unknown metric 'mfuu'"),
        ("  metric: eval_winoground_group_before", "  beside: [mfu, mfu]", 22, "report.beside[1]: mfu is shown already; name each"),
        ("  metric: eval_winoground_group_before", "  beside: [throughput]", 22, "report.beside[0]: throughput is shown already"),
        (
            "  metric: eval_winoground_group_before",
            "  beside: ['eval_magnitude_*_after']",
            22,
            "report.beside[0]: 'eval_magnitude_*_after' is several metrics; name one; a figure can show them all",
        ),
        (
            "  metric: eval_winoground_group_before",
            "  figures: [{title: a, metric: rms.patch, x: model}]",
            22,
            "rms.patch is a field of each step, not of the summary",
        ),
        (
            "  metric: eval_winoground_group_before",
            "  figures: [{title: a, metric: loss_spikes, x: model, relative: true}]",
            22,
            "report.figures[0].metric: loss_spikes may be 0, so it has no ratio; remove `relative: true`",
        ),
    ],
)
def test_a_metric_that_cannot_be_compared_is_refused_with_file_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    text = (ROOT / "experiments" / "suites" / "winoground.yaml").read_text()
    assert text.splitlines()[21] == old
    path = tmp_path / "winoground.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as refused:
        load_suite(str(path), pools=load_pools())
    assert f"winoground.yaml:{line}: report" in str(refused.value) and says in str(refused.value)
    path.write_text(text.replace(old, f"{old}\n  minimum_effect: 1.0", 1))  # in the score's unit, so 1 is a value like others
    assert load_suite(str(path), pools=load_pools()).report.minimum_effect == 1.0


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, []),
        ({"metric": "tokens_per_s"}, ["mfu"]),
        ({"metric": "tokens_per_s_per_device"}, ["mfu"]),
        ({"metric": "tokens_per_s", "beside": []}, []),
        ({"metric": "mfu", "beside": ["mfu", "throughput"]}, ["throughput"]),
        ({"metric": "latency_p50_s", "beside": ["latency_p90_s", "mfu"]}, ["latency_p90_s", "mfu"]),
    ],
)
def test_what_stands_beside_the_metric_is_what_the_suite_names_else_what_the_registry_does(given: dict[str, Any], shown: list[str]) -> None:
    """A plan of before has no such key. A race may be by a metric that its suite shows beside another."""
    assert ReportSettings(rows=["pool"], columns=None, **given).shown_beside == shown
