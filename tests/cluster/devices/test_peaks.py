"""Peak FLOP/s: each with a source, and only of devices that are known."""

from __future__ import annotations

import csv

import pytest

from cluster.devices.peaks import TABLE, clock_of_peak, peak_flops, peak_of_work


def test_each_peak_is_there_once_and_has_a_source() -> None:
    with open(TABLE, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["device"], row["precision"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["url"].startswith("https://") and row["source"] and float(row["peak_tflops"]) > 0, row


@pytest.mark.parametrize(
    ("device", "precision", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA H100 80GB HBM3", "fp32", 66.9),
        ("NVIDIA H200", "bf16", 989.5),  # NVIDIA prints 1979, which is with sparsity
        ("Gaudi2", "bf16", 432),
        ("NVIDIA H200", "fp8", 1979),  # NVIDIA prints 3958, which is with sparsity
        ("NVIDIA H200", "int8", 1979),
        ("NVIDIA H100 80GB HBM3", "fp8", 1978.9),
        ("NVIDIA H100 PCIe", "int8", 1513),
        ("NVIDIA A100-SXM4-80GB", "int8", 624),
        ("Gaudi2", "fp8", 865),
    ],
)
def test_known_devices(device: str, precision: str, tflops: float) -> None:
    peak, source = peak_flops(device, precision)
    assert peak == pytest.approx(tflops * 1e12) and source is not None and "https://" in source


@pytest.mark.parametrize("device", ["NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GAUDI3", "AMD EPYC", None])
def test_another_device_has_none_rather_than_a_similar_one(device: str | None) -> None:
    assert peak_flops(device, "bf16") == (None, None)


def test_the_peak_of_work_in_two_precisions_is_all_work_over_the_time_that_each_takes_at_its_own_peak() -> None:
    # H200: 989.5 TFLOP at bf16's peak take 1 s, 1979 at fp8's another one
    peak, source = peak_of_work("NVIDIA H200", {"bf16": 989.5e12, "fp8": 1979e12})
    assert peak == pytest.approx((989.5e12 + 1979e12) / 2)
    assert source is not None and "BFLOAT16" in source and "FP8" in source
    assert peak_of_work("NVIDIA H200", {"bf16": 7.0}) == peak_flops("NVIDIA H200", "bf16"), "all in one precision: its own peak"


@pytest.mark.parametrize(
    ("device", "flops"), [("NVIDIA A100-SXM4-80GB", {"bf16": 1.0, "fp8": 1.0}), ("AMD EPYC", {"fp32": 1.0}), ("NVIDIA H200", {})]
)
def test_work_of_which_a_peak_is_unknown_has_none(device: str, flops: dict[str, float]) -> None:
    assert peak_of_work(device, flops) == (None, None), "an A100 has no fp8"


# Multiprocessors, and FLOPs of each in a clock by precision, from NVIDIA's architecture whitepapers (A100: table 1; H100: table 3)
_A100 = {"fp32": 128, "tf32": 1024, "bf16": 2048, "fp16": 2048, "int8": 4096}
_H100 = {"fp32": 256, "tf32": 2048, "bf16": 4096, "fp16": 4096, "fp8": 8192, "int8": 8192}
UNITS = {"NVIDIA A100*": (108, _A100), "NVIDIA H100 80GB HBM3": (132, _H100), "NVIDIA H100 PCIe": (114, _H100), "NVIDIA H200": (132, _H100)}


def test_a_peak_is_what_all_multiprocessors_do_at_its_clock() -> None:
    with open(TABLE, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["device"] in UNITS]
    assert len(rows) == sum(len(flops) for _, flops in UNITS.values())
    for row in rows:
        multiprocessors, flops = UNITS[row["device"]]
        at_clock = multiprocessors * flops[row["precision"]] * float(row["clock_mhz"]) / 1e6
        assert at_clock == pytest.approx(float(row["peak_tflops"]), rel=0.003), row


def test_the_clock_of_a_peak() -> None:
    assert clock_of_peak("NVIDIA H200", {"bf16": 1.0, "fp8": 3.0}) == 1830
    # fp32 at 67 TFLOP/s and 1980 MHz takes 1 s, bf16 at 989.5 and 1830 another one
    assert clock_of_peak("NVIDIA H200", {"fp32": 67.0, "bf16": 989.5}) == pytest.approx(1905)
    assert clock_of_peak("Gaudi2", {"bf16": 1.0}) is None, "it is not published"
    assert clock_of_peak("AMD EPYC", {"fp32": 1.0}) is None and clock_of_peak("NVIDIA H200", {}) is None
