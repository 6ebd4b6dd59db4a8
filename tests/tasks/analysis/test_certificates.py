"""Certificates on disk: one for each A/A sweep, together for a device, and kept with the sweeps that show them."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.stats.coverage import Share
from experiments.trial import Outcome
from tasks.analysis import certificates
from tasks.analysis.aa import STATISTICS_VERSION
from tasks.analysis.certificates import (
    Certificate,
    KnownOfDevice,
    Subject,
    certificate_of,
    keep_certificates,
    kept_certificates,
    known_of,
    merge,
    read_certificates,
    subject_of,
    write_certificate,
)
from tasks.analysis.results import Sweep
from tests.tasks.aa_support import DEVICE, aa_suite, aa_sweep, ended, noise, pair_rows, twin_row
from tests.tasks.cell_support import row, settings
from tests.tasks.fake_sweep import as_suite
from tests.tasks.plan_support import make_plan

GPU = Subject("gpu", DEVICE, "throughput")


def certified(root: Path, name: str, pairs: int = 6, **more: Any) -> Sweep:
    """An A/A sweep whose certificate is written."""
    sweep = aa_sweep(pair_rows(*noise(pairs), **more), root / name)
    assert write_certificate(sweep) is not None
    return sweep


def plain(folder: Path, *outcomes: Outcome | None, device: str = DEVICE, **more: Any) -> Sweep:
    """A sweep that is no A/A sweep."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        row({"pool": "gpu"}, repeat=number, outcome=outcome, environment={"device_name": device}, **more)
        for number, outcome in enumerate(outcomes, 1)
    ]
    return Sweep(folder, make_plan([one.trial for one in rows], suite=as_suite(settings())), rows)


def test_a_certificate_says_what_ran_where_and_what_it_showed(tmp_path: Path) -> None:
    rows = pair_rows(*noise(6), environment={"device_name": DEVICE, "host": "box", "host_id": "h1", "tree": "t1"})
    rows = [ended(one, 1000.0 + 20 * place) for place, one in enumerate(rows)]
    rows[3] = ended(rows[3], 1060.0, disturbed="another process")
    elsewhere = {"device_name": DEVICE, "host_id": "h2", "tree": "t2"}
    rows[8:10] = [ended(twin_row(twin, 5, environment=elsewhere), at) for twin, at in (("A", 1160.0), ("B", 1180.0))]
    rows[11] = ended(twin_row("A", 6, environment=elsewhere), 1220.0)
    certificate = certificate_of(aa_sweep(rows, tmp_path / "one"))
    assert certificate is not None
    assert certificate.subject == GPU and certificate.sweeps == ["one"]
    assert certificate.cells == ["made_up: gpu"] and certificate.suites == ["made_up"]
    assert certificate.statistics == STATISTICS_VERSION and certificate.current
    assert (certificate.first, certificate.last) == (1000.0, 1190.0)
    assert (certificate.commits, certificate.trees, certificate.hosts) == (["c0ffee"], ["t1", "t2"], ["h1", "h2"])
    assert certificate.left_out == {"disturbed": 1, "not on one host with one code": 1}, "the twins of pair 6 differ by their hosts too"
    assert (certificate.pairs, certificate.single.of) == (4, 4)
    assert [(group.size, group.covered.of, group.false_verdicts.of) for group in certificate.groups] == [(2, 2, 2), (3, 1, 1), (5, 0, 0)]
    with pytest.raises(KeyError, match="no groups of 4"):
        certificate.group(4)


def test_only_an_aa_sweep_with_pairs_gets_one(tmp_path: Path) -> None:
    assert certificate_of(aa_sweep(pair_rows(*noise(3)), tmp_path / "x", aa=None)) is None
    assert certificate_of(aa_sweep([twin_row("A", 1)], tmp_path / "x")) is None
    assert certificate_of(aa_sweep(pair_rows(*noise(3), emulated=True), tmp_path / "x")) is None
    assert write_certificate(aa_sweep(pair_rows(*noise(3), outcome=Outcome.CRASHED), tmp_path / "x")) is None
    assert list(tmp_path.iterdir()) == []


def test_sweeps_of_one_device_add_up_and_others_stay_apart(tmp_path: Path) -> None:
    certified(tmp_path, "one", 6)
    certified(tmp_path, "two", 3)
    certified(tmp_path, "other-pool", 3, pool="lab")
    certified(tmp_path, "other-device", 3, environment={"device_name": "Other"})
    known, problems = read_certificates(tmp_path)
    assert problems == []
    assert {subject: one.pairs for subject, one in known.items()} == {
        GPU: 9,
        Subject("lab", DEVICE, "throughput"): 3,
        Subject("gpu", "Other", "throughput"): 3,
    }
    both = known[GPU]
    assert sorted(both.sweeps) == ["one", "two"] and both.commits == ["c0ffee"]
    assert both.single.of == 9 and [group.covered.of for group in both.groups] == [3 + 1, 2 + 1, 1 + 0]


def test_merging_adds_counts_and_spans_the_dates() -> None:
    def one(name: str, first: float, hits: int, **left_out: int) -> Certificate:
        share = Share(hits=hits, of=10)
        groups = [certificates.CertifiedGroups(size=3, covered=share, false_verdicts=Share(hits=1, of=10))]
        return Certificate(
            sweeps=[name], pool="gpu", device=DEVICE, metric="throughput", cells=["c"], first=first, last=first + 5, commits=[name],
            hosts=[f"host-{name}"], pairs=30, left_out=left_out, single=share, groups=groups, steps=Share(hits=2, of=10),
        )  # fmt: skip

    both = merge([one("b", 50.0, 9, disturbed=2), one("a", 10.0, 8, disturbed=1, interrupted=1)])[GPU]
    assert (both.sweeps, both.commits, both.hosts, both.cells) == (["a", "b"], ["a", "b"], ["host-a", "host-b"], ["c"])
    assert (both.first, both.last, both.pairs) == (10.0, 55.0, 60)
    assert both.left_out == {"disturbed": 3, "interrupted": 1}
    assert (both.single, both.steps) == (Share(hits=17, of=20), Share(hits=4, of=20))
    assert both.group(3).covered == Share(hits=17, of=20) and both.group(3).false_verdicts == Share(hits=2, of=20)
    within = [one("long", 10.0, 9).model_copy(update={"last": 90.0}), one("short", 50.0, 9)]
    assert (merge(within)[GPU].first, merge(within)[GPU].last) == (10.0, 90.0), "one that ran while another did ends nothing"


def test_a_damaged_file_is_named_and_skipped_and_can_be_written_again(tmp_path: Path) -> None:
    certified(tmp_path, "one", 3)
    sweep = certified(tmp_path, "two", 4)
    path = tmp_path / "certificates" / "two.json"
    whole = path.read_text()
    for damaged in (whole[:-40], whole.replace('"schema_version": 1', '"schema_version": 2'), "\udcff"):
        path.write_bytes(damaged.encode(errors="surrogateescape"))
        known, problems = read_certificates(tmp_path)
        assert known[GPU].pairs == 3
        assert problems == [f"{path} is damaged and left out; `sweep report two` writes it again"]
    write_certificate(sweep)
    assert path.read_text() == whole and read_certificates(tmp_path)[1] == []


# --- what a sweep shows


def test_a_sweep_that_has_ended_keeps_what_was_known_and_later_pairs_do_not_change_it(tmp_path: Path) -> None:
    certified(tmp_path, "one", 3)
    sweep = plain(tmp_path / "mine", Outcome.OK, Outcome.CRASHED)
    keep_certificates(sweep)
    before = (tmp_path / "mine" / "certificates.json").read_bytes()
    certified(tmp_path, "two", 4)
    keep_certificates(sweep)
    assert (tmp_path / "mine" / "certificates.json").read_bytes() == before
    (known,) = known_of(sweep)
    assert (known.pool, known.device, known.metric) == GPU and known.certificate is not None and known.certificate.pairs == 3
    moved = Sweep(tmp_path / "elsewhere" / "mine", sweep.plan, sweep.rows)
    moved.dir.mkdir(parents=True)
    (moved.dir / "certificates.json").write_bytes(before)
    assert known_of(moved) == [known], "the copy goes with the folder"


def test_that_nothing_was_known_is_kept_too(tmp_path: Path) -> None:
    sweep = plain(tmp_path / "mine", Outcome.OK)
    keep_certificates(sweep)
    certified(tmp_path, "one", 3)
    nothing = KnownOfDevice(pool="gpu", device=DEVICE, metric="throughput")
    assert known_of(sweep) == kept_certificates(sweep.dir) == [nothing]


def test_a_sweep_that_goes_on_keeps_nothing_and_shows_what_is_known_now(tmp_path: Path) -> None:
    sweep = plain(tmp_path / "mine", Outcome.OK, None)
    keep_certificates(sweep)
    assert kept_certificates(sweep.dir) is None
    assert [one.certificate for one in known_of(sweep)] == [None]
    certified(tmp_path, "one", 3)
    assert [one.certificate and one.certificate.pairs for one in known_of(sweep)] == [3]


def test_only_what_measured_has_a_device(tmp_path: Path) -> None:
    assert known_of(plain(tmp_path / "a", Outcome.CRASHED, None)) == []
    assert known_of(plain(tmp_path / "b", Outcome.OK, emulated=True)) == []


def test_an_aa_sweep_shows_its_own_pairs_and_keeps_no_copy(tmp_path: Path) -> None:
    certified(tmp_path, "one", 3)
    sweep = certified(tmp_path, "two", 4)
    sweep.dir.mkdir()
    keep_certificates(sweep)
    assert list(sweep.dir.iterdir()) == []
    (known,) = known_of(sweep)
    assert known.certificate is not None and known.certificate.pairs == 4
    assert known_of(aa_sweep([twin_row("A", 1)], tmp_path / "two")) == []


def test_damaged_copies_and_certificates_are_logged_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certified(tmp_path, "one", 3)
    (tmp_path / "certificates" / "bad.json").write_text("{")
    sweep = plain(tmp_path / "mine", Outcome.OK)
    (sweep.dir / "certificates.json").write_text(json.dumps([{"pool": 1}]))
    with caplog.at_level(logging.WARNING):
        (known,) = known_of(sweep)
    assert known.certificate is not None and known.certificate.pairs == 3
    assert [re.split("[ ,]", record.getMessage(), maxsplit=1)[0] for record in caplog.records] == [
        str(sweep.dir / "certificates.json"),
        str(tmp_path / "certificates" / "bad.json"),
    ]


@pytest.mark.parametrize(
    ("metric", "certified_as"), [("throughput", "throughput"), ("step_time_median_s", "step_time_median_s"), ("loss_spikes", "throughput")]
)
def test_what_has_no_ratio_is_certified_by_throughput(metric: str, certified_as: str) -> None:
    suite = aa_suite()
    suite = suite.model_copy(update={"report": suite.report.model_copy(update={"metric": metric})})
    assert subject_of(twin_row("A", 1).trial, {}, suite) == Subject("gpu", "cpu", certified_as), "a device without a name is its kind"


# --- other statistics


def age(path: Path, *, statistics: int | None = None) -> None:
    """Make the certificates in the file, one or a list, those of another version of the statistics; None: of before there was one."""
    told = json.loads(path.read_text())
    for one in [each["certificate"] for each in told] if isinstance(told, list) else [told]:
        one.pop("statistics")
        if statistics is not None:
            one["statistics"] = statistics
    path.write_text(json.dumps(told))


@pytest.mark.parametrize("statistics", [None, STATISTICS_VERSION + 1])
def test_certificates_of_other_statistics_are_left_out_until_they_are_derived_again(tmp_path: Path, statistics: int | None) -> None:
    sweep = certified(tmp_path, "one", 3)
    certified(tmp_path, "two", 4)
    path = tmp_path / "certificates" / "one.json"
    age(path, statistics=statistics)
    known, problems = read_certificates(tmp_path)
    assert known[GPU].pairs == 4 and known[GPU].current
    assert problems == [f"{path} is from earlier statistics and left out; `sweep report one` derives it again"]
    write_certificate(sweep)
    known, problems = read_certificates(tmp_path)
    assert (known[GPU].pairs, problems) == (7, [])


def test_a_copy_from_earlier_statistics_gives_way_to_what_is_known_by_todays(tmp_path: Path) -> None:
    made = certified(tmp_path, "one", 3)
    sweep = plain(tmp_path / "mine", Outcome.OK)
    keep_certificates(sweep)
    for path in (sweep.dir / "certificates.json", tmp_path / "certificates" / "one.json"):
        age(path)
    (known,) = known_of(sweep)
    assert known.certificate is not None and not known.certificate.current, "nothing else is known: the report says what it is"
    write_certificate(made)
    keep_certificates(sweep)
    (kept,) = kept_certificates(sweep.dir) or []
    assert kept.certificate is not None and kept.certificate.current and kept.certificate.pairs == 3
    certified(tmp_path, "two", 4)
    assert known_of(sweep) == [kept], "of today's statistics the copy stays"
