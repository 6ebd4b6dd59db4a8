"""What a campaign's pages say is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.trial_layout import PLAN
from experiments.spec.campaign import CampaignFile, CampaignSweep
from experiments.trial import Outcome, Trial
from tasks.campaign import pages
from tasks.campaign.pages import publish_pages, sentences
from tasks.campaign.store import CampaignError, CampaignState, CampaignStore
from tasks.report.lacks import Lack
from tasks.sweep.cut import cut
from tasks.sweep.store import Plan, SweepStore
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
    late = {trial.key for trial in plan.cut}
    assert sentences(plan, late=late) == [
        "1 cell not measured for want of time: number 3",
        "fewer trials than planned, for want of time: number 1",
    ]
    assert sentences(plan, {again.key}, late) == [
        "1 cell not measured for want of time: number 3",
        "fewer trials than planned, since it was interrupted or the infrastructure failed: number 1",
    ]
    assert sentences(plan, late={again.key}) == [
        "fewer trials than planned, for want of time: number 1",
        "1 cell not measured when this page was written: number 3",
    ], "of what no run had come to yet no reason is told"
    assert sentences(make_plan([measured])) == []
    other = make_trial(3).model_copy(update={"axes": measured.axes, "cell": "other"})
    assert sentences(make_plan([measured]).model_copy(update={"cut": [other]}), late={other.key}) == [
        "1 cell not measured for want of time: cpu · number 1"
    ]


def test_sweeps_of_one_folder_share_a_page_which_names_what_was_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK, t2=Outcome.INFRA)
    told: list[tuple[list[str], Path, list[Lack]]] = []

    def publish(stores: list[SweepStore], folder: Path, missing: list[Lack], beside: list[str], parts: dict[str, Plan]) -> Path:
        assert not beside and [len(plan.trials) for plan in parts.values()] == [1]
        assert not any(store.is_held() for store in stores)
        told.append(([store.sweep_id for store in stores], folder, missing))
        return folder / "README.md"

    monkeypatch.setattr(pages, "publish", publish)
    found = list(publish_pages(FILE, CampaignState(campaign="two", sweeps={"a": SWEEP_ID}), tmp_path))
    why = "1 cell not measured since it was interrupted or the infrastructure failed: number 2"
    lost = Lack(called="a", sweep_id=SWEEP_ID, what=why)
    unmeasured = Lack(called="b", suite="made_up", profile="full", what="not measured when this page was written")
    assert lost.sentence == f"a ({SWEEP_ID}): {why}"
    assert unmeasured.sentence == "b (made_up, profile full): not measured when this page was written"
    assert told == [([SWEEP_ID], tmp_path / "one", [lost, unmeasured])]
    assert [(folder, readme) for folder, readme, *_ in found] == [("one", tmp_path / "one" / "README.md"), ("other", None)]


def test_a_damaged_plan_refuses_its_own_page_whichever_place_its_sweep_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(make_plan([make_trial(1)]), t1=Outcome.OK)
    damaged = SweepStore(f"{SWEEP_ID[:-1]}{'1' if SWEEP_ID[-1] != '1' else '2'}")
    damaged.dir.mkdir(parents=True)
    (damaged.dir / PLAN).write_text("{")
    monkeypatch.setattr(pages, "publish", lambda stores, folder, *_: folder / "README.md")
    for state in (_state(a=damaged.sweep_id, c=SWEEP_ID), _state(a=SWEEP_ID, c=damaged.sweep_id)):
        found = list(publish_pages(FILE, state, tmp_path))
        assert [one.readme is not None for one in found] == [state.sweeps[name] == SWEEP_ID for name in ("a", "c")]
        assert [str(damaged.dir / PLAN) in one.refused for one in found] == [one.readme is None for one in found]


@pytest.mark.parametrize("killed", [True, False])
def test_a_second_page_gives_the_reasons_of_the_first_and_the_sweep_stays_as_its_flow_left_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, killed: bool
) -> None:
    """A flow that was killed cut nothing: what it left to do had no want of time, whatever a page left out of the plan."""
    store = saved(make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK)
    if not killed:
        store.save_plan(cut(store, store.load_plan()))
    before = store.load_plan()
    published: list[list[Trial]] = []
    monkeypatch.setattr(pages, "publish", lambda *given: published.append(given[4].get(SWEEP_ID, before).trials) or given[1])
    why = "when this page was written" if killed else "for want of time"
    for _ in range(2):
        first, _other = publish_pages(FILE, _state(a=SWEEP_ID), tmp_path)
        assert first.missing[0].what == f"1 cell not measured {why}: number 2"
        assert store.load_plan() == before and not store.is_held()
    assert published == [before.trials[:1]] * 2


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"device_kind": "cuda", "device_name": "NVIDIA H100 80GB HBM3"}, "h100"),
        ({"device_kind": "cuda", "device_name": "NVIDIA A100-SXM4-80GB"}, "a100"),
        ({"device_kind": "cuda", "device_name": "NVIDIA GeForce RTX 4090"}, "geforce-rtx-4090"),
        ({"device_kind": "hpu", "device_name": "GAUDI2"}, "gaudi2"),
        ({"device_kind": "cpu", "device_name": "Intel(R) Xeon(R) Processor"}, "cpu"),
        ({}, "unknown"),
    ],
)
def test_a_folder_is_named_for_the_device_that_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: dict[str, str], name: str
) -> None:
    monkeypatch.setattr(pages, "publish", lambda stores, folder, *_: folder / "README.md")
    store = saved(plan := make_plan([make_trial(1), make_trial(2)]), t1=Outcome.OK, t2=Outcome.DOES_NOT_FIT)
    first = plan.trials[0].key
    result = store.result(first)
    assert result is not None
    store.save_result(result.model_copy(update={"environment": told}))
    sweeps = [CampaignSweep(name=called, suite="made_up", to="results/{device}-x1") for called in ("a", "b")]
    file = CampaignFile(campaign="two", budget="9m", sweeps=sweeps)
    found = [(folder, readme, len(missing)) for folder, readme, missing, *_ in publish_pages(file, _state(a=SWEEP_ID), tmp_path)]
    assert found == [(f"results/{name}-x1", tmp_path / f"results/{name}-x1" / "README.md", 1)]


@pytest.mark.parametrize("told", [True, False])
def test_a_sweep_that_cannot_be_read_refuses_the_page_of_its_device_where_its_results_tell_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: bool
) -> None:
    monkeypatch.setattr(pages, "publish", lambda stores, folder, *_: folder / "README.md")
    ids = {"a": SWEEP_ID, "b": SWEEP_ID.replace("made_up", "another"), "c": SWEEP_ID.replace("made_up", "third")}
    stores = [_measured_on(ids[called], device) for called, device in (("a", "H100"), ("b", "H200"), ("c", "H100" if told else None))]
    damaged = stores[-1].dir / PLAN
    damaged.write_text("{")
    found = {page.folder: page for page in publish_pages(_of_devices(*ids), _state(**ids), tmp_path)}
    assert {folder: page.readme is not None for folder, page in found.items()} == {"h100": False, "h200": told}
    assert [str(damaged) in page.refused for page in found.values()] == [page.readme is None for page in found.values()]
    only = list(publish_pages(_of_devices("c"), _state(c=ids["c"]), tmp_path))
    assert [(page.folder, str(damaged) in page.refused) for page in only] == [("h100" if told else "{device}", True)]


def test_sweeps_on_other_devices_have_a_page_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: dict[str, list[str]] = {}
    called_with = lambda stores, folder, *_: told.setdefault(folder.name, [one.sweep_id for one in stores])  # noqa: E731
    monkeypatch.setattr(pages, "publish", called_with)
    ids = {"a": SWEEP_ID, "b": SWEEP_ID.replace("made_up", "another"), "c": SWEEP_ID.replace("made_up", "third")}
    for called, device in (("a", "H100"), ("b", "H200"), ("c", "H100")):
        _measured_on(ids[called], device)
    list(publish_pages(_of_devices(*ids), _state(**ids), tmp_path))
    assert told == {"h100": [ids["a"], ids["c"]], "h200": [ids["b"]]}


def _measured_on(sweep_id: str, device: str | None) -> SweepStore:
    store = saved(plan := make_plan([make_trial(1)]).model_copy(update={"sweep_id": sweep_id}), t1=Outcome.OK)
    result = store.result(plan.trials[0].key)
    assert result is not None
    if device is not None:
        store.save_result(result.model_copy(update={"environment": {"device_kind": "cuda", "device_name": f"NVIDIA {device}"}}))
    return store


def _of_devices(*names: str) -> CampaignFile:
    sweeps = [CampaignSweep(name=name, suite="made_up", to="{device}") for name in names]
    return CampaignFile(campaign="two", budget="9m", sweeps=sweeps)


def _state(**sweeps: str) -> CampaignState:
    return CampaignState(campaign="two", sweeps=sweeps)


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
    with pytest.raises(CampaignError, match=r"^--state: '\.\./two' is no name of a campaign's state; write small letters, "):
        CampaignStore("../two")
