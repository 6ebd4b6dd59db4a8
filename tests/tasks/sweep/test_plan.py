"""From a request to a plan, and from an old plan to the same one under changed code, data and libraries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.pools.pool import Pool, load_pools
from cluster.pools.probe import PoolState
from experiments.config.errors import ConfigError
from experiments.trial import trial_key
from tasks.sweep import own_data
from tasks.sweep import plan as tasks_plan
from tasks.sweep import trial_key as environment_module
from tasks.sweep.plan import check_ready, key_changes, once_more, renew, states
from tasks.sweep.plan import make_plan as plan_of_request
from tasks.sweep.store import Plan, Request, Superseded
from tasks.sweep.trial_key import code_version
from tests.tasks.plan_support import make_plan, make_result, make_trial, saved

WORKLOAD = '''"""A workload of a test's own."""
from experiments.workloads import synthetic
class Parameters(synthetic.Parameters):
    dataset: str | None = None
    @classmethod
    def lacking(cls): return {}
build = synthetic.build
'''
SUITE = """
suite: own
description: Of a test.
workload: own
fixed: {steps: 4, warmup_steps: 1, width: 8}
axes:
  pool: [cpu]
  batch_size: [2, 4]
repeats: 2
report: {rows: [pool], columns: batch_size}
profiles:
  smoke:
    axes: {pool: [cpu], batch_size: [2]}
    repeats: 1
"""


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A $SWEEPBENCH_EXTRA folder with a workload and a suite `own`."""
    for name, text in (("workloads/own.py", WORKLOAD), ("suites/own.yaml", SUITE)):
        path = tmp_path / "extra" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path / "extra"))
    monkeypatch.setattr(tasks_plan, "git_state", lambda: {"commit": "abc", "dirty": False})
    code_version.cache_clear()
    yield tmp_path / "extra"
    code_version.cache_clear()
    sys.modules.pop("experiments.workloads.own", None)


def change_code(extra: Path) -> None:
    with open(extra / "workloads" / "own.py", "a") as file:
        file.write("# changed\n")
    code_version.cache_clear()  # as a new process has it


# --- a new plan


def test_a_plan_has_each_cell_once_a_repeat_in_interleaved_order(extra: Path) -> None:
    plan, suite = plan_of_request(Request(suite="own", profile="full", repeats=3), "own-20260101-000000-0000")
    assert (plan.sweep_id, plan.profile, plan.name, suite.repeats) == ("own-20260101-000000-0000", "full", "own", 3)
    assert [trial.repeat for trial in plan.trials] == [1, 1, 2, 2, 3, 3]
    assert [trial.index for trial in plan.trials] == [0, 1, 2, 3, 4, 5]
    assert sorted(trial.parameters["batch_size"] for trial in plan.trials) == [2, 2, 2, 4, 4, 4]
    assert len({trial.key for trial in plan.trials}) == 6
    assert len({trial.cell for trial in plan.trials}) == 2
    assert plan.git == {"commit": "abc", "dirty": False}
    assert {(trial.pool, trial.device, trial.workload, trial.emulated) for trial in plan.trials} == {("cpu", "cpu", "own", False)}


def test_the_key_of_each_trial_follows_from_its_parts(extra: Path) -> None:
    plan, _ = plan_of_request(Request(suite="own", profile="full"), "own-20260101-000000-0000")
    for trial in plan.trials:
        assert trial.key == trial_key(trial.key_parts)
        assert trial.key_parts["code"] == code_version("own", "cpu")
        assert trial.key_parts["libraries"] == environment_module.libraries_version(load_pools()["cpu"])
        assert trial.key_parts["sweep"] == "own-20260101-000000-0000"
        assert (trial.key_parts["repeat"], trial.key_parts["seed"]) == (str(trial.repeat), str(trial.parameters["seed"]))


def test_a_sweep_without_an_id_gets_one_of_its_suite(extra: Path) -> None:
    plan, _ = plan_of_request(Request(suite="own", profile="full"))
    assert plan.sweep_id.startswith("own-20") and {trial.sweep_id for trial in plan.trials} == {plan.sweep_id}


def test_one_data_set_is_looked_at_once_and_its_fingerprint_is_in_the_key(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    resolve = own_data.dataset.resolve
    monkeypatch.setattr(own_data.dataset, "resolve", lambda parameters: looked.append(parameters["batch_size"]) or resolve(parameters))
    plan, _ = plan_of_request(Request(suite="own", profile="full", set={"dataset": f"hf://datasets/a/b@{'0' * 40}/c"}))
    assert len(looked) == 1
    sources = [trial.data for trial in plan.trials]
    assert None not in sources and {trial.key_parts["data"] for trial in plan.trials} == {
        source.fingerprint for source in sources if source
    }
    bare, _ = plan_of_request(Request(suite="own", profile="full"))
    assert {(trial.data, trial.key_parts["data"]) for trial in bare.trials} == {(None, "none")}


def test_two_data_sets_are_told_apart(extra: Path) -> None:
    text = SUITE.replace("batch_size: [2, 4]", f"dataset: ['hf://a@{'0' * 40}', 'hf://a@{'1' * 40}']").split("report")[0]
    (extra / "suites" / "own.yaml").write_text(text + "report: {rows: [pool], columns: dataset}\n")
    plan, _ = plan_of_request(Request(suite="own", profile="full"))
    assert len({trial.key_parts["data"] for trial in plan.trials}) == 2
    assert all(trial.data is not None and trial.data.uri == trial.parameters["dataset"] for trial in plan.trials)


@pytest.mark.parametrize("apart", [{}, {"max_batch": True}])
def test_what_sets_a_cell_apart_changes_its_key_and_labels_do_not(extra: Path, apart: dict[str, Any]) -> None:
    _, suite = plan_of_request(Request(suite="own", profile="full"))
    cell = tasks_plan.matrix.expand(suite)[0]
    maker = tasks_plan.TrialMaker("own-20260101-000000-0000", load_pools())
    plain = maker.make(suite, cell, 1, 0)
    other = maker.make(suite, cell, 1, 0, axes={"pool": "cpu", "shown": 3}, apart=apart, labels={"night": "x"})
    assert (other.key == plain.key, other.cell == plain.cell) == (not apart, not apart)
    assert (other.axes, other.labels, other.parameters) == ({"pool": "cpu", "shown": 3}, {"night": "x"}, plain.parameters)
    assert (plain.axes, plain.labels) == (cell.axes, {})


def test_a_locked_clock_is_in_the_trial_and_makes_another_cell(extra: Path) -> None:
    _, suite = plan_of_request(Request(suite="own", profile="full"))
    cell = tasks_plan.matrix.expand(suite)[0]
    pools = load_pools()
    locked = pools | {"cpu": pools["cpu"].model_copy(update={"lock_clocks_mhz": 1500})}
    one, other = (tasks_plan.TrialMaker("own-20260101-000000-0000", some).make(suite, cell, 1, 0) for some in (pools, locked))
    assert (one.lock_clocks_mhz, other.lock_clocks_mhz) == (None, 1500)
    assert one.cell != other.cell and {part for part in one.key_parts if one.key_parts[part] != other.key_parts[part]} == {"configuration"}


def test_another_repeat_of_a_cell_has_a_key_of_its_own() -> None:
    one = make_trial(1)
    two = once_more(one, 2, 7)
    assert (two.repeat, two.index, two.cell) == (2, 7, one.cell)
    assert two.key_parts == {**one.key_parts, "repeat": "2"} and two.key == trial_key(two.key_parts) != one.key


def test_a_value_that_nobody_gave_is_asked_for_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {"full": True}

    class Parameters:
        @staticmethod
        def model_validate(parameters: dict[str, Any]) -> Any:
            return SimpleNamespace(lacking=lambda: {"dataset": "a folder"} if parameters["number"] == 2 and needs["full"] else {})

    monkeypatch.setattr(tasks_plan.workloads, "load", lambda name: SimpleNamespace(Parameters=Parameters))
    plan = make_plan([make_trial(1), make_trial(2), make_trial(3)])
    with pytest.raises(ConfigError) as caught:
        check_ready(plan)
    assert [(problem.file, problem.key, problem.problem) for problem in caught.value.problems] == [
        ("suites/made_up.yaml", "dataset", "is not set")
    ]
    assert "give a folder: --set dataset=..." in str(caught.value)
    needs["full"] = False
    check_ready(plan)


def test_a_pool_that_is_not_configured_is_refused_with_its_variable_and_one_that_is_down_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWEEPBENCH_A100_ADDRESS", raising=False)
    plan = make_plan([make_trial(1), make_trial(2, pool="a100"), make_trial(3, pool="gaudi2")])
    with pytest.raises(ConfigError) as caught:
        tasks_plan.check_configured(plan, plan.trials)
    set_it = "set SWEEPBENCH_{} to the URL of its Ray head, http://host:8265, or run the rest: --pool cpu"
    assert [(problem.key, problem.problem, problem.hint) for problem in caught.value.problems] == [
        ("pool a100", "is not configured", set_it.format("A100_ADDRESS")),
        ("pool gaudi2", "is not configured", set_it.format("GAUDI2_ADDRESS")),
    ]
    with pytest.raises(ConfigError, match=r"or name another: --pool NAME"):
        tasks_plan.check_configured(plan, plan.trials[1:])
    tasks_plan.check_configured(plan, plan.trials[:1])  # what is left to run of a resumed sweep
    monkeypatch.setenv("SWEEPBENCH_A100_ADDRESS", "http://127.0.0.1:9")
    tasks_plan.check_configured(plan, plan.trials[:2])


@pytest.mark.parametrize(
    ("problem", "said", "hint"),
    [
        ("nvidia-smi is not on this machine; a CUDA driver is needed", "nvidia-smi is not on this machine", "a CUDA driver is needed"),
        ("this machine shows no GPU", "this machine shows no GPU", "make one visible"),
    ],
)
def test_an_accelerator_that_this_machine_lacks_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, problem: str, said: str, hint: str
) -> None:
    """One trial of each cell would else end as unsupported. A CPU is always there, and a cluster is asked later."""
    asked: list[str] = []

    def probe(pool: Pool) -> PoolState:
        asked.append(pool.name)
        return PoolState(pool=pool.name, device=pool.device, address=pool.address, reachable=False, problem=problem)

    monkeypatch.setattr(tasks_plan, "probe", probe)
    monkeypatch.setenv("SWEEPBENCH_A100_ADDRESS", "http://127.0.0.1:9")
    plan = make_plan([make_trial(1), make_trial(2, pool="cuda"), make_trial(3, pool="a100")])
    with pytest.raises(ConfigError) as caught:
        tasks_plan.check_configured(plan, plan.trials)
    assert [(one.key, one.problem, one.hint) for one in caught.value.problems] == [
        ("pool cuda", f"cannot run trials: {said}", f"{hint}, or run the rest: --pool cpu --pool a100"),
    ]
    assert asked == ["cuda"]


# --- going on with a plan under changed code, data, libraries


def planned(**fields: Any) -> Plan:
    request = {"suite": "own", "profile": "full", **fields}
    return plan_of_request(Request(**request), "own-20260101-000000-0000")[0]


def test_a_plan_renewed_under_the_same_code_is_the_same(extra: Path) -> None:
    plan = planned()
    assert renew(plan) == plan


def test_changed_code_supersedes_every_trial_and_says_so(extra: Path) -> None:
    plan = planned()
    store = saved(plan)
    store.save_result(make_result(plan.trials[0]))
    change_code(extra)
    renewed = renew(store.load_plan())
    assert [entry.key for entry in renewed.superseded] == [trial.key for trial in plan.trials]
    assert [entry.by for entry in renewed.superseded] == [trial.key for trial in renewed.trials]
    assert not {trial.key for trial in plan.trials} & {trial.key for trial in renewed.trials}
    code = (plan.trials[0].key_parts["code"], code_version("own", "cpu"))
    assert {entry.why for entry in renewed.superseded} == {f"code changed ({code[0][:8]} -> {code[1][:8]})"}
    for old, new in zip(plan.trials, renewed.trials, strict=True):
        assert new.key == trial_key(new.key_parts)
        assert new.key_parts == {**old.key_parts, "code": code[1]}
        assert new.model_copy(update={"key": old.key, "key_parts": old.key_parts}) == old
    assert {(entry.state, entry.why) for entry in states(renewed)} == {
        ("again", renewed.superseded[0].why)
    }  # what was done is not done now


def test_what_was_superseded_before_stays_known(extra: Path) -> None:
    plan = planned()
    before = Superseded(key="old", by=plan.trials[0].key, why="data changed (a -> b)")
    plan = plan.model_copy(update={"superseded": [before]})
    assert renew(plan).superseded == [before]
    change_code(extra)
    assert renew(plan).superseded[0] == before and len(renew(plan).superseded) == 1 + len(plan.trials)
    assert plan.superseded == [before]  # the plan given is not changed


def test_changed_data_supersedes_and_the_trial_reads_the_new_data(extra: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "train.parquet").write_bytes(b"one")
    plan = planned(set={"dataset": str(folder)})
    (folder / "train.parquet").write_bytes(b"more than one")
    renewed = renew(plan)
    assert all(entry.why.startswith("data changed (") and ";" not in entry.why for entry in renewed.superseded)
    assert len(renewed.superseded) == len(plan.trials)
    for trial in renewed.trials:
        assert trial.data is not None and trial.key_parts["data"] == trial.data.fingerprint


def test_drawn_data_are_where_the_sweeps_are_now_and_supersede_nothing(
    extra: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of sweeps was moved: data were read from where it was, and a trial that did not find them counted as crashed."""
    plan = planned(suite="bridgetower", profile="smoke")
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "moved"))
    renewed = renew(plan)
    assert renewed.superseded == [] and [trial.key for trial in renewed.trials] == [trial.key for trial in plan.trials]
    folders = {Path(trial.data.uri).parent for trial in renewed.trials if trial.data}
    assert folders == {tmp_path / "moved" / "data"} != {Path(trial.data.uri).parent for trial in plan.trials if trial.data}
    again = once_more(renewed.trials[0], 2, len(plan.trials))
    assert again.data == renewed.trials[0].data, "further rounds too"


def test_changed_libraries_supersede(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    monkeypatch.setattr(environment_module, "_version", lambda name: "99" if name == "torch" else None)
    renewed = renew(plan)
    assert len(renewed.superseded) == len(plan.trials)
    assert all(entry.why.startswith("libraries changed (") and ";" not in entry.why for entry in renewed.superseded)


def test_only_the_trials_whose_key_changes_are_superseded(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    libraries = tasks_plan.libraries_version(load_pools()["cpu"])
    other = plan.trials[1].model_copy(update={"pool": "local"})
    plan = plan.model_copy(update={"trials": [plan.trials[0], other]})
    monkeypatch.setattr(tasks_plan, "libraries_version", lambda pool: libraries if pool.name == "cpu" else "another")
    renewed = renew(plan)
    assert [entry.key for entry in renewed.superseded] == [other.key]
    assert renewed.trials[0] == plan.trials[0]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ({"code": "1" * 16, "data": "none"}, ""),
        ({"code": "2" * 16, "data": "none"}, "code changed (11111111 -> 22222222)"),
        ({"code": "2" * 16, "data": "3" * 16}, "code changed (11111111 -> 22222222); data changed (none -> 33333333)"),
        ({"code": "1" * 16, "data": "none", "seed": "7"}, "seed changed (none -> 7)"),
    ],
)
def test_what_differs_between_two_keys_in_words(new: dict[str, str], text: str) -> None:
    assert key_changes({"code": "1" * 16, "data": "none"}, new) == text


def test_a_plan_keeps_the_command_with_its_profile(extra: Path) -> None:
    assert planned(profile="smoke", repeats=2).command == "sweep run own --profile smoke --repeats 2"


# --- the profile `auto`


@pytest.mark.parametrize(
    ("asked", "answering", "profile", "pools"),
    [
        ([], [], "smoke", ["cpu"]),
        ([], ["a100"], "full", ["a100"]),
        ([], ["local", "gaudi2-emulated"], "smoke", ["cpu"]),  # neither is an accelerator
        (["cpu"], ["a100"], "smoke", ["cpu"]),
        (["a100"], [], "full", ["a100"]),  # asked for: whether it answers is seen later
        (["gaudi2-emulated"], [], "smoke", ["gaudi2-emulated"]),
        (["cpu", "a100"], [], "full", ["cpu", "a100"]),
    ],
)
def test_auto_takes_full_where_an_accelerator_answers(
    extra: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], answering: list[str], profile: str, pools: list[str]
) -> None:
    path = extra / "suites" / "own.yaml"
    path.write_text(path.read_text().replace("pool: [cpu]", "pool: [cpu, a100, local, gaudi2-emulated]", 1))
    monkeypatch.setattr(tasks_plan, "probe", lambda pool: SimpleNamespace(reachable=pool.name in answering))
    plan, _ = plan_of_request(Request(suite="own", profile="auto", pools=asked))
    assert plan.profile == profile
    assert list(dict.fromkeys(trial.pool for trial in plan.trials)) == pools
    assert plan.request.profile == "auto"


def test_auto_without_a_smoke_profile_is_full(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = extra / "suites" / "own.yaml"
    path.write_text(path.read_text().split("profiles:")[0])
    monkeypatch.setattr(tasks_plan, "probe", lambda pool: SimpleNamespace(reachable=False))
    assert plan_of_request(Request(suite="own"))[0].profile == "full"
    assert plan_of_request(Request(suite="own", pools=["cpu"]))[0].profile == "full"
