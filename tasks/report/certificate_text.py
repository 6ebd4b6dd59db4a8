"""A/A certificates in a sentence for each device: the same words in the terminal, in Markdown, on the page and in listings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from experiments.metrics import metric_of
from experiments.stats.coverage import Share
from experiments.stats.estimate import LEVEL
from tasks.analysis.aa import NOT_JUDGED, AaResult
from tasks.analysis.certificates import Certificate, KnownOfDevice, certificate_file, kept_certificates, merge, read_certificate
from tasks.report.text_format import listed, percent, plural
from tasks.sweep.store import Plan

GROUP = 3  # pairs of the groups that are told of
LEAST_GROUPS = 3  # fewer show nothing
_METRIC = "throughput"  # goes without saying
_NONE_WINS = "An A/A sweep: both cells are the same, so none can win"
_WHAT_IT_IS = {NOT_JUDGED: " (their windows were too short, or were not sampled, to show whether other work disturbed them)"}


def lines_of_sweep(sweep_dir: Path, plan: Plan) -> list[str]:
    """What is known of a sweep's devices, as its report says it; nothing before there is a report."""
    suite = plan.trials[0].suite if plan.trials else plan.suite.suite
    if not plan.aa:
        return certificate_lines(kept_certificates(sweep_dir) or [], suite)
    own = read_certificate(certificate_file(sweep_dir))
    if own is None:
        return ["no A/A pair counts yet; the report says why"]
    return certificate_lines([KnownOfDevice(**own.subject._asdict(), certificate=own)], suite)


def aa_headline(result: AaResult | None) -> str:
    """Of an A/A sweep, in which nothing can win: how many of the pairs that have ended count, and why others do not."""
    if result is None:
        return f"{_NONE_WINS}; no pair has ended yet."
    out = sum(result.left_out.values())
    total = result.pairs + out
    if not out:
        return f"{_NONE_WINS}; {'its one pair counts' if total == 1 else f'all {total} pairs count'}."
    counted = f"{result.pairs or 'none'} of {plural(total, 'pair')} {'count' if result.pairs > 1 else 'counts'}"
    return f"{_NONE_WINS}; {counted}, left out: {', '.join(left_out_texts(result.left_out))}."


def left_out_texts(left_out: Mapping[str, int]) -> list[str]:
    """`3 disturbed`, `1 not judged (nothing would have shown whether other work disturbed it)`: how many pairs, and why."""
    return [f"{count} {why}{_WHAT_IT_IS.get(why, '')}" for why, count in left_out.items()]


def certificate_lines(known: Sequence[KnownOfDevice], suite: str) -> list[str]:
    """A sentence for each device. `suite`: the one that a device without certificate may be certified with."""
    names = [one.device for one in known]
    return [_line(one, suite, pool=names.count(one.device) > 1) for one in known]


def pooled_certificates(known: Iterable[Sequence[KnownOfDevice]]) -> list[str]:
    """A sentence for each device of which several of these A/A sweeps are: what their pairs show together."""
    own = [one.certificate for sweep in known for one in sweep if one.certificate is not None and one.certificate.current]
    pooled = [certificate for certificate in merge(own).values() if len(certificate.sweeps) > 1]
    lines = certificate_lines([KnownOfDevice(**one.subject._asdict(), certificate=one) for one in pooled], "")
    return [f"In {len(one.sweeps)} sweeps together: {line}" for one, line in zip(pooled, lines, strict=True)]


def certificates_in_brief(known: Sequence[KnownOfDevice]) -> str:
    """What each device's pairs showed, without the intervals, which stand in its own sentence; empty where none is known."""
    several = len(known) > 1
    told = [f"{f'{one.device}: ' if several else ''}{_in_brief(one.certificate)}" for one in known if one.certificate is not None]
    return f"{'; '.join(told)}." if told else ""


def certificates_beside(known: Sequence[Certificate], suite: str, metrics: Collection[str]) -> str:
    """What pairs on another page showed: `46 A/A pairs of bert and of another suite, canary on NVIDIA H200: intervals of three repeats
    covered 15 of 15, 0 false verdicts`. `suite`, `metrics`: of the sweep that knew none; a metric that is not among them is named."""
    return "; ".join(_beside(one, suite, metrics) for one in known)


def _beside(one: Certificate, suite: str, metrics: Collection[str]) -> str:
    own, others = [name for name in one.suites if name == suite], [name for name in one.suites if name != suite]
    apart = [f"{'another suite' if len(others) == 1 else 'other suites'}, {listed(others)},"] if others else []
    pairs = plural(one.pairs, "A/A pair")
    metric = "" if one.metric in metrics else f", {metric_of(one.metric).label}"
    return _in_brief(one).replace(pairs, f"{pairs} of {' and of '.join([*own, *apart])} on {one.device}{metric}", 1)


def _in_brief(certificate: Certificate) -> str:
    pairs, group = plural(certificate.pairs, "A/A pair"), certificate.group(GROUP) if certificate.current else None
    if group is None or group.covered.of < LEAST_GROUPS:
        return f"{pairs}, {'too few to test intervals of three repeats' if group else 'judged by earlier statistics'}"
    covered = f"{group.covered.hits} of {group.covered.of}{judged(group.covered)}"
    return f"{pairs}: intervals of three repeats covered {covered}, {plural(group.false_verdicts.hits, 'false verdict')}"


def _line(known: KnownOfDevice, suite: str, *, pool: bool) -> str:
    device = f"{known.device}{f' (pool {known.pool})' if pool else ''}{_of(known.metric)}"
    if known.certificate is None:
        command = f"sweep aa {suite} --pool {known.pool}"
        return f"No A/A pairs of {device} were known where the sweep ran, nor how often its intervals are right; `{command}` measures it."
    return f"{_pairs(known.certificate)} on {device}{findings(known.certificate)}."


def _of(metric: str) -> str:
    return "" if metric == _METRIC else f", {metric_of(metric).label}"


def _pairs(certificate: Certificate) -> str:
    return f"{plural(certificate.pairs, 'A/A pair')} ({listed(certificate.suites)})"


def findings(certificate: Certificate) -> str:
    """What the pairs showed, after a colon: first of groups, whose intervals and verdicts are the report's own, then of single pairs, whose
    spread is that of the same sweep. Of another version of the statistics nothing but how to derive it again."""
    if not certificate.current:
        commands = listed([f"`sweep report {sweep}`" for sweep in certificate.sweeps])
        return f" are from earlier statistics: {commands} {'derives' if len(certificate.sweeps) == 1 else 'derive'} them again"
    group = certificate.group(GROUP)
    return f": {of_groups(group.covered, group.false_verdicts)}; {of_single_pairs(certificate.single)}"


def of_groups(covered: Share, false: Share) -> str:
    """intervals of three repeats covered 68 of 71 (88.1–99.1 %), 0 false verdicts (0–5.1 %)."""
    if covered.of < LEAST_GROUPS:
        return "too few to test intervals of three repeats"
    return f"intervals of three repeats covered {counted(covered)}{judged(covered)}, {plural(false.hits, 'false verdict')} ({_ends(false)})"


def of_single_pairs(share: Share) -> str:
    """single pairs, with the spread of the other pairs: 94.9 % (91.0–97.4)."""
    if not share.of:
        return "too few to test single pairs"
    return f"single pairs, with the spread of the other pairs: {with_interval(share)}{judged(share)}"


def judged(share: Share) -> str:
    """Says where intervals cover less often than they claim, or more; nothing where their claim is in the share's interval."""
    low, high = share.interval
    return ", too narrow" if high < LEVEL else ", wider than need be" if low > LEVEL else ""


def counted(share: Share) -> str:
    """68 of 71 (88.1–99.1 %), exact; a dash without a case."""
    return f"{share.hits} of {share.of} ({_ends(share)})" if share.of else "–"


def with_interval(share: Share) -> str:
    """94.9 % (91.0–97.4), exact; a dash without a case."""
    low, high = share.interval
    return f"{percent(share.value)} ({percent(low)}–{percent(high)})".replace(" %–", "–").replace(" %)", ")") if share.of else "–"


def _ends(share: Share) -> str:
    low, high = share.interval
    return f"{percent(low).removesuffix(' %') if low else '0'}–{percent(high)}"
