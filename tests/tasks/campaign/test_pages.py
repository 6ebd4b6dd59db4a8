"""What a campaign's pages say is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.spec.campaign import CampaignFile, CampaignSweep
from experiments.trial import Outcome
from tasks.campaign import pages
from tasks.campaign.pages import publish_pages, sentences
from tasks.campaign.store import CampaignError, CampaignState, CampaignStore
from tasks.sweep.store import SweepStore
from tests.tasks.plan_support import SWEEP_ID, make_plan, make_trial, saved

FILE = CampaignFile(
    campaign="two",
    budget="9m",
    sweeps=[CampaignSweep(name=name, suite="made_up", to=to) for name, to in (("a", "one"), ("b", "one"), ("c", "other"))],
)


def test_cells_without_a_trial_and_with_fewer_are_told_apart() -> None:
    measured, again = make_trial(1), make_trial(2, repeat=2, parameters={"number": 1})
    again = again.model_copy(update={"cell": measured.cell, "axes": measured.axes})
    plan = make_plan([measured]).model_copy(update={"cut": [again, make_trial(3)]})
    assert sentences(plan) == [
        "1 cell not measured for want of time: number 3",
        "fewer trials than planned, for want of time: number 1",
    ]
    assert sentences(plan, {again.key}) == [
        "1 cell not measured for want of time: number 3",
        "fewer trials than planned, since it was interrupted or the infrastructure failed: number 1",
    ]
    assert sentences(make_plan([measured])) == []
    other = make_trial(3).model_copy(update={"axes": measured.axes, "cell": "other"})
    assert sentences(make_plan([measured]).model_copy(update={"cut": [other]})) == ["1 cell not measured for want of time: cpu · number 1"]


def test_sweeps_of_one_folder_share_a_page_which_names_what_was_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK, t2=Outcome.INFRA)
    told: list[tuple[list[str], Path, list[str]]] = []

    def publish(stores: list[SweepStore], folder: Path, missing: list[str]) -> Path:
        assert not any(store.is_held() for store in stores)
        told.append(([store.sweep_id for store in stores], folder, missing))
        return folder / "README.md"

    monkeypatch.setattr(pages, "publish", publish)
    found = list(publish_pages(FILE, CampaignState(campaign="two", sweeps={"a": SWEEP_ID}), tmp_path))
    lost = "a: 1 cell not measured since it was interrupted or the infrastructure failed: number 2"
    unmeasured = "b (made_up, profile full): not measured, there was no time for it"
    assert told == [([SWEEP_ID], tmp_path / "one", [lost, unmeasured])]
    assert [(folder, readme) for folder, readme, _ in found] == [("one", tmp_path / "one" / "README.md"), ("other", None)]


def test_nothing_measured_is_an_error_before_any_page(tmp_path: Path) -> None:
    saved(make_plan([make_trial(1)]))
    with pytest.raises(CampaignError, match="nothing of two was measured yet"):
        list(publish_pages(FILE, CampaignState(campaign="two", sweeps={"a": SWEEP_ID}), tmp_path))


def test_one_command_at_a_time_works_on_a_campaign() -> None:
    with (
        CampaignStore("two").lock(),
        pytest.raises(CampaignError, match="another `sweep campaign` works on two"),
        CampaignStore("two").lock(),
    ):
        pass
    with pytest.raises(CampaignError, match=r"'\.\./two' is no name of a campaign"):
        CampaignStore("../two")
