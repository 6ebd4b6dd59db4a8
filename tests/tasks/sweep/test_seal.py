"""The seal of a plan: it holds for what was written, and for nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.config.errors import DamagedFile
from experiments.json_file import seal_of
from experiments.trial import Trial
from tasks.sweep.seal import why_unsealed
from tasks.sweep.store import SweepStore
from tests.tasks.plan_support import make_plan, make_trial, saved


def store() -> SweepStore:
    return saved(make_plan([make_trial(1), make_trial(2)], tree="0" * 16))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}, indent=3))


def test_what_the_flow_writes_is_sealed_and_the_plan_is_read_without_it() -> None:
    one = store()
    path = one.dir / "plan.json"
    content = json.loads(path.read_text())
    assert why_unsealed(path) is None and len(content["seal"]) == 64
    assert one.load_plan() == make_plan([make_trial(1), make_trial(2)], tree="0" * 16)
    change(path)
    assert why_unsealed(path) is None, "the content counts, not how it is written down"
    assert seal_of({**content, "seal": "other"}) == content["seal"]


def test_the_seal_may_stand_anywhere_but_only_once() -> None:
    one = store()
    path = one.dir / "plan.json"
    content = json.loads(path.read_text())
    seal = content.pop("seal")
    for text in (json.dumps({"seal": seal, **content}), json.dumps({**content, "seal": seal}, separators=(",", ":")) + "\n"):
        path.write_text(text)
        assert SweepStore(one.sweep_id).load_plan() == make_plan([make_trial(1), make_trial(2)], tree="0" * 16)
    path.write_text(json.dumps({"seal": "0" * 64, **content, "seal_": seal}).replace("seal_", "seal"))
    with pytest.raises(DamagedFile, match=r"plan\.json"):
        SweepStore(one.sweep_id).load_plan()


@pytest.mark.parametrize("how", ["value", "trial", "order", "extra"])
def test_a_plan_that_was_edited_has_no_seal_that_holds(how: str) -> None:
    one = store()
    path = one.dir / "plan.json"
    trials = json.loads(path.read_text())["trials"]
    change(
        path,
        **{
            "value": {"command": "sweep run other"},
            "trial": {"trials": [trials[0], {**trials[1], "sweep_id": "made_up-20260101-000000-ffff"}]},
            "order": {"trials": trials[::-1]},
            "extra": {"labels": {"a": "b"}},
        }[how],
    )
    said = f"{path} was changed after it was written: its seal does not hold; put back what the sweep wrote, or start another sweep"
    assert why_unsealed(path) == said
    with pytest.raises(DamagedFile, match="was changed after it was written"):
        one.load_plan()
    with pytest.raises(DamagedFile, match="was changed after it was written"):
        one.save_plan(make_plan([make_trial(1), make_trial(2)], tree="0" * 16))
    assert why_unsealed(path) is not None, "resuming the sweep does not seal it anew"


def test_a_seal_cannot_be_taken_off_and_an_early_plan_has_none() -> None:
    one = store()
    path = one.dir / "plan.json"
    content = json.loads(path.read_text())
    content.pop("seal")
    path.write_text(json.dumps(content))
    assert str(why_unsealed(path)).startswith(f"{path} has no seal: it was taken off; ")
    with pytest.raises(DamagedFile, match="taken off"):
        one.load_plan()
    change(path, schema_version=2)
    assert why_unsealed(path) == f"{path} has no seal: an earlier version wrote it"
    early = one.load_plan()
    one.save_plan(early)
    assert "seal" not in json.loads(path.read_text()), "going on with it makes it no sealed one"
    path.write_text("{")
    assert str(why_unsealed(path)).startswith(f"{path}, line 1: is not JSON (")


def test_a_plan_that_grows_is_sealed_anew() -> None:
    one = store()
    more: list[Trial] = [make_trial(1), make_trial(2), make_trial(3)]
    one.save_plan(make_plan(more, tree="0" * 16))
    assert why_unsealed(one.dir / "plan.json") is None and len(one.load_plan().trials) == 3
