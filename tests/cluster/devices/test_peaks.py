"""Peak FLOP/s: each with a source, and only of devices that are known."""

from __future__ import annotations

import csv

import pytest

from cluster.devices.peaks import TABLE, peak_flops


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
    ],
)
def test_known_devices(device: str, precision: str, tflops: float) -> None:
    peak, source = peak_flops(device, precision)
    assert peak == pytest.approx(tflops * 1e12) and source is not None and "https://" in source


@pytest.mark.parametrize("device", ["NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GAUDI3", "AMD EPYC", None])
def test_another_device_has_none_rather_than_a_similar_one(device: str | None) -> None:
    assert peak_flops(device, "bf16") == (None, None)
