"""Environments and commits of cells: in the keys of their trials, and refused before anything is built or checked out."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.environments.build import Environment
from cluster.environments.recipe import Recipe
from cluster.pools.pool import Pool
from experiments.config.errors import ConfigError
from experiments.spec.matrix import PlannedCell
from tasks.sweep import dataset
from tasks.sweep import plan as planning
from tasks.sweep import variants as module
from tasks.sweep.plan import TrialMaker
from tasks.sweep.trial_key import libraries_version
from tasks.sweep.variants import Variants
from tests.tasks.plan_support import make_suite

POOLS = {
    "cpu": Pool(name="cpu", device="cpu", address="embedded"),
    "ray": Pool(name="ray", device="cpu", address="http://127.0.0.1:1"),
}
COMMITS = {"main": "a" * 40, "also-main": "a" * 40, "old": "b" * 40}


def cell(pool: str = "cpu", **run: str) -> PlannedCell:
    return PlannedCell(pool, "cpu", {"pool": pool, **run}, {"seed": 0, "steps": 3}, **run)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments `one` and `same` of the same content, `other`; the commits above; nothing is built, and no git is asked."""

    def recipe(name: str, python: str | None) -> Recipe:
        if name not in ("one", "same", "other"):
            raise ConfigError.one("environment", None, name, "unknown environment", "")
        return Recipe(name, Path(f"{name}.txt"), "python", False, "d-other" if name == "other" else "d-one")

    monkeypatch.setattr(module, "recipe", recipe)
    monkeypatch.setattr(module, "resolve_clean", lambda name: COMMITS[name])
    monkeypatch.setattr(module.build, "build", lambda wanted, say: Environment(wanted.digest, "p", "3.11", {"torch": "9"}, {"torch": "9"}))
    monkeypatch.setattr(module.build, "find", lambda digest: None)
    monkeypatch.setattr(planning, "tree_of", Path)
    monkeypatch.setattr(planning, "code_version", lambda workload, device, tree=None: f"code of {tree}"[:10])
    monkeypatch.setattr(dataset, "resolve", lambda parameters: None)


@pytest.mark.usefixtures("known")
def test_every_problem_is_told_at_once() -> None:
    cells = [cell(environment="one"), cell(environment="same"), cell(environment="no"), cell("ray", environment="one")]
    cells += [cell(commit=name) for name in COMMITS]
    with pytest.raises(ConfigError) as caught:
        Variants(POOLS).check(cells, "s.yaml")
    assert [(problem.key, problem.problem) for problem in caught.value.problems] == [
        ("environment", "one and same have the same content"),
        ("no", "unknown environment"),
        ("one", "pool ray is a Ray cluster: its nodes have one environment, their image"),
        ("commit", "main and also-main are the same commit aaaaaaaaaaaa"),
    ]
    with pytest.raises(ConfigError) as caught:
        Variants(POOLS).check(cells, "s.yaml", {"commit": "main"})
    assert [problem.file for problem in caught.value.problems] == ["s.yaml", "environment", "environment", "--set"], "who gave it"
    Variants(POOLS).check([cell(), cell("ray", commit="main"), cell(environment="one"), cell(environment="other")], "s.yaml")


@pytest.mark.usefixtures("known")
def test_they_are_in_the_key_and_a_trial_without_them_keeps_its_own() -> None:
    maker = TrialMaker("made_up-20260101-000000-0000", POOLS, Variants(POOLS))
    plain, one, old = (maker.make(make_suite(), each, 1, 0) for each in (cell(), cell(environment="one"), cell(commit="old")))
    assert (plain.environment, plain.environment_digest, plain.commit) == (None, None, None)
    assert (one.environment, one.environment_digest, one.commit) == ("one", "d-one", None)
    assert (old.environment, old.commit) == (None, "b" * 40)
    assert plain.cell == planning.digest(
        {"workload": "synthetic", "pool": "cpu", "device": "cpu", "parameters": {"seed": 0, "steps": 3}}
    ), "as before there were any"
    assert len({plain.cell, one.cell, old.cell}) == len({plain.key, one.key, old.key}) == 3
    assert one.key_parts["code"] == plain.key_parts["code"] == "code of No" and old.key_parts["code"] == "code of bb"
    assert old.key_parts["libraries"] == plain.key_parts["libraries"] == libraries_version(POOLS["cpu"])
    assert one.key_parts["libraries"] == planning.digest({"python": "3.11", **dict.fromkeys(_counted()), "torch": "9"})


def _counted() -> tuple[str, ...]:
    from tasks.sweep import trial_key

    return trial_key._LIBRARIES


@pytest.mark.usefixtures("known")
def test_a_plan_that_is_only_shown_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.build, "build", lambda wanted, say: pytest.fail("it was built"))
    maker = TrialMaker("made_up-20260101-000000-0000", POOLS, Variants(POOLS, build_them=False))
    assert maker.make(make_suite(), cell(environment="one"), 1, 0).key_parts["libraries"] == planning.digest({"not built": "d-one"})
