"""What the products of traced steps attain: which are measured, which were known, what is left out, and what each rank is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cluster.devices.cpu import Cpu
from cluster.kept_files import KEPT
from cluster.worker import attainable
from cluster.worker.attainable import about_of, add_rates, attained, measured_rates, rows_of
from cluster.worker.measure import matrix_rates
from cluster.worker.measure.matrix_shapes import Called, Operand, Product, TracedProducts
from cluster.worker.measure.recorder import Recorder
from cluster.worker.rank_group import Ranks
from tests.session_support import World


def square(size: int) -> Product:
    return Product("mm", (Operand((size, size), (size, 1), "float32"), Operand((size, size), (size, 1), "float32")))


SMALL, MIDDLE, LARGE = square(10), square(20), square(40)  # 2,000, 16,000 and 128,000 FLOPs
SECONDS = {SMALL: 1.0, MIDDLE: 2.0, LARGE: 4.0}
# 16 s of kernels in a step, one of which has no shape; 40 small ones have more FLOPs than two middle ones
TRACED = TracedProducts(16.0, [Called(LARGE, 2.0, 10.0), Called(SMALL, 40.0, 2.0), Called(MIDDLE, 2.0, 3.0)])


class Clock:
    """Each measurement takes as long as one call."""

    def __init__(self) -> None:
        self.now, self.asked = 100.0, list[Product]()

    def measure(self, product: Product) -> float:
        self.asked.append(product)
        self.now += SECONDS[product]
        return SECONDS[product]

    def found(self, kept: dict[str, float], limit_s: float) -> Any:
        return measured_rates(TRACED.called, kept, self.measure, lambda: self.now, limit_s)


def test_products_with_the_most_flops_are_measured_first_and_kept() -> None:
    clock, kept = Clock(), dict[str, float]()
    found = clock.found(kept, 60.0)
    assert clock.asked == [LARGE, SMALL, MIDDLE]
    assert (found.seconds, found.measured, found.left_out) == (SECONDS, 3, {})
    assert kept == {product.key: seconds for product, seconds in SECONDS.items()}
    again = Clock()
    found = again.found(kept, 60.0)
    assert again.asked == [] and (found.seconds, found.measured) == (SECONDS, 0), "once for all trials"


@pytest.mark.parametrize(
    ("limit", "measured"), [(0.0, []), (3.9, [LARGE]), (4.0, [LARGE]), (4.1, [LARGE, SMALL]), (5.1, [LARGE, SMALL, MIDDLE])]
)
def test_when_the_time_is_up_no_product_is_begun(limit: float, measured: list[Product]) -> None:
    clock = Clock()
    found = clock.found({}, limit)
    assert clock.asked == measured == list(found.seconds)
    assert found.left_out == ({f"{limit:g} s were over": 3 - len(measured)} if len(measured) < 3 else {})


def test_what_is_known_takes_no_time_of_the_others() -> None:
    clock = Clock()
    found = clock.found({MIDDLE.key: 7.0}, 3.0)
    assert clock.asked == [LARGE] and found.seconds == {LARGE: 4.0, MIDDLE: 7.0} and found.left_out == {"3 s were over": 1}


def test_what_cannot_be_measured_is_left_out_and_the_rest_goes_on() -> None:
    def measure(product: Product) -> float:
        if product == LARGE:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 1.0

    kept: dict[str, float] = {}
    found = measured_rates(TRACED.called, kept, measure)
    assert set(found.seconds) == {SMALL, MIDDLE} and found.left_out == {"OutOfMemoryError": 1} and len(kept) == 2


def test_ranks_have_their_products_together() -> None:
    clock = Clock()
    measured_rates([*TRACED.called, Called(SMALL, 100.0, 1.0)], {}, clock.measure, lambda: clock.now, 60.0)
    assert clock.asked == [SMALL, LARGE, MIDDLE], "280,000 FLOPs of small ones, 256,000 of large ones"


def test_the_rest_counts_at_the_time_that_it_took() -> None:
    """Of 16 s of kernels, 13 s are of known products, which would have taken 2 x 4 + 2 x 2 = 12 s."""
    known = {LARGE: 4.0, MIDDLE: 2.0}
    assert attained(TRACED, 16.0, known) == {"covered_s": 13.0, "attainable_s": pytest.approx(15.0), "product_flops": 368_000.0}
    assert attained(TRACED, 8.0, known) == {"covered_s": 6.5, "attainable_s": pytest.approx(7.5), "product_flops": 368_000.0}, (
        "two at a time took half as long"
    )
    assert attained(TRACED, 16.0, {}) == attained(None, 16.0, known) == attained(replace(TRACED, kernels_s=0.0), 1.0, known) == {}


def test_the_window_names_the_products_that_took_longest() -> None:
    rows = rows_of(TRACED.called, {LARGE: 4.0})
    assert [row["product"].split()[1] for row in rows] == ["40x40", "20x20", "10x10"]
    large = {"product": "mm 40x40 . 40x40 float32 NN", "calls": 2.0, "flops": 128_000, "seconds": 10.0, "attainable_s": 8.0}
    assert rows[0] == large and rows[1]["attainable_s"] is None
    assert len(rows_of([Called(square(size), 1.0, 1.0) for size in range(1, 30)], {})) == attainable.ROWS


def test_a_rate_is_of_a_device_its_clocks_and_torch() -> None:
    facts = {"device_name": "NVIDIA H200", "power_limit_w": 700.0, "application_clocks_mhz": 1980, "driver": "595", "host": "h"}
    assert about_of(facts, 1400) == {
        "device_name": "NVIDIA H200",
        "application_clocks_mhz": 1980,
        "power_limit_w": 700.0,
        "loop": attainable.LOOP,
        "locked_clocks_mhz": 1400,
        "torch": torch.__version__,
        "tf32": False,
    }


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: World) -> Any:
    """As much of a session's context as this reads: one rank on a CPU, with a runs folder."""
    monkeypatch.setenv(KEPT, str(tmp_path / "runs"))
    monkeypatch.setattr(matrix_rates, "seconds_of", lambda product, device: SECONDS[product])
    return SimpleNamespace(ranks=Ranks(), recorder=Recorder(world), device=Cpu(), workload=SimpleNamespace())


def window_of(ranks: int) -> dict[str, Any]:
    return {"profile": {"where": "device", "ranks": [{"rank": rank, "matrix_s": 16.0} for rank in range(ranks)]}}


def said(world: World) -> list[str]:
    return [note["text"] for note in world.of("note")]


def test_where_steps_vary_the_flops_of_the_traced_ones_are_not_told(context: Any) -> None:
    """As of samples of various lengths without padding: beside those of the mean step they would look like work that is done twice."""
    window = window_of(1)
    context.workload.steps_vary = True
    add_rates(context, [TRACED], window, None)
    assert window["profile"]["ranks"][0].keys() == {"rank", "matrix_s", "covered_s", "attainable_s"}


def test_each_rank_is_told_what_its_own_products_attain(context: Any, world: World) -> None:
    window, second = window_of(2), TracedProducts(20.0, [Called(LARGE, 4.0, 20.0)])
    add_rates(context, [TRACED, second], window, None)
    profile = window["profile"]
    assert profile["ranks"] == [
        {
            "rank": 0,
            "matrix_s": 16.0,
            "covered_s": 15.0,
            "attainable_s": pytest.approx(16.0 - 15.0 + 8 + 40 + 4),
            "product_flops": 368_000.0,
        },
        {"rank": 1, "matrix_s": 16.0, "covered_s": 16.0, "attainable_s": pytest.approx(16.0 * 0.8), "product_flops": 512_000.0},
    ]
    assert [row["calls"] for row in profile["products"]] == [2.0, 2.0, 40.0] and profile["not_measured"] == {}
    assert world.of("phase")[-1]["name"] == "rates"
    about = r"attainable rates: of 3 matrix products \(operator, shapes, type, layout\) {} were measured in [0-9.]+ s and {} were known"
    assert re.fullmatch(about.format(3, 0), said(world)[-1])
    add_rates(context, [TRACED, None], window_of(1), None)
    assert re.fullmatch(about.format(0, 3), said(world)[-1]), "a later trial of the same runs folder"


def test_what_is_left_out_is_said(context: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(product: Product, device: torch.device) -> float:
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(matrix_rates, "seconds_of", fails)
    window = window_of(1)
    add_rates(context, [TRACED], window, None)
    assert window["profile"]["ranks"] == [{"rank": 0, "matrix_s": 16.0}]
    assert window["profile"]["not_measured"] == {"OutOfMemoryError": 3}
    assert said(world)[-1].endswith("0 were known; not measured: 3 (OutOfMemoryError)")


@pytest.mark.parametrize(("traced", "window"), [([], window_of(1)), ([None], window_of(1)), ([TRACED], {}), ([TRACED], {"profile": None})])
def test_without_kernels_or_parts_nothing_is_measured(context: Any, world: World, traced: Any, window: Any) -> None:
    before = str(window)
    add_rates(context, traced, window, None)
    assert str(window) == before and "rates" not in [phase["name"] for phase in world.of("phase")]


def test_a_trial_that_was_measured_does_not_fail_for_it(context: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attainable, "kept_folder", lambda name: 1 / 0)
    add_rates(context, [TRACED], window_of(1), None)
    assert said(world)[-1] == "attainable rates: not measured: ZeroDivisionError: division by zero"


def test_another_rank_measures_nothing_and_waits_for_the_first(context: Any, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "barrier", lambda: world.log.append("barrier"))
    context.ranks = Ranks(1, 2, 1, 2)
    add_rates(context, [TRACED, TRACED], {}, None)
    assert world.log == ["barrier"]
    context.ranks = Ranks(0, 2, 0, 2)
    add_rates(context, [TRACED, TRACED], window_of(2), None)
    assert world.log == ["barrier", "phase rates", "note", "barrier"]
