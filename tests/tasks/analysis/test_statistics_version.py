"""What certificates rest on, held beside the version of the statistics: neither changes alone.

Where pairs that count, intervals or verdicts were changed on purpose: raise STATISTICS_VERSION and put what is new here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from experiments.device_state import summarise_state
from experiments.trial import Outcome
from tasks.analysis.aa import STATISTICS_VERSION, analyse, by_the_report, pairs_of
from tests.tasks.aa_support import aa_suite, ended, noise, pair_rows, twin_row

SECONDS = 2.0  # of a window of 20 samples


def test_the_version_of_the_statistics_is_raised_with_intervals() -> None:
    rows = pair_rows(*noise(9, seed=4))
    ends: list[tuple[float, float]] = []

    def compare(*told: Any) -> Any:
        found = by_the_report(*told)
        assert found is not None
        ends.append((round(found[0].low, 4), round(found[0].high, 4)))
        return found

    result = analyse(rows, aa_suite(), compare)
    assert result is not None
    single, three = ends[0], ends[9 + 4]  # the first pair; after nine pairs and four groups of two the first group of three
    assert (STATISTICS_VERSION, single, three) == (2, (0.9265, 1.0553), (0.9211, 1.0804))


def left_out(
    *, kind: str = "cpu", cores: int = 64, window: float = SECONDS, cpu: Mapping[str, Any] | None = None, capped: int = 0, **device: Any
) -> str | None:
    """Why a pair is left out whose trial A has these samples, at 10 Hz; `capped`: in how many a thermal slow-down held the device."""
    header = {"kind": "sampler", "device": kind, "hz": 10.0, "cores": cores}
    records = [{"kind": "state", "t": number / 10, "cpu": {"others": 0.0, "steal": 0.0, **(cpu or {})}} for number in range(1, 21)]
    for number, record in enumerate(records if kind == "cuda" else []):
        record["devices"] = [{"index": 0, "others": [], "capped_by": ["thermal"] if number < capped else [], **device}]
    seen = replace(twin_row("A", 1), state=summarise_state([header, *records], 0.0, window))
    [pair] = pairs_of([seen, twin_row("B", 1)], "throughput")
    return pair.left_out


def test_the_version_of_the_statistics_is_raised_with_the_pairs_that_count() -> None:
    other = [{"pid": 7, "user": "ada", "memory_bytes": 1}]
    by_samples = {
        "quiet": left_out(),
        "others 5 %": left_out(cpu={"others": 0.049}),
        "others over 5 %": left_out(cpu={"others": 0.051}),
        "others 10 % of two cores": left_out(cores=2, cpu={"others": 0.099}),
        "others over 10 % of two cores": left_out(cores=2, cpu={"others": 0.101}),
        "others of cores that it is held to": left_out(cpu={"others": 0.099, "cores": 2}),
        "steal 1 %": left_out(cpu={"steal": 0.009}),
        "steal over 1 %": left_out(cpu={"steal": 0.011}),
        "beside a GPU, others 50 %": left_out(kind="cuda", cpu={"others": 0.49}),
        "beside a GPU, others over 50 %": left_out(kind="cuda", cpu={"others": 0.51}),
        "beside a GPU, steal over 10 %": left_out(kind="cuda", cpu={"steal": 0.11}),
        "another process on the GPU": left_out(kind="cuda", others=other),
        "too hot in one sample of 20": left_out(kind="cuda", capped=1),
        "1 s": left_out(window=1.0),
        "under 1 s": left_out(window=0.99),
        "covered 90 %": left_out(window=2.2),
        "covered less": left_out(window=2.3),
        "CPU time unknown": left_out(cpu={"others": None}),
    }
    a, b = twin_row("A", 1), twin_row("B", 1)
    by_result = {
        "crashed": twin_row("B", 1, outcome=Outcome.CRASHED),
        "disturbed": ended(b, 0.0, disturbed="others"),
        "not judged": ended(b, 0.0, not_judged="the window was under 1 s"),
        "not sampled": twin_row("B", 1, summary={"settled": True}),
        "a minute later": ended(b, 70.0),
        "more than a minute later": ended(b, 70.5),
        "on another host": twin_row("B", 1, environment={"device_name": "x", "host": "other", "host_id": "other"}),
    }
    told = {name: pairs_of([ended(a, 0.0), row], "throughput")[0].left_out for name, row in by_result.items()}
    disturbed = ["others over 5 %", "others over 10 % of two cores", "steal over 1 %", "beside a GPU, others over 50 %"]
    disturbed += ["beside a GPU, steal over 10 %", "another process on the GPU", "too hot in one sample of 20"]
    not_judged = ["under 1 s", "covered less", "CPU time unknown"]
    assert STATISTICS_VERSION == 2
    assert by_samples == {name: "disturbed" if name in disturbed else "not judged" if name in not_judged else None for name in by_samples}
    assert told == {
        "crashed": "ended as crashed",
        "disturbed": "disturbed",
        "not judged": "not judged",
        "not sampled": "not judged",
        "a minute later": None,
        "more than a minute later": "interrupted",
        "on another host": "not on one host with one code",
    }
