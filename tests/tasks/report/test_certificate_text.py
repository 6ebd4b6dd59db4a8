"""A certificate in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.stats.coverage import Share
from tasks.analysis.aa import STATISTICS_VERSION, AaResult
from tasks.analysis.certificates import Certificate, CertifiedGroups, KnownOfDevice
from tasks.report.certificate_text import (
    aa_headline,
    certificate_lines,
    certificates_beside,
    certificates_in_brief,
    counted,
    judged,
    of_groups,
    of_single_pairs,
    pooled_certificates,
    with_interval,
)


def known(
    pool: str = "gpu", metric: str = "throughput", *, single: int = 203, covered: int = 68, of: int = 71, false: int = 0, **more: Any
) -> KnownOfDevice:
    groups = [CertifiedGroups(size=3, covered=Share(hits=covered, of=of), false_verdicts=Share(hits=false, of=of))]
    whole: dict[str, Any] = {
        "statistics": STATISTICS_VERSION, "sweeps": ["x"], "pool": pool, "device": "NVIDIA H200", "metric": metric,
        "cells": ["synthetic: gpu · fp32"], "first": 0.0, "last": 1.0, "commits": [], "hosts": [], "pairs": 214, "left_out": {},
        "single": Share(hits=single, of=214), "groups": groups, "steps": Share(), **more,
    }  # fmt: skip
    certificate = Certificate(**whole)
    return KnownOfDevice(pool=pool, device="NVIDIA H200", metric=metric, certificate=certificate)


def test_what_pairs_have_shown_begins_with_the_reports_own_intervals() -> None:
    assert certificate_lines([known()], "synthetic") == [
        "214 A/A pairs (synthetic) on NVIDIA H200: "
        "intervals of three repeats covered 68 of 71 (88.1–99.1 %), 0 false verdicts (0–5.1 %); "
        "single pairs, with the spread of the other pairs: 94.9 % (91.0–97.4)."
    ]
    assert certificate_lines([known(single=150, covered=50, false=1)], "synthetic") == [
        "214 A/A pairs (synthetic) on NVIDIA H200: intervals of three repeats covered 50 of 71 (58.4–80.7 %), too narrow, "
        "1 false verdict (0.0–7.6 %); single pairs, with the spread of the other pairs: 70.1 % (63.5–76.1), too narrow."
    ]


def test_the_suites_are_named_each_once() -> None:
    cells = ["synthetic: a", "bridgetower: b", "synthetic: c"]
    (line,) = certificate_lines([known(cells=cells)], "synthetic")
    assert line.startswith("214 A/A pairs (synthetic and bridgetower) on NVIDIA H200: ")


def test_that_nothing_is_known_and_how_to_measure_it() -> None:
    nothing = KnownOfDevice(pool="gpu", device="NVIDIA H200", metric="throughput")
    assert certificate_lines([nothing], "bridgetower") == [
        "No A/A pairs of NVIDIA H200 were known where the sweep ran, nor how often its intervals are right; "
        "`sweep aa bridgetower --pool gpu` measures it."
    ]
    assert certificate_lines([], "bridgetower") == []


@pytest.mark.parametrize(
    ("suite", "metric", "told"),
    [
        ("canary", "throughput", "canary and of another suite, bert, on NVIDIA H200"),
        ("vit", "throughput", "other suites, canary and bert, on NVIDIA H200"),
        ("vit", "tokens_per_s", "other suites, canary and bert, on NVIDIA H200, throughput"),
    ],
)
def test_pairs_of_another_page_name_other_suites_as_such_and_another_metric(suite: str, metric: str, told: str) -> None:
    found = known(cells=["canary: a", "bert: b"]).certificate
    assert found is not None
    shown = f"214 A/A pairs of {told}: intervals of three repeats covered 68 of 71, 0 false verdicts"
    assert certificates_beside([found], suite, {metric}) == shown
    assert certificates_beside([found, found], suite, {metric}) == f"{shown}; {shown}"


def test_pairs_of_another_page_that_are_all_of_the_suite() -> None:
    found = known(covered=2, of=2).certificate
    assert found is not None
    said = "214 A/A pairs of synthetic on NVIDIA H200, too few to test intervals of three repeats"
    assert certificates_beside([found], "synthetic", {"throughput"}) == said


@pytest.mark.parametrize("statistics", [0, STATISTICS_VERSION + 1])
def test_of_earlier_statistics_nothing_is_told_but_how_to_derive_it_again(statistics: int) -> None:
    assert certificate_lines([known(statistics=statistics, sweeps=["a", "b"])], "synthetic") == [
        "214 A/A pairs (synthetic) on NVIDIA H200 are from earlier statistics: `sweep report a` and `sweep report b` derive them again."
    ]


def test_pools_of_one_device_and_other_metrics_are_told_apart() -> None:
    first, second = certificate_lines([known(), known("lab")], "synthetic")
    assert first.startswith("214 A/A pairs (synthetic) on NVIDIA H200 (pool gpu): ")
    assert second.startswith("214 A/A pairs (synthetic) on NVIDIA H200 (pool lab): ")
    (line,) = certificate_lines([known(metric="step_time_median_s")], "synthetic")
    assert line.startswith("214 A/A pairs (synthetic) on NVIDIA H200, step time median: "), line


@pytest.mark.parametrize(
    ("share", "ends", "word"),
    [
        (Share(hits=191, of=200), "(91.6–97.9)", ""),
        (Share(hits=182, of=200), "(86.1–94.6)", ", too narrow"),
        (Share(hits=183, of=200), "(86.7–95.0)", ", too narrow"),  # 94.97
        (Share(hits=184, of=200), "(87.3–95.4)", ""),
        (Share(hits=196, of=200), "(95.0–99.5)", ""),  # 94.96
        (Share(hits=197, of=200), "(95.7–100)", ", wider than need be"),
        (Share(), "–", ""),
    ],
)
def test_an_interval_that_claims_too_much_or_too_little_is_called_so(share: Share, ends: str, word: str) -> None:
    assert with_interval(share).endswith(ends) and judged(share) == word


def test_fewer_than_three_groups_are_too_few() -> None:
    few, three = (of_groups(Share(hits=n, of=n), Share(of=n)) for n in (2, 3))
    assert few == "too few to test intervals of three repeats"
    assert three == "intervals of three repeats covered 3 of 3 (29.2–100 %), 0 false verdicts (0–70.8 %)"


def test_without_a_case_no_share_is_told() -> None:
    assert of_single_pairs(Share()) == "too few to test single pairs"
    assert (with_interval(Share()), counted(Share())) == ("–", "–")
    assert with_interval(Share(hits=3, of=3)) == "100 % (29.2–100)" and counted(Share(of=3)) == "0 of 3 (0–70.8 %)"


def test_several_sweeps_of_one_device_are_told_together() -> None:
    first = [known(sweeps=["a"], single=173, covered=55, of=59)]
    second = [known(sweeps=["b"], cells=["bert: gpu"], single=44, covered=15, of=15)]
    (line,) = pooled_certificates([first, second])
    assert line.startswith("In 2 sweeps together: 428 A/A pairs (synthetic and bert) on NVIDIA H200: intervals of three repeats covered ")
    assert "covered 70 of 74 (86.7–98.5 %), 0 false verdicts (0–4.9 %); single pairs" in line


def test_a_line_of_a_list_has_what_was_counted_without_its_intervals() -> None:
    assert certificates_in_brief([known()]) == "214 A/A pairs: intervals of three repeats covered 68 of 71, 0 false verdicts."
    narrow = "214 A/A pairs: intervals of three repeats covered 50 of 71, too narrow, 1 false verdict."
    assert certificates_in_brief([known(covered=50, false=1)]) == narrow, "that they are wrong is said"
    assert certificates_in_brief([known(covered=2, of=2)]) == "214 A/A pairs, too few to test intervals of three repeats."
    assert certificates_in_brief([known(statistics=0)]) == "214 A/A pairs, judged by earlier statistics."
    both = certificates_in_brief([known(), known("lab", pairs=1)])
    assert both.startswith("NVIDIA H200: 214 A/A pairs: ") and "; NVIDIA H200: 1 A/A pair: " in both
    nothing = KnownOfDevice(pool="gpu", device="NVIDIA H200", metric="throughput")
    assert certificates_in_brief([nothing]) == certificates_in_brief([]) == ""


def test_one_sweep_and_sweeps_of_other_pools_or_statistics_are_not() -> None:
    assert pooled_certificates([[known(sweeps=["a"])], []]) == []
    assert pooled_certificates([[known(sweeps=["a"])], [known("lab", sweeps=["b"])]]) == []
    assert pooled_certificates([[known(sweeps=["a"])], [known(sweeps=["b"], statistics=0)]]) == []


def aa_result(pairs: int, **left_out: int) -> AaResult:
    named = {why.replace("_", " "): count for why, count in left_out.items()}
    return AaResult(pairs, named, Share(), None, [], Share(), None, [])


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "no pair has ended yet."),
        (aa_result(1), "its one pair counts."),
        (aa_result(20), "all 20 pairs count."),
        (aa_result(18, disturbed=2), "18 of 20 pairs count, left out: 2 disturbed."),
        (aa_result(1, disturbed=1, interrupted=1), "1 of 3 pairs counts, left out: 1 disturbed, 1 interrupted."),
        (
            aa_result(0, not_judged=4),
            "none of 4 pairs counts, left out: 4 not judged "
            "(their windows were too short, or were not sampled, to show whether other work disturbed them).",
        ),
    ],
)
def test_an_aa_sweep_says_how_many_of_its_pairs_count_and_why_others_do_not(result: AaResult | None, said: str) -> None:
    assert aa_headline(result) == f"An A/A sweep: both cells are the same, so none can win; {said}"
