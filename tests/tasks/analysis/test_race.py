"""A race from plan and results: who drops out after which round and why, and when it is decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.stats.loss_parity import ParityStatus
from experiments.trial import Outcome
from tasks.analysis.race import Race, State, Why, race_of
from tasks.analysis.trial_row import TrialRow
from tests.tasks.cell_support import row
from tests.tasks.plan_support import make_plan, make_trial
from tests.tasks.race_support import changed, made_race, race_plan, race_row, race_rows, with_metric

EVERYONE = (0, 1, 2, 3)
LIMIT = [{"metric": "peak_memory_bytes", "sign": "<=", "limit": 1000.0}]


def outs(race: Race) -> list[tuple[int, int, Why]]:
    return [(one.racer, one.round, one.why) for one in race.dropouts]


def test_what_is_surely_behind_drops_out_and_the_last_one_has_won() -> None:
    rows = race_rows([100, 50, 80, 40], [EVERYONE] * 3)
    race = made_race(rows)
    assert (race.state, race.leader, race.left) == (State.WON, 0, [0])
    assert {racer for racer, _, why in outs(race) if why is Why.BEHIND} == {1, 2, 3}
    slow = next(one for one in race.dropouts if one.racer == 1)
    assert slow.ratio is not None and slow.ratio[0] == pytest.approx(2.0, rel=0.03) and 1 < slow.ratio[1] < slow.ratio[0] < slow.ratio[2]
    assert race.trial_count == 12


def test_less_is_better_where_it_is_to_be_minimised() -> None:
    rows = with_metric(race_rows([100] * 4, [EVERYONE] * 4), {0: 4e9, 1: 1e9, 2: 2e9, 3: 4e9})
    race = made_race(rows, metric="peak_memory_bytes", direction="minimise")
    assert (race.state, race.leader) == (State.WON, 1)


def test_after_one_round_nothing_is_known() -> None:
    race = made_race(race_rows([100, 50, 80, 40], [EVERYONE]))
    assert (race.state, race.leader, race.left, race.dropouts) == (State.OPEN, None, [0, 1, 2, 3], [])


def test_settings_that_are_level_end_the_race_without_a_winner() -> None:
    race = made_race(race_rows([100, 100.01, 50, 40], [EVERYONE, EVERYONE, *[(0, 1)] * 6], sd=0.001))
    assert race.state is State.LEVEL and set(race.left) == {0, 1}
    assert race.level_with(race.leader or 0) == [1 if race.leader == 0 else 0]
    assert made_race(race_rows([100, 100.01, 50, 40], [EVERYONE] * 2, sd=0.02)).state is State.OPEN


@pytest.mark.parametrize("outcome", [Outcome.DOES_NOT_FIT, Outcome.UNSUPPORTED, Outcome.DIVERGED, Outcome.CRASHED, Outcome.HANG])
def test_what_does_not_end_ok_drops_out_with_its_reason(outcome: Outcome) -> None:
    rows = changed(race_rows([100, 99, 98, 200], [EVERYONE] * 2), 3, 1, rate=None, outcome=outcome, reason="so it goes")
    [one] = made_race(rows[:4]).dropouts
    assert (one.racer, one.round, one.why, one.what, one.reason) == (3, 1, Why.ENDED, str(outcome), "so it goes")


def test_what_is_lost_to_the_infrastructure_stays_and_an_interrupted_round_is_not_judged() -> None:
    rows = race_rows([100, 99, 98, 97], [EVERYONE] * 2)
    lost = made_race(changed(rows, 3, 2, rate=None, outcome=Outcome.INFRA))
    assert len(lost.rounds) == 2 and 3 in lost.left
    damaged = made_race([*rows[:-1], replace(rows[-1], problem="result.json is damaged")])
    assert len(damaged.rounds) == 2 and 3 in damaged.left
    for outcome in (Outcome.CANCELLED, None):
        assert len(made_race(changed(rows, 3, 2, rate=None, outcome=outcome)).rounds) == 1


def test_a_trial_without_the_metric_drops_its_setting() -> None:
    rows = race_rows([100, 99, 98, 97], [EVERYONE])
    [one] = made_race(changed(rows, 2, 1, rate=None)).dropouts
    assert (one.racer, one.why, one.what) == (2, Why.NO_VALUE, "throughput")
    race = made_race(rows, where=LIMIT)
    assert race.state is State.NOBODY and {one.what for one in race.dropouts} == {"peak_memory_bytes"}


def test_a_setting_that_surely_breaks_a_limit_drops_out_however_fast() -> None:
    rows = with_metric(race_rows([100, 300, 80, 79], [EVERYONE] * 2), {0: 900.0, 1: 1100.0, 2: 900.0, 3: 900.0})
    race = made_race(rows, where=LIMIT)
    assert (1, 2, Why.LIMIT) in outs(race)
    assert next(one.what for one in race.dropouts if one.racer == 1) == "peak_memory_bytes<=1000"
    assert race.leader == 0 and race.inside[0]


def test_a_setting_of_which_the_limit_is_open_stays_but_neither_wins_nor_drops_others() -> None:
    rates = [100, 300, 99, 50]
    memory = {0: 900.0, 1: [800.0, 1150.0], 2: 900.0, 3: 900.0}
    race = made_race(with_metric(race_rows(rates, [EVERYONE] * 2), memory), where=LIMIT)
    assert race.leader == 0 and 1 in race.left and 0 in race.left
    assert [limit.metric for limit in race.open_limits[1]] == ["peak_memory_bytes"]
    assert race.state is State.OPEN


@pytest.mark.parametrize(("sign", "left"), [("<=", [0, 1]), (">=", [1, 2])])
def test_a_setting_that_is_at_the_limit_keeps_it(sign: str, left: list[int]) -> None:
    """A batch size of 6, three times: what its logarithms add up to is not three times that of 6."""
    rows = with_metric(race_rows([100, 100, 100], [range(3)] * 3), {0: 5, 1: 6, 2: 7}, "batch_size")
    race = made_race(rows, where=[{"metric": "batch_size", "sign": sign, "limit": 6.0}])
    assert race.left == left and not race.open_limits
    assert list(np.flatnonzero(race.inside)) == left


def test_the_chance_of_error_is_shared_by_the_race_and_its_limits() -> None:
    """A setting that alone would drop out narrowly stays where half of the chance is the limit's."""
    found = []
    for where in ([], LIMIT * 9):
        rows = with_metric(race_rows([100, 97.9, 97.9, 97.9], [EVERYONE] * 3, sd=0.004), dict.fromkeys(EVERYONE, 900.0))
        found.append(made_race(rows, where=where).rounds[-1].standing)
    others = np.flatnonzero(np.arange(4) != found[0].leader)
    assert (found[1].low[others] < found[0].low[others]).all()


def test_disturbed_trials_do_not_count_beside_others() -> None:
    """The third trial of the best is 60 % slower, and disturbed; it would be behind by far."""
    rows = race_rows([100, 90, 89, 88], [EVERYONE] * 4)
    disturbed = row({"pool": "cpu", "dataloader_workers": 0}, 40.0, repeat=3)
    assert disturbed.result is not None
    result = disturbed.result.model_copy(update={"disturbed": "others used the CPU"})
    slow = [race_row(0, 3, 40.0) if one.trial.key == disturbed.trial.key else one for one in rows]
    marked = [replace(one, result=result) if one.trial.key == disturbed.trial.key else one for one in slow]
    assert made_race(marked).rounds[2].standing.leader == 0
    assert made_race(marked).leader == 0
    assert abs(made_race(marked).rounds[-1].standing.behind[0]) < abs(made_race(slow).rounds[-1].standing.behind[0]) + 1e-12


@pytest.mark.parametrize(("metric", "leader"), [("eval_loss_after", 1), ("peak_memory_bytes", 0)])
def test_a_disturbed_trials_loss_counts(metric: str, leader: int) -> None:
    """The first racer's second trial has four times as much of it, and is disturbed."""
    rows = with_metric(race_rows([100, 100], [[0, 1]] * 3), {0: [1.0, 4.0, 1.0], 1: [1.1, 1.1, 1.1]}, metric)
    at = next(place for place, one in enumerate(rows) if (one.trial.axes["dataloader_workers"], one.trial.repeat) == (0, 2))
    result = rows[at].result
    assert result is not None
    rows[at] = replace(rows[at], result=result.model_copy(update={"disturbed": "others used the CPU"}))
    assert made_race(rows, metric=metric, direction="minimise").rounds[-1].standing.leader == leader


def test_what_was_decided_then_holds_though_a_trial_ran_again_since() -> None:
    """Racer 3 has no trial in round 3, so it was out after round 2, whatever its values say today; racer 2 went on."""
    rows = race_rows([100, 99.8, 40, 99.9], [EVERYONE, EVERYONE, (0, 1, 2)])
    race = made_race(rows)
    assert (3, 2, Why.AGAIN) in outs(race)
    assert not any(racer == 2 and number == 2 for racer, number, _ in outs(race)) and (2, 3, Why.BEHIND) in outs(race)


@pytest.mark.parametrize(("seeds", "out_after"), [(2, 3), (3, 2)])
def test_a_reference_is_in_a_round_for_its_seeds_alone_until_there_are_enough(seeds: int, out_after: int) -> None:
    """Racer 0 is behind from round 2 on, and runs in round 3. Of two seeds that says that it had not dropped out then; of three nothing."""
    rows = race_rows([40, 100, 99.9], [range(3)] * 3)
    race = made_race(rows, references=[rows[0].trial.cell], seeds=seeds)
    assert [number for racer, number, _ in outs(race) if racer == 0] == [out_after]


def test_the_same_results_give_the_same_race_again() -> None:
    rows = race_rows([100, 99, 98, 50], [EVERYONE] * 3)
    one, other = made_race(rows), made_race(rows)
    assert one.dropouts == other.dropouts and one.state == other.state


def test_a_sweep_that_is_no_race_has_none() -> None:
    with pytest.raises(ValueError, match="is no race"):
        race_of(make_plan([make_trial(1)]), [])


# --- loss parity


def losses(level: float, seed: int) -> list[float]:
    """Of 200 steps, that fall to `level`."""
    noise = 1e-4 * np.random.default_rng([seed]).normal(size=200)
    return list(level * (1 + 2 * np.exp(-np.arange(200) / 20)) * (1 + noise))


def parity_rows(bf16_loss: float) -> list:
    """Three rounds, a seed each: the fp32 reference (slow), a bf16 cell whose loss is `bf16_loss`, and another like the reference's."""
    rows = []
    for number in (1, 2, 3):
        for precision, workers, rate, level in (("fp32", 0, 40.0, 2.0), ("bf16", 0, 100.0, bf16_loss), ("bf16", 1, 99.0, bf16_loss)):
            axes = {"pool": "cpu", "precision": precision, "dataloader_workers": workers}
            jitter = 1 + 0.001 * ((number + workers) % 2)
            one = row(axes, rate * jitter, repeat=number, parameters={"seed": number}, losses=losses(level, number))
            if precision == "fp32":
                one = type(one)(
                    one.trial.model_copy(update={"reference": True}), one.result, one.summary, steps=one.steps, losses=one.losses
                )
            rows.append(one)
    return rows


def parity_race(rows: list) -> Race:
    references = list({one.trial.cell for one in rows if one.trial.reference})
    plan = race_plan(rows, parity=True, references=references, seeds=3)
    return race_of(plan, rows)


def test_a_loss_that_differs_from_its_references_drops_out_once_all_seeds_ran() -> None:
    race = parity_race(parity_rows(2.2))
    assert [one.why for one in race.dropouts] == [Why.STRUCK, Why.STRUCK] and {one.round for one in race.dropouts} == {3}
    assert race.state is State.NOBODY and len(race.trials) == 2, "the reference does not race"


def test_a_loss_that_is_its_references_goes_on_and_nothing_is_decided_before() -> None:
    rows = parity_rows(2.0)
    race = parity_race(rows)
    assert set(race.parity.values()) == {ParityStatus.PROVEN} and race.leader == 0
    assert [one.why for one in race.dropouts] in ([], [Why.BEHIND])
    assert parity_race([one for one in rows if one.trial.repeat < 3]).state is State.OPEN


def test_a_loss_is_judged_once_whatever_later_rounds_show() -> None:
    """fp32 races too, so that its seeds become more. The loss of bf16 is 1 to 3 % higher: unproven over three seeds, struck over five."""
    rows = [
        row(
            {"pool": "cpu", "precision": precision},
            105.0 if (number + racer) % 2 else 100.0,
            repeat=number,
            parameters={"seed": number},
            losses=losses(2.0 if precision == "fp32" else level, number),
        )
        for number, level in enumerate((2.06, 2.04, 2.02, 2.04, 2.04), 1)
        for racer, precision in enumerate(("fp32", "bf16"))
    ]

    def judged_after(seeds: int) -> tuple[dict[int, ParityStatus], list[tuple[int, int, Why]], list[int], int]:
        race = race_of(race_plan(rows, parity=True, references=[rows[0].trial.cell], seeds=seeds), rows)
        return dict(race.parity), outs(race), race.left, len(race.rounds)

    assert judged_after(3) == ({1: ParityStatus.UNPROVEN}, [], [0, 1], 5)
    assert judged_after(5) == ({1: ParityStatus.STRUCK}, [(1, 5, Why.STRUCK)], [0], 5)


def on_two_hosts(first: int, racers: tuple[int, ...]) -> list[TrialRow]:
    """Equal racers over three rounds, on a host that is 3 % faster: these from round `first` on, or without any all after it."""
    rows = []
    for one in race_rows([100] * 4, [EVERYONE] * 3, sd=0.0005):
        racer, number = one.trial.axes["dataloader_workers"], one.trial.repeat
        there = racer in racers if number >= first and racers == (2, 3) else number > first
        summary = {**one.summary, "throughput": float(one.summary["throughput"] or 0) * (1.03 if there else 1.0)}
        rows.append(replace(one, summary=summary, environment={"host_id": "b" if there else "a"}))
    return rows


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("racers", [(), (2, 3)], ids=["all later rounds", "two racers"])
def test_what_ran_on_another_host_drops_nobody(first: int, racers: tuple[int, ...]) -> None:
    rows = on_two_hosts(first, racers)
    assert outs(made_race(rows)) == []
    feigned = outs(made_race([replace(one, environment={"host_id": "a"}) for one in rows]))
    assert {racer for racer, _, _ in feigned} == ({0, 1} if (first, racers) == (1, (2, 3)) else set()), "where hosts are not told apart"
