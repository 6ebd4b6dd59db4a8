"""`sweep campaign` after its file was changed: which sweep an entry has then."""

from __future__ import annotations

from tasks.campaign.store import CampaignStore
from tasks.sweep.store import SweepStore
from tests.flows.cli.test_campaign import TWO, Machine, machine

__all__ = ["machine"]  # a fixture


def test_an_entry_that_asks_for_something_else_gets_a_new_sweep_and_the_old_one_is_kept(machine: Machine) -> None:
    machine()
    before = CampaignStore("two").load().sweeps
    machine.file.write_text(TWO.replace("dataloader_workers: [0]", "dataloader_workers: [1]"))
    assert machine().exit_code == 0 and machine.counts == [("tune", 4)]
    state = CampaignStore("two").load()
    assert state.earlier == [before["synthetic-tune"]] and state.sweeps["synthetic-smoke"] == before["synthetic-smoke"]


def test_an_entry_whose_choices_are_written_in_another_order_has_the_sweep_that_it_had(machine: Machine) -> None:
    machine.file.write_text(TWO.replace("dataloader_workers: [0]", "dataloader_workers: [0, 1]"))
    machine()
    before = CampaignStore("two").load()
    machine.file.write_text(TWO.replace("dataloader_workers: [0]", "dataloader_workers: [1, 0]"))
    assert machine().exit_code == 0 and machine.ran == [], "the cells are the same"
    assert CampaignStore("two").load() == before
    machine.file.write_text(TWO.replace("rounds: {most: 1}, only", "rounds: {most: 2}, only").replace("workers: [0]", "workers: [0, 1]"))
    assert machine().exit_code == 0 and machine.counts == [("tune", 8)], "in rounds it is another sweep"
    assert CampaignStore("two").load().earlier == [before.sweeps["synthetic-tune"]]


def test_an_entry_that_is_changed_back_has_the_sweep_that_it_had(machine: Machine) -> None:
    machine()
    first = CampaignStore("two").load()
    machine.file.write_text(TWO.replace("dataloader_workers: [0]", "dataloader_workers: [1]"))
    machine()
    second = CampaignStore("two").load()
    machine.file.write_text(TWO)
    assert machine().exit_code == 0 and machine.ran == [], "all of it was measured"
    state = CampaignStore("two").load()
    assert state.sweeps == first.sweeps, "--publish looks there"
    assert state.earlier == [second.sweeps["synthetic-tune"]] != [first.sweeps["synthetic-tune"]]


def test_an_entry_that_is_changed_back_goes_on_with_what_was_begun(machine: Machine) -> None:
    machine("--budget", "70s")
    assert machine.counts == [("smoke", 1), ("tune", 2)]
    begun = CampaignStore("two").load().sweeps["synthetic-tune"]
    machine.file.write_text(TWO.replace("dataloader_workers: [0]", "dataloader_workers: [1]"))
    machine()
    machine.file.write_text(TWO)
    machine()
    assert machine.counts == [("tune", 2)] and machine.ran[0][0].sweep_id == begun


def test_a_renamed_entry_has_the_sweep_that_it_had_and_damage_elsewhere_does_not_keep_it(machine: Machine) -> None:
    machine()
    first = CampaignStore("two").load().sweeps
    machine.file.write_text(TWO.replace("dataloader_workers: [0]", "dataloader_workers: [1]"))
    machine()
    (SweepStore(CampaignStore("two").load().sweeps["synthetic-tune"]).dir / "plan.json").write_text("{}")
    machine.file.write_text(TWO.replace("{suite: synthetic, profile: tune", "{name: other, suite: synthetic, profile: tune"))
    done = machine()
    assert done.exit_code == 0 and machine.ran == [], done.output
    assert CampaignStore("two").load().sweeps["other"] == first["synthetic-tune"]
