"""Suites: what a file may say, and that each thing that is wrong is named with its line, its key and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from experiments import workloads
from experiments.config.errors import ConfigError
from experiments.spec import vocabulary
from experiments.spec.load import list_suites, load_suite
from experiments.spec.matrix import expand
from experiments.spec.schema import Suite
from experiments.spec.suite_files import title_of
from tests.experiments.spec.suite_helpers import POOLS, SUITE, WORKLOAD, Workshop, workshop

__all__ = ["workshop"]


def test_a_suite_is_read_whole(workshop: Workshop) -> None:
    suite = workshop.load(SUITE + "repeats: 2\nretries: 0\nhang_timeout_s: 30\n")
    assert (suite.suite, suite.workload, suite.profile, suite.repeats, suite.retries, suite.hang_timeout_s) == (
        "toys",
        "toy",
        "full",
        2,
        0,
        30,
    )
    assert suite.axes == {"pool": ["cpu", "gpu"], "precision": ["fp32", "bf16"], "dataloader_workers": [0, 1]}
    assert suite.pools == {"cpu": "cpu", "gpu": "cuda"}
    assert suite.report.rows == ["pool", "precision"] and suite.report.columns == "dataloader_workers"
    assert Suite.model_validate_json(suite.model_dump_json()) == suite


def test_what_checks_a_value_is_made_once_for_all_profiles_and_readings(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes most of the time of reading a suite of many profiles."""
    made: list[Any] = []

    def adapter(kind: Any, **options: Any) -> TypeAdapter[Any]:
        made.append(kind)
        return TypeAdapter(kind, **options)

    monkeypatch.setattr(vocabulary, "TypeAdapter", adapter)
    profiles = "".join(f"  p{number}: {{repeats: {number}, fixed: {{steps: {number}0}}}}\n" for number in range(1, 5))
    for _ in range(2):
        suite = workshop.load(f"{SUITE}profiles:\n{profiles}", profile="p3")
        assert (suite.repeats, suite.fixed["steps"]) == (3, 30)
        assert len(made) == 3, "steps, precision and dataloader_workers"


def test_a_workload_elsewhere_may_show_what_the_registry_does_not_list(workshop: Workshop) -> None:
    figure = "{title: Bleu, metric: eval_bleu_after, x: precision}"
    suite = workshop.load(SUITE + f"report: {{rows: [pool], columns: precision, figures: [{figure}]}}\n")
    assert suite.report.figures[0].metric == "eval_bleu_after"


# (what is added to or replaced in SUITE, line, key, parts of the message)
WRONG: list[tuple[str, str, int, str, list[str]]] = [
    ("", "repeat: 2", 11, "repeat", ["unknown key", "did you mean 'repeats'"]),
    ("", "suite: toys", 11, "suite", ["duplicate key, first given on line 1", "keep one"]),
    ("", "repeats: *x", 11, "", ["alias *x", "write the value out"]),
    ("", "repeats: two", 11, "repeats", ["is 'two'", "whole number"]),
    (
        "",
        "conditions: [{when: {pool: cpu}, set: {rms_tensors: 's3://b/x?session_token=y'}}]",
        11,
        "conditions[0].set.rms_tensors",
        ["credentials"],
    ),
    ("", "limit: 100001", 11, "limit", ["at most 100000"]),
    ("", "conditions: [{when: {pool: cpu}}]", 11, "conditions[0].set", ["is missing"]),
    ("", "conditions: [{when: {pool: cpu}, set: {batch_sise: 4}}]", 11, "conditions[0].set.batch_sise", ["did you mean 'batch_size'"]),
    ("", "conditions: [{when: {pool: cpu}, set: {batch_size: x}}]", 11, "conditions[0].set.batch_size", ["whole number or 'max'"]),
    (
        "",
        "conditions: [{when: {pool: cpu}, set: {precision: bf16}}]",
        11,
        "conditions[0].set.precision",
        ["is an axis", "exclude and include"],
    ),
    (
        "",
        "conditions: [{when: {dataloader_workers: 7}, set: {seed: 4}}]",
        11,
        "conditions[0].when",
        ["matches no cell", "values that the axes have"],
    ),
    (
        "",
        "conditions: [{when: {device: hpu}, set: {seed: 4}}]",
        11,
        "conditions[0].when.device",
        ["unknown device 'hpu'", "known: cpu, cuda"],
    ),
    ("", "exclude: [{precision: fp16}]", 11, "exclude[0]", ["matches no cell", "values that the axes have"]),
    ("", "exclude:\n  - {pool: cpu}\n  - {presision: bf16}", 13, "exclude[1].presision", ["no such parameter", "did you mean 'precision'"]),
    ("", "exclude: [{precision: [bf16, fp]}]", 11, "exclude[0].precision[1]", ["is 'fp'", "should be 'fp32'"]),
    ("", "exclude: [{}]", 11, "exclude[0]", ["is empty", "at least one axis"]),
    ("", "exclude: [{pool: [cpu, gpu]}]", 11, "exclude", ["leaves no cell", "exclude less"]),
    ("", "include: [{pool: cpu, precision: bf16}]", 11, "include[0]", ["adds no cell that is not there", "remove it"]),
    ("", "include: [{dataloader_workers: -1}]", 11, "include[0].dataloader_workers", ["is -1", "at least 0"]),
    ("", "linked: [{seed: [1, 2], threads: [1]}]", 11, "linked[0]", ["differ in length", "seed=2 threads=1", "as many values"]),
    ("", "linked: [{seed: [1, 2], precision: [fp32, bf16]}]", 11, "linked[0].precision", ["axis already", "one place"]),
    ("", "linked: [{seed: [1, 1], threads: [2, 2]}]", 11, "linked[0]", ["row 2 repeats", "once"]),
    ("", "linked: [{seed: [1, 2]}]", 11, "linked[0]", ["fewer than two", "use `axes`"]),
    ("", "limit: 7", 11, "limit", ["8 cells x 1 repeats are 8 trials", "raise `limit`"]),
    ("", "report: {rows: [pool], columns: model}", 11, "report.columns", ["'model' is not an axis", "known: pool, precision"]),
    ("", "report: {rows: [pol], columns: precision}", 11, "report.rows[0]", ["'pol' is not an axis", "did you mean 'pool'"]),
    ("", "report: {rows: [pool], columns: pool}", 11, "report.rows[0]", ["used twice"]),
    (
        "",
        "report: {rows: [pool], columns: precision, metric: thruput}",
        11,
        "report.metric",
        ["unknown metric", "did you mean 'throughput'"],
    ),
    ("", "report: {rows: [pool], columns: precision, metric: eval_bleu_after}", 11, "report.metric", ["neither high nor low", "figure"]),
    ("", "profiles: {smoke: {axis: {}}}", 11, "profiles.smoke.axis", ["unknown key", "did you mean 'axes'"]),
    ("", "profiles: {full: {repeats: 2}}", 11, "profiles.full", ["meaning of its own", "another name"]),
    (
        "",
        "profiles: {Smoke: {repeats: 2}}",
        11,
        "profiles.Smoke",
        ["is 'Smoke'", "should be up to 64 lower-case letters, digits, - and _, the first a letter or digit"],
    ),
    ("", "profiles:\n  smoke:\n    axes: {pool: [cpu], seed: []}", 13, "profiles.smoke.axes.seed", ["no values", "seed: [0]"]),
    ("", "profiles: {smoke: {axes: {pool: [cpu]}}}", 10, "baseline.dataloader_workers", ["not an axis", "known: pool"]),
    (
        "suite: toys",
        "suite: ../toys",
        1,
        "suite",
        ["is '../toys'", "should be up to 64 lower-case letters, digits, - and _, the first a letter or digit"],
    ),
    ("suite: toys", "suite: other", 1, "suite", ["is 'other', the file is toys.yaml", "write `suite: toys`"]),
    ("workload: toy", "workload: toyy", 3, "workload", ["unknown workload 'toyy'", "did you mean 'toy'"]),
    ("  steps: 10", "  stepps: 10", 5, "fixed.stepps", ["the workload toy has no such parameter", "did you mean 'steps'"]),
    ("  steps: 10", "  steps: ten", 5, "fixed.steps", ["is 'ten'", "whole number"]),
    ("  steps: 10", "  steps: 1", 5, "fixed.steps", ["is 1", "at least 2"]),
    ("  steps: 10", "  pool: cpu", 5, "fixed.pool", ["is an axis", "axes: {pool: [cpu]}"]),
    ("  steps: 10", "  precision: bf16", 5, "fixed.precision", ["is an axis too", "one place"]),
    ("  steps: 10", "  devices: 4", 5, "fixed.devices", ["4 devices are more than the pool cpu has", "at most 2"]),
    ("  steps: 10", "  shards: 3", 6, "axes", ["is refused", "no multiple of shards 3", "exclude the combination"]),
    ("  precision: [fp32, bf16]", "  precision: []", 8, "axes.precision", ["no values", "precision: [fp32]"]),
    ("  precision: [fp32, bf16]", "  precision:", 8, "axes.precision", ["is empty", "a list such as"]),
    ("  precision: [fp32, bf16]", "  precision: fp32", 8, "axes.precision", ["is 'fp32'", "a list such as"]),
    ("  precision: [fp32, bf16]", "  precision: [fp32, bf61]", 8, "axes.precision[1]", ["is 'bf61'", "did you mean 'bf16'"]),
    ("  precision: [fp32, bf16]", "  precision: [fp32, fp32]", 8, "axes.precision[1]", ["listed twice", "once"]),
    ("  precision: [fp32, bf16]", "  learning_rate: [1, 1.0]", 8, "axes.learning_rate[1]", ["listed twice"]),
    ("  precision: [fp32, bf16]", "  presicion: [fp32]", 8, "axes.presicion", ["no such parameter", "did you mean 'precision'"]),
    ("  precision: [fp32, bf16]", "  device: [cpu]", 8, "axes.device", ["is no axis", "the axis is `pool`"]),
    (
        "  precision: [fp32, bf16]",
        f"  seed: {list(range(1000))}\n  threads: {list(range(1, 131))}",
        6,
        "axes",
        ["span 520000 cells", "at most 500000"],
    ),
    ("  pool: [cpu, gpu]", "  pool: [cpu, gpuu]", 7, "axes.pool[1]", ["unknown pool 'gpuu'", "did you mean 'gpu'"]),
    ("  pool: [cpu, gpu]", "  seed: [1]", 6, "axes", ["has no pool", "add `pool: [cpu]`"]),
    ("baseline: {dataloader_workers: 0}", "baseline: {dataloader_workers: 3}", 10, "baseline", ["matches no cell", "cell that is there"]),
    ("baseline: {dataloader_workers: 0}", "baseline: {seed: 0}", 10, "baseline.seed", ["not an axis", "known: pool"]),
    ("baseline: {dataloader_workers: 0}", "baseline: {precision: 8}", 10, "baseline.precision", ["is 8", "should be 'fp32'"]),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "parts"), WRONG, ids=[new[:60] for _, new, *_ in WRONG])
def test_wrong(workshop: Workshop, old: str, new: str, line: int, key: str, parts: list[str]) -> None:
    assert old in SUITE
    text = SUITE.replace(old, new) if old else SUITE + new + "\n"
    error = workshop.refused(text)
    assert (Path(error.file).name, error.line, error.key) == ("toys.yaml", line, key), str(error)
    assert f"toys.yaml:{line}: {key}" in str(error)
    for part in parts:
        assert part in f"{error.problem}; {error.hint}"
    assert error.hint or "refused" in error.problem


def test_all_problems_of_all_profiles_are_listed_once(workshop: Workshop) -> None:
    text = SUITE.replace("steps: 10", "stepps: 10") + "profiles:\n  a: {fixed: {sed: 1}}\n  b: {axes: {pool: [tpu]}}\n"
    error = workshop.refused(text, profile="a")
    assert [problem.key for problem in error.problems] == ["fixed.stepps", "profiles.a.fixed.sed", "profiles.b.axes.pool[0]"]


def test_a_profile_overrides_sections_and_merges_fixed(workshop: Workshop) -> None:
    text = (
        SUITE
        + """
exclude: [{pool: cpu, precision: bf16}]
conditions: [{when: {pool: gpu}, set: {batch_size: 48}}]
profiles:
  small:
    fixed: {warmup_steps: 3}
    axes: {pool: [cpu], dataloader_workers: [0], steps: [5, 6]}
    repeats: 4
"""
    )
    suite = workshop.load(text, profile="small")
    cells = expand(suite)
    assert [cell.axes for cell in cells] == [{"pool": "cpu", "dataloader_workers": 0, "steps": steps} for steps in (5, 6)]
    assert {(cell.parameters["warmup_steps"], cell.parameters["batch_size"]) for cell in cells} == {(3, 8)}
    assert suite.repeats == 4 and "steps" not in suite.fixed  # the profile's axis takes the place of the fixed value
    assert workshop.load(text).fixed == {"steps": 10}
    error = workshop.refused(text, profile="smal")
    assert str(error) == "--profile: smal: the suite toys has no such profile; did you mean 'small'? known: full, small"


@pytest.mark.parametrize(
    ("options", "axes", "parameters"),
    [
        ({"pool_names": ["gpu"]}, [("gpu", p, w) for p in ("fp32", "bf16") for w in (0, 1)], {}),
        ({"sets": {"pool": "gpu", "precision": "bf16"}}, [("gpu", "bf16", 0), ("gpu", "bf16", 1)], {}),
        ({"sets": {"dataloader_workers": "4", "precision": "fp32"}}, [("cpu", "fp32", 4), ("gpu", "fp32", 4)], {}),
        ({"only": {"precision": ["bf16"], "dataloader_workers": ["1"]}}, [("cpu", "bf16", 1), ("gpu", "bf16", 1)], {}),
        (
            {"only": {"pool": ["cpu", "gpu"], "dataloader_workers": [1]}, "pool_names": ["gpu"]},
            [("gpu", "fp32", 1), ("gpu", "bf16", 1)],
            {},
        ),
        (
            {"sets": {"batch_size": "4", "learning_rate": "1e-3", "threads": "null"}},
            None,
            {"batch_size": 4, "learning_rate": 1e-3, "threads": None},
        ),
    ],
)
def test_overrides(workshop: Workshop, options: dict[str, Any], axes: list[tuple[Any, ...]] | None, parameters: dict[str, Any]) -> None:
    text = (
        SUITE + "conditions: [{when: {pool: gpu}, set: {batch_size: 48}}]\nexclude: [{pool: cpu, precision: fp32, dataloader_workers: 1}]\n"
    )
    cells = expand(workshop.load(text, **options))
    if axes is not None:
        assert [tuple(cell.axes.values()) for cell in cells] == axes
    for cell in cells:
        assert {name: cell.parameters[name] for name in parameters} == parameters


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sets": {"stepps": "4"}}, "--set: stepps: the workload toy has no such parameter; did you mean 'steps'?"),
        ({"sets": {"engine": "s3://K:S@bucket"}}, "--set: engine: holds a user name or password; give it to the machines that read it"),
        ({"sets": {"steps": "many"}}, "--set: steps: is 'many'; should be a whole number"),
        ({"sets": {"pool": "tpu"}}, "--pool: unknown pool 'tpu'; did you mean 'gpu'? known: cpu, gpu"),
        ({"pool_names": ["cp"]}, "--pool: unknown pool 'cp'; did you mean 'cpu'? known: cpu, gpu"),
        ({"only": {"steps": [1]}}, "--only: steps: is not an axis; known: pool, precision, dataloader_workers"),
        ({"only": {"precision": ["fp16"]}}, "--only: precision: no cell has the value fp16; known: fp32, bf16"),
        (
            {"sets": {"precision": "bf16"}, "only": {"precision": ["fp32"]}},
            "--only: precision: no cell has the value fp32, as --set fixes it at bf16; leave one of the two out",
        ),
        (
            {"only": {"precision": ["fp32, bf16"]}},
            "--only: precision: is 'fp32, bf16'; give --only once for each: --only precision=fp32 --only precision=bf16",
        ),
        ({"only": {"precision": ["fp32,nonsense"]}}, "--only precision=fp32 --only precision=nonsense"),
        ({"only": {"precision": ["some,nonsense"]}}, "--only: precision: is 'some,nonsense'; should be 'fp32', "),
        ({"only": {"dataloader_workers": ["MP-9"]}}, "--only: dataloader_workers: is 'MP-9'; should be a whole number"),
        ({"sets": {"precision": "fp32,bf16"}}, "--set: precision: is 'fp32,bf16'; should be 'fp32', "),
        ({"repeats": 0}, "--repeats: is 0; should be 1 to 1000"),
        ({"sets": {"devices": 3}}, "devices: 3 devices are more than the pool cpu has; at most 2"),
        (
            {"sets": {"shards": 3}},
            "the cell pool=cpu precision=fp32 dataloader_workers=0 is refused: batch_size 8 is no multiple of shards 3",
        ),
        ({"repeats": 1000}, "limit: 8 cells x 1000 repeats are 8000 trials, over the limit of 2000; choose fewer"),
    ],
)
def test_wrong_overrides(workshop: Workshop, options: dict[str, Any], message: str) -> None:
    assert message in str(workshop.refused(SUITE, **options))


def test_only_that_contradicts_itself(workshop: Workshop) -> None:
    text = SUITE + "exclude: [{pool: cpu, precision: bf16}]\n"
    error = workshop.refused(text, only={"pool": ["cpu"], "precision": ["bf16"]})
    assert str(error) == "--only: no cell has all these values; leave one out; `sweep plan` shows the cells"


def test_set_of_a_linked_axis(workshop: Workshop) -> None:
    text = SUITE + "linked: [{seed: [1, 2], threads: [1, 2]}]\n"
    assert "--set: seed: is linked to other axes; choose with --only seed=value" in str(workshop.refused(text, sets={"seed": "2"}))
    assert {cell.parameters["threads"] for cell in expand(workshop.load(text, only={"seed": ["2"]}))} == {2}


def test_suites_are_found_by_name(workshop: Workshop) -> None:
    workshop.write(SUITE)
    workshop.write("suite: broken\n", "broken")
    listed = {info.name: info for info in list_suites()}
    assert {"bridgetower", "broken", "toys"} <= set(listed)
    assert listed["toys"].problem is None and listed["toys"].workload == "toy" and listed["toys"].profiles == ["full"]
    assert "broken.yaml:1: workload: is missing" in str(listed["broken"].problem)
    assert load_suite("toys", pools=POOLS).suite == "toys"
    with pytest.raises(ConfigError, match=r"unknown suite; did you mean 'toys'\?"):
        load_suite("toyz", pools=POOLS)
    with pytest.raises(ConfigError, match=r"absent.yaml: cannot be read"):
        load_suite("absent.yaml", pools=POOLS)
    workshop.write(SUITE.replace("toys", "bridgetower"), "bridgetower")
    with pytest.raises(ConfigError, match=r"the suite bridgetower is already in .*; rename one"):
        list_suites()


def test_extra_folders_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"SWEEPBENCH_EXTRA: .*absent is not a folder"):
        list_suites()


def test_workloads_are_found_by_file_name(workshop: Workshop) -> None:
    folder = workshop.root / "workloads"
    (folder / "_shared.py").write_text("")
    assert "toy" in workloads.names() and "bridgetower" in workloads.names() and "_shared" not in workloads.names()
    assert workloads.load("toy").Parameters().model == "tiny"
    (folder / "raises.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match=r"raises.py: cannot be imported: ZeroDivisionError"):
        workloads.load("raises")
    (folder / "empty.py").write_text("Parameters = 3\n")
    with pytest.raises(ConfigError, match=r"empty.py: Parameters: is missing; define `class Parameters\(TrainingParameters\)`"):
        workloads.load("empty")
    (folder / "unbuilt.py").write_text(WORKLOAD.replace("def build(", "def built("))
    of_unbuilt = workshop.refused(SUITE.replace("workload: toy", "workload: unbuilt"))
    hint = "define `def build(context)`, which makes what is measured"
    assert str(of_unbuilt) == f"{folder / 'unbuilt.py'}: build: is missing; {hint}"
    (folder / "Not-A-Name.py").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be the name of a workload; use a-z"):
        workloads.names()
    (folder / "Not-A-Name.py").rename(folder / "bridgetower.py")
    with pytest.raises(ConfigError, match=r"the workload bridgetower is already in"):
        workloads.names()


def test_another_folder_gives_its_own_workload(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workloads.load("toy").Parameters.model_fields["model"].default == "tiny"
    other = tmp_path / "other"
    (other / "workloads").mkdir(parents=True)
    (other / "workloads" / "toy.py").write_text(WORKLOAD.replace('= "tiny"', '= "large"'))
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(other))
    assert workloads.load("toy").Parameters.model_fields["model"].default == "large"


def test_only_takes_what_tables_call_a_value(workshop: Workshop) -> None:
    cells = expand(workshop.load(SUITE, only={"dataloader_workers": ["MP-1"]}))
    assert {cell.axes["dataloader_workers"] for cell in cells} == {1}


def test_a_suite_whose_file_cannot_be_read_any_more_is_called_by_its_name(workshop: Workshop) -> None:
    planned = workshop.load(SUITE)
    path = workshop.write(f"title: Toys\n{SUITE}")
    assert (planned.title, title_of(planned)) == (None, "Toys")
    path.write_text("suite: toys\nmatrix: [\n")
    assert title_of(planned) == planned.suite == "toys"
