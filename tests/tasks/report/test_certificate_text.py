"""A certificate in a sentence."""

from __future__ import annotations

import pytest

from experiments.stats.coverage import Share
from tasks.analysis.certificates import Certificate, CertifiedGroups, KnownOfDevice
from tasks.report.certificate_text import certificate_lines, coverage, false_verdicts, with_interval


def known(pool: str = "gpu", device: str = "NVIDIA H200", metric: str = "throughput", *, hits: int = 203, false: int = 0) -> KnownOfDevice:
    groups = [CertifiedGroups(size=3, covered=Share(hits=70, of=71), false_verdicts=Share(hits=false, of=71))]
    certificate = Certificate(
        sweeps=["x"], pool=pool, device=device, metric=metric, cells=["c"], first=0.0, last=1.0, commits=[], hosts=[], pairs=214,
        left_out={}, single=Share(hits=hits, of=214), groups=groups, steps=Share(),
    )  # fmt: skip
    return KnownOfDevice(pool=pool, device=device, metric=metric, certificate=certificate)


def test_what_pairs_have_shown() -> None:
    assert certificate_lines([known()], "synthetic") == [
        "214 A/A pairs on NVIDIA H200: the 95 % interval covered 94.9 % (91.0–97.4), 0 false verdicts in 71 groups of three."
    ]
    assert certificate_lines([known(hits=150, false=1)], "synthetic") == [
        "214 A/A pairs on NVIDIA H200: the 95 % interval covered 70.1 % (63.5–76.1), so it is too narrow, "
        "1 false verdict in 71 groups of three."
    ]


def test_that_nothing_is_known_and_how_to_measure_it() -> None:
    nothing = KnownOfDevice(pool="gpu", device="NVIDIA H200", metric="throughput")
    assert certificate_lines([nothing], "bridgetower") == [
        "No A/A pairs are known for NVIDIA H200: how often its intervals are right is not known; "
        "`sweep aa bridgetower --pool gpu` measures it."
    ]
    assert certificate_lines([], "bridgetower") == []


def test_pools_of_one_device_and_other_metrics_are_told_apart() -> None:
    first, second = certificate_lines([known(), known("lab")], "synthetic")
    assert first.startswith("214 A/A pairs on NVIDIA H200 (pool gpu): ") and second.startswith("214 A/A pairs on NVIDIA H200 (pool lab): ")
    (line,) = certificate_lines([known(metric="step_time_median_s")], "synthetic")
    assert line.startswith("214 A/A pairs on NVIDIA H200, step time median: "), line


@pytest.mark.parametrize(
    ("share", "ending"),
    [
        (Share(hits=191, of=200), "(91.6–97.9)"),
        (Share(hits=182, of=200), "(86.1–94.6), so it is too narrow"),
        (Share(hits=183, of=200), "(86.7–95.0), so it is too narrow"),  # 94.97
        (Share(hits=184, of=200), "(87.3–95.4)"),
        (Share(hits=196, of=200), "(95.0–99.5)"),  # 94.96
        (Share(hits=197, of=200), "(95.7–100), so it is wider than need be"),
    ],
)
def test_an_interval_that_claims_too_much_or_too_little_is_called_so(share: Share, ending: str) -> None:
    assert coverage(share).endswith(ending), coverage(share)


def test_without_a_case_no_share_is_told() -> None:
    assert coverage(Share()) == "too few to say how often the 95 % interval covers"
    assert false_verdicts(Share()) == "no group of three that gives a verdict"
    assert false_verdicts(Share(hits=2, of=1 + 1)) == "2 false verdicts in 2 groups of three"
    assert with_interval(Share()) == "–"
    assert with_interval(Share(hits=3, of=3)) == "100 % (29.2–100)"
