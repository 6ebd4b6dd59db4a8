"""`sweep campaign --publish`: which options go with it, and what they say of the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.trial_layout import PLAN
from flows.cli import run_campaign
from tasks.campaign.pages import WrittenPage
from tasks.campaign.store import CampaignStore
from tasks.report.lacks import Lack
from tasks.sweep.store import SweepStore
from tests.flows.cli.test_campaign import Machine, machine

__all__ = ["machine"]  # a fixture


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--sweep", "synthetic-smoke"],
            "--sweep: synthetic-smoke: is given with --publish; leave it out: a page has all sweeps of its folder",
        ),
        (["--budget", "9m"], "--budget: 9m: is given with --publish; leave it out: pages have what was measured, and nothing runs"),
        (["--again"], "--again: is given with --publish; leave it out: pages have what was measured, and nothing runs"),
        (["--plan"], "--plan: is given with --publish; leave out one of the two: --plan shows what would run, and writes nothing"),
    ],
)
def test_what_does_nothing_beside_publish_is_refused(machine: Machine, words: list[str], said: str) -> None:
    done = machine("--publish", *words)
    assert done.exit_code == 1 and done.stderr == f"error: {said}\n", done.output
    assert not done.stdout and machine.ran == []


def test_pages_of_a_rehearsal_are_of_the_settings_that_are_given(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Path, dict[str, str], bool]] = []
    monkeypatch.setattr(
        run_campaign, "publish_pages", lambda file, state, root, *, changed: written.append((root, state.sweeps, changed)) or []
    )
    assert machine("--set", "steps=50").exit_code == 0
    state = CampaignStore("two-rehearsal").load()
    sweep = f"sweep synthetic-smoke ({state.sweeps['synthetic-smoke']})"
    given = {
        "--set steps=60": "--set steps=60",
        "--set steps=50 --set batch_size=16": "--set steps=50 --set batch_size=16",
        "--set steps=50 --pool other": "--pool other --set steps=50",
    }
    for words, asks in given.items():
        refused = machine("--publish", *words.split())
        assert refused.exit_code == 1 and written == []
        assert refused.stderr == (
            f"error: --publish: {sweep} was measured with --set steps=50, and file and options now ask for {asks}; "
            "give the options that it was measured with, undo a change of the file, or measure it so first, without --publish\n"
        )
    assert machine("--publish", "--set", "steps=50").exit_code == 0
    assert written == [(CampaignStore("two-rehearsal").dir, state.sweeps, False)]
    assert machine("--set", "steps=60").exit_code == 0 and machine("--publish", "--set", "steps=60").exit_code == 0
    assert written[1:] == [(CampaignStore("two-rehearsal").dir, CampaignStore("two-rehearsal").load().sweeps, False)]
    assert written[1][1] != state.sweeps


def test_a_damaged_sweep_of_a_rehearsal_is_left_to_its_own_page(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.campaign.pages.publish", lambda stores, folder, *_: folder / "README.md")
    assert machine("--set", "steps=50").exit_code == 0
    store = CampaignStore("two-rehearsal")
    damaged = SweepStore(store.load().sweeps["synthetic-smoke"]).dir / PLAN
    damaged.write_text("{")
    done = machine("--publish", "--set", "steps=50")
    assert done.exit_code == 1 and done.stderr.startswith(f"no page docs/results/first: {damaged}, line 1: is not JSON"), done.output
    assert done.stdout == f"published: {store.dir / 'docs/results/second/README.md'}\n"


def test_a_campaign_under_another_state_is_published_with_the_settings_that_it_was_run_with(machine: Machine) -> None:
    mine = ["--state", "mine"]
    assert machine(*mine, "--set", "steps=50").exit_code == 0
    refused = machine(*mine, "--publish")
    assert (
        refused.exit_code == 1
        and "was measured with --set steps=50, and file and options now ask for nothing chosen or set" in refused.stderr
    )


def test_what_a_page_lacks_of_a_sweep_that_it_has_is_not_said_of_the_whole_sweep(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = [
        Lack(called="ladder", sweep_id="vit-1", what="fewer trials than planned, for want of time: MP-1"),
        Lack(called="ends", suite="vit", profile="ends", what="not measured when this page was written"),
    ]
    written = WrittenPage("page", Path("page/README.md"), lacks, ["vit-0 of 2 trials, by vit-1 of 3"])
    monkeypatch.setattr(run_campaign, "publish_pages", lambda file, state, root, *, changed: [written])
    done = machine("--publish")
    assert (done.exit_code, done.stdout) == (0, "published: page/README.md\n")
    assert done.stderr.splitlines() == [
        "  replaced: vit-0 of 2 trials, by vit-1 of 3",
        "  not whole on it: ladder (vit-1): fewer trials than planned, for want of time: MP-1",
        "  not on it: ends (vit, profile ends): not measured when this page was written",
    ]


def test_a_page_that_is_refused_is_told_beside_the_others_and_in_the_exit_status(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = WrittenPage("docs/results/second", tmp_path / "README.md", [], ["old of 4 trials, by new of 3"])
    bad = WrittenPage("docs/results/first", None, [], [], "README.md [of it] was changed")
    nothing = WrittenPage("docs/results/third", None, [], [])
    for found, status in (([bad, good, nothing], 1), ([good, nothing], 0)):
        monkeypatch.setattr(run_campaign, "publish_pages", lambda file, state, root, found=found, **_: iter(found))
        done = machine("--publish")
        told = {
            "docs/results/first": "no page docs/results/first: README.md [of it] was changed\n",
            "docs/results/second": "  replaced: old of 4 trials, by new of 3\n",
            "docs/results/third": "no page docs/results/third: nothing of it was measured\n",
        }
        assert done.exit_code == status and done.stderr == "".join(told[one.folder] for one in found)
        assert done.stdout == f"published: {tmp_path / 'README.md'}\n"
