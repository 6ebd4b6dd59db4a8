"""A campaign's page over machines whose runs folders are not the same, from made-up sweeps. Nothing here is a measurement."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from experiments.config.paths import runs_root
from experiments.spec.campaign import CampaignFile, CampaignSweep
from tasks.campaign import pages
from tasks.campaign.pages import WrittenPage, publish_pages
from tasks.campaign.store import CampaignState
from tasks.report.lacks import Lack, lacks_of
from tasks.report.manifest import check_published
from tasks.report.publish import publish
from tasks.report.republish import sweeps_of
from tasks.sweep.store import Request, SweepStore
from tests.tasks.fake_sweep import Fake, whole_sweep

OLD, NEW, AGAIN = (f"made-up-2026010{day}-000000-0000" for day in (1, 2, 3))
FILE = CampaignFile(
    campaign="two",
    budget="9m",
    sweeps=[
        CampaignSweep(name="small", suite="made_up", profile="smoke", set={"batch_size": 8}, to="page"),
        CampaignSweep(name="large", suite="made_up", profile="smoke", set={"batch_size": 64}, to="page"),
        CampaignSweep(name="other", suite="other", to="page"),
    ],
)


def measured(sweep_id: str, card: str = "Made-up CPU", **request: Any) -> None:
    """A sweep that asked for this."""
    axes = [{"pool": "cpu", "model": "base", "dataloader_workers": count} for count in (0, 1)]
    fakes = [Fake(each, 100.0 + each["dataloader_workers"], repeats=2, environment={"device_name": card}) for each in axes]
    store = whole_sweep(runs_root(), fakes, sweep_id=sweep_id)
    plan = store.load_plan()
    store.save_plan(plan.model_copy(update={"request": Request(suite="made_up", profile="smoke", **request)}))


def written(root: Path, file: CampaignFile = FILE, **sweeps: str) -> WrittenPage:
    """What `sweep campaign two --publish` writes with these sweeps."""
    [page] = publish_pages(file, CampaignState(campaign="two", sweeps=sweeps), root)
    return page


def published(root: Path, **sweeps: str) -> Path:
    """The page after that."""
    return root / written(root, **sweeps).folder


def missing_of(page: Path) -> list[str]:
    return [lack.sentence for lack in lacks_of(page)]


@pytest.fixture(scope="module")
def first_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a machine that measured `small` alone."""
    root = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWEEPBENCH_RUNS", str(root / "one"))
        measured(OLD, set={"batch_size": 8})
        return published(root, small=OLD)


@pytest.fixture
def page(first_page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That page as another machine finds it, which has none of its sweeps."""
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "two"))
    return Path(shutil.copytree(first_page, tmp_path / first_page.name))


def test_what_another_machine_measured_stays_and_is_not_said_to_be_missing(page: Path) -> None:
    steps = (page / OLD / "steps.parquet").read_bytes()
    assert missing_of(page) == [
        "large (made_up, profile smoke with batch_size 64): not measured when this page was written",
        "other (other, profile full): not measured when this page was written",
    ]
    measured(NEW, set={"batch_size": 64})
    published(page.parent, large=NEW)
    assert sweeps_of(page) == [OLD, NEW] and check_published(page) == []
    assert (page / OLD / "steps.parquet").read_bytes() == steps
    headings = [line for line in (page / "README.md").read_text().splitlines() if line.startswith("## ")]
    assert [heading.rpartition("; ")[2] for heading in headings] == ["batch\\_size 8", "batch\\_size 64"], "which tells them apart"
    assert missing_of(page) == ["other (other, profile full): not measured when this page was written"]


def test_a_sweep_that_asked_the_same_is_replaced_and_told(page: Path) -> None:
    measured(AGAIN, set={"batch_size": 8})
    assert written(page.parent, small=AGAIN).replaced == [f"{OLD} of 4 trials, by {AGAIN} of 4"]
    assert sweeps_of(page) == [AGAIN] and not (page / OLD).exists()
    assert written(page.parent, small=AGAIN).replaced == [], "by itself"


def test_the_same_on_another_card_of_one_short_name_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are named without the memory; 40 and 80 GB are other cards all the same."""
    small, large = "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"
    file = FILE.model_copy(update={"sweeps": [FILE.sweeps[0].model_copy(update={"to": "page-{device}"})]})
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "one"))
    measured(OLD, small, set={"batch_size": 8})
    first = written(tmp_path, file, small=OLD)
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path / "two"))
    measured(NEW, large, set={"batch_size": 8})
    second = written(tmp_path, file, small=NEW)
    assert (first.folder, second.folder, second.replaced) == ("page-a100", "page-a100", [])
    assert sorted(sweeps_of(tmp_path / "page-a100")) == [OLD, NEW]
    measured(AGAIN, large, set={"batch_size": 8})
    assert written(tmp_path, file, small=AGAIN).replaced == [f"{NEW} of 4 trials, by {AGAIN} of 4"]


def test_what_an_earlier_page_lacked_goes_with_the_sweeps_that_it_is_said_of(page: Path) -> None:
    publish(
        [],
        page,
        [Lack(called="small", sweep_id=OLD, what="fewer"), Lack(called="other", suite="other", profile="full", what="none")],
        [OLD],
    )
    measured(AGAIN, set={"batch_size": 8})
    assert missing_of(published(page.parent, small=AGAIN)) == [
        f"{called}, profile {profile}): not measured when this page was written"
        for called, profile in (("large (made_up", "smoke with batch_size 64"), ("other (other", "full"))
    ]


def test_what_a_page_lacked_of_a_sweep_that_goes_is_not_said_of_one_that_stays(page: Path) -> None:
    measured(NEW, set={"batch_size": 64})
    published(page.parent, large=NEW)
    lacks = [Lack(called=called, sweep_id=sweep_id, what="fewer") for called, sweep_id in (("small", OLD), ("large", NEW))]
    publish([], page, lacks, [OLD, NEW])
    measured(AGAIN, set={"batch_size": 8})
    assert written(page.parent, FILE.model_copy(update={"sweeps": FILE.sweeps[:1]}), small=AGAIN).missing == lacks[1:]
    assert sweeps_of(page) == [NEW, AGAIN]


def test_another_campaigns_sweep_of_the_same_name_keeps_what_is_said_of_it(page: Path) -> None:
    lacks = Lack(called="small", sweep_id=OLD, what="fewer trials than planned")
    publish([], page, [lacks], [OLD])
    other = FILE.model_copy(update={"sweeps": [FILE.sweeps[1].model_copy(update={"name": "small"})]})
    measured(NEW, set={"batch_size": 64})
    assert written(page.parent, other, small=NEW).missing == [lacks]
    assert sweeps_of(page) == [OLD, NEW]


def test_what_an_earlier_page_lacked_of_a_sweep_that_stays_is_said_again(page: Path) -> None:
    early = [Lack(called="small", what="fewer trials than planned, for want of time: MP-1"), Lack(called="large", what="gone")]
    publish([], page, early, [OLD])
    measured(NEW, set={"batch_size": 64})
    published(page.parent, large=NEW)
    assert missing_of(page) == [
        "small: fewer trials than planned, for want of time: MP-1",
        "other (other, profile full): not measured when this page was written",
    ]


@pytest.mark.parametrize(("of", "edited"), [("stays", f"{OLD}/report.md"), ("goes", f"{OLD}/report.md"), ("goes", "README.md")])
def test_a_page_that_was_edited_is_left_alone(page: Path, of: str, edited: str) -> None:
    """Also one of which no sweep stays, where what somebody wrote would be lost without a word."""
    (page / edited).write_text("edited")
    before = {path: path.read_bytes() for path in page.rglob("*") if path.is_file()}
    measured(NEW, set={"batch_size": 64 if of == "stays" else 8})
    one = written(page.parent, **{"large" if of == "stays" else "small": NEW})
    assert one.readme is None and one.refused == (
        f"{page} is not as `sweep publish` wrote it: {page / edited} was changed; undo that (`git checkout`), or move the folder away: "
        "the page is then written from what was measured here alone"
    )
    assert {path: path.read_bytes() for path in page.rglob("*") if path.is_file()} == before


def test_trials_of_the_earlier_page_that_a_copy_of_the_sweep_lacks_are_told(page: Path) -> None:
    """As where copies of a runs folder went on apart, or trials were measured again: the sweep's id is the same."""
    measured(OLD, set={"batch_size": 8})
    assert written(page.parent, small=OLD).replaced == [], "the same trials"
    store = SweepStore(OLD)
    plan = store.load_plan()
    store.save_plan(plan.model_copy(update={"trials": plan.trials[:3]}))
    assert written(page.parent, small=OLD).replaced == [f"{OLD} of 4 trials, by the same sweep of 3, without 1 of the earlier ones"]


def test_a_page_that_is_refused_keeps_no_other_from_being_written(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (page / "README.md").write_text("edited")
    monkeypatch.setattr(pages, "_environments", lambda store, plan: [store.sweep_id])
    monkeypatch.setattr(pages, "_cards", lambda sweep: frozenset())
    monkeypatch.setattr(pages, "_devices", lambda ids: {OLD: "a", NEW: "b"}.get(*ids, "c"))
    first, second, third = FILE.sweeps
    sweeps = [
        first,
        second.model_copy(update={"to": "{device}"}),
        second.model_copy(update={"to": "{device}", "name": "again"}),
        third.model_copy(update={"to": "held"}),
        third.model_copy(update={"to": "last", "name": "last"}),
    ]
    (page.parent / "b").mkdir()
    (page.parent / "b" / "notes.txt").write_text("of a person")
    others = {sweep_id: f"made-up-2026010{day}-000000-0000" for day, sweep_id in ((4, "large"), (5, "held"), (6, "last"))}
    measured(OLD, set={"batch_size": 8})
    measured(NEW, set={"batch_size": 64})
    for sweep_id in others.values():
        measured(sweep_id)
    state = CampaignState(
        campaign="two", sweeps={"small": OLD, "large": NEW, "again": others["large"], "other": others["held"], "last": others["last"]}
    )
    with SweepStore(others["held"]).lease():
        found = list(publish_pages(FILE.model_copy(update={"sweeps": sweeps}), state, page.parent))
    assert [(one.folder, one.readme is not None) for one in found] == [
        ("page", False),
        ("b", False),
        ("c", True),
        ("held", False),
        ("last", True),
    ]
    refused = [one.refused for one in found]
    assert "README.md was changed" in refused[0] and "holds what `sweep publish` did not write" in refused[1]
    assert others["held"] in refused[3] and refused[2] == refused[4] == ""


def test_a_sweep_that_went_on_on_another_card_is_on_its_page_once(page: Path) -> None:
    """As on a host with another processor: both are `cpu` in a folder's name."""
    measured(OLD, set={"batch_size": 8})
    store = SweepStore(OLD)
    last = store.load_plan().trials[-1]
    result = store.result(last.key)
    assert result is not None
    store.save_result(result.model_copy(update={"environment": {**result.environment, "device_name": "Another CPU"}}))
    again = written(page.parent, small=OLD)
    assert (again.refused, again.replaced) == ("", []) and sweeps_of(page) == [OLD] and check_published(page) == []


def test_a_sweep_that_stays_beside_another_that_asked_the_same_is_not_said_to_be_replaced(page: Path) -> None:
    """Two entries may ask the same, such as with other rounds; each has its sweep."""
    first, second = FILE.sweeps[0], FILE.sweeps[0].model_copy(update={"name": "twice"})
    file = FILE.model_copy(update={"sweeps": [first, second]})
    measured(OLD, set={"batch_size": 8})
    measured(NEW, set={"batch_size": 8})
    assert written(page.parent, file, small=OLD, twice=NEW).replaced == []
    assert written(page.parent, file, small=OLD, twice=NEW).replaced == []
    assert sweeps_of(page) == [OLD, NEW]
    measured(AGAIN, set={"batch_size": 8})
    assert written(page.parent, file, small=OLD, twice=AGAIN).replaced == [f"{NEW} of 4 trials, by {AGAIN} of 4"]


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_sweeps_that_asked_the_same_each_is_said_to_be_replaced_by_its_own_entrys(page: Path, turned: bool) -> None:
    """Their commands name the entry; without that the order of the entries tells."""
    later = "made-up-20260104-000000-0000"
    file = FILE.model_copy(update={"sweeps": [FILE.sweeps[0], FILE.sweeps[0].model_copy(update={"name": "twice"})]})
    for sweep_id, entry in ((OLD, "small"), (NEW, "twice"), (AGAIN, "small"), (later, "twice")):
        measured(sweep_id, set={"batch_size": 8})
        if turned:
            plan = SweepStore(sweep_id).load_plan()
            SweepStore(sweep_id).save_plan(plan.model_copy(update={"command": f"sweep campaign two --sweep {entry}"}))
    first = {"small": OLD, "twice": NEW}
    assert written(page.parent, file.part(["twice", "small"]) if turned else file, **first).replaced == []
    replaced = written(page.parent, file, small=AGAIN, twice=later).replaced
    assert sorted(replaced) == [f"{OLD} of 4 trials, by {AGAIN} of 4", f"{NEW} of 4 trials, by {later} of 4"]
    assert sweeps_of(page) == [AGAIN, later]


def test_of_a_page_of_which_no_sweep_stays_nothing_is_said_to_be_missing_still(page: Path) -> None:
    """`large` and `other` were of another campaign, which asks for nothing of what is on the page now."""
    measured(OLD, set={"batch_size": 8})
    written(page.parent, FILE.model_copy(update={"sweeps": FILE.sweeps[:1]}), small=OLD)
    assert sweeps_of(page) == [OLD] and missing_of(page) == []


def test_a_title_that_the_file_gives_by_now_is_on_the_page_and_the_sweep_stays_as_it_is(page: Path) -> None:
    """No run takes up a sweep of which all is measured, and so its plan keeps the title that it was planned with."""
    measured(AGAIN, set={"batch_size": 8})
    before = (SweepStore(AGAIN).dir / "plan.json").read_bytes()
    renamed = FILE.model_copy(update={"sweeps": [FILE.sweeps[0].model_copy(update={"title": "Called otherwise"}), *FILE.sweeps[1:]]})
    assert "Called otherwise" not in (published(page.parent, small=AGAIN) / "README.md").read_text()
    written(page.parent, renamed, small=AGAIN)
    assert "Called otherwise. " in (page / "README.md").read_text() and check_published(page) == []
    assert (SweepStore(AGAIN).dir / "plan.json").read_bytes() == before


@pytest.mark.parametrize(("changed", "size", "told"), [(True, 8, False), (True, 16, True), (False, 16, False)])
def test_what_an_entry_asks_for_since_it_was_changed_is_told_as_not_measured(page: Path, changed: bool, size: int, told: bool) -> None:
    """Its sweep, which asked for something else, is on the page, and not under a title of what it did not ask for. The options of a
    rehearsal are in no file."""
    measured(AGAIN, set={"batch_size": size})
    [found] = publish_pages(FILE, CampaignState(campaign="two", sweeps={"large": NEW, "small": AGAIN}), page.parent, changed=changed)
    small = "small (made_up, profile smoke with batch_size 8): not measured when this page was written"
    shutil.rmtree(page)
    titled = FILE.model_copy(update={"sweeps": [FILE.sweeps[0].model_copy(update={"title": "At batch 8"}), *FILE.sweeps[1:]]})
    [alone] = publish_pages(titled, CampaignState(campaign="two", sweeps={"small": AGAIN}), page.parent, changed=changed)
    assert ("At batch 8" in (page / "README.md").read_text()) is not told
    assert AGAIN in sweeps_of(page) and (small in missing_of(page)) is told
    assert small not in [lack.sentence for lack in found.missing], "the page had a sweep that asked for it"
    assert alone.readme is not None
