"""A campaign's page changes nothing of a sweep that lacks trials, whatever ends its command. Made-up sweeps; nothing is a measurement."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cluster.trial_layout import CERTIFICATES, HELD_TIME, KNOWN_SPREAD, PLAN
from experiments.config.paths import runs_root
from tasks.analysis.results import load_sweep
from tasks.campaign.pages import publish_pages
from tasks.campaign.store import CampaignState
from tasks.report import publish as publish_module
from tasks.report.manifest import check_published
from tasks.sweep.store import SweepStore
from tests.tasks.campaign.test_pages_of_several_machines import FILE, OLD, measured, written

KNOWLEDGE = {KNOWN_SPREAD, CERTIFICATES, HELD_TIME}  # what a report writes, so that it says the same later


class Killed(BaseException):
    """The process ends here, and nothing after it is done."""


@pytest.fixture
def store() -> SweepStore:
    """Of four trials, the last of which had no time."""
    measured(OLD, set={"batch_size": 8})
    store = SweepStore(OLD)
    last = store.trial_dir(store.load_plan().trials[-1].key)
    shutil.rmtree(last)
    store.request_stop("made up")
    load_sweep(store.dir)  # which keeps the rows that it read
    return store


def files(store: SweepStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.dir.iterdir() if path.is_file() and path.name not in KNOWLEDGE}


def test_a_page_without_what_had_no_time_leaves_its_sweep_byte_for_byte(store: SweepStore, tmp_path: Path) -> None:
    before = files(store)
    assert {PLAN, store.stop_file.name} <= {*before}
    page = written(tmp_path, small=OLD)
    assert page.readme is not None and page.missing[0].what == "fewer trials than planned, when this page was written: MP-1"
    published = load_sweep(tmp_path / "page" / OLD)
    assert len(published.plan.trials) == 3 and [trial.key for trial in published.plan.cut] == [store.load_plan().trials[-1].key]
    assert check_published(tmp_path / "page") == []
    assert files(store) == before and len(list((store.dir / "trials").iterdir())) == 3


def test_a_command_that_is_killed_while_it_writes_the_page_leaves_the_sweep_so_too(
    store: SweepStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, then = files(store), list[dict[str, bytes]]()

    def kill(*_: object) -> None:
        then.append(files(store))  # what SIGKILL would leave
        raise Killed

    monkeypatch.setattr(publish_module, "write_page", kill)
    with pytest.raises(Killed):
        list(publish_pages(FILE, CampaignState(campaign="two", sweeps={"small": OLD}), tmp_path))
    assert then == [before] and not store.is_held()


def test_a_sweep_on_which_a_process_works_is_refused_and_left_alone(store: SweepStore, tmp_path: Path) -> None:
    with store.lease():
        before = (store.dir / PLAN).read_bytes()
        page = written(tmp_path, small=OLD)
        assert (
            page.readme is None
            and page.refused == f"nothing was published:\n- {store.dir}: a process works on it; `sweep stop {store.sweep_id}` ends it"
        )
        assert (store.dir / PLAN).read_bytes() == before and store.is_held()
    assert not (tmp_path / "page").exists() and runs_root() in store.dir.parents
