"""A/A certificates in a sentence for each device: the same words in the terminal, in Markdown, on the page and in listings."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.metrics import metric_of
from experiments.stats.coverage import Share
from experiments.stats.estimate import LEVEL
from tasks.analysis.certificates import Certificate, KnownOfDevice
from tasks.report.text_format import percent, plural

GROUP = 3  # pairs of the groups whose false verdicts are told
_METRIC = "throughput"  # goes without saying


def certificate_lines(known: Sequence[KnownOfDevice], suite: str) -> list[str]:
    """A sentence for each device. `suite`: the one that a device without certificate may be certified with."""
    names = [one.device for one in known]
    return [_line(one, suite, pool=names.count(one.device) > 1) for one in known]


def _line(known: KnownOfDevice, suite: str, *, pool: bool) -> str:
    device = f"{known.device}{f' (pool {known.pool})' if pool else ''}{_of(known.metric)}"
    if known.certificate is None:
        command = f"sweep aa {suite} --pool {known.pool}"
        return f"No A/A pairs are known for {device}: how often its intervals are right is not known; `{command}` measures it."
    return f"{plural(known.certificate.pairs, 'A/A pair')} on {device}: {findings(known.certificate)}."


def _of(metric: str) -> str:
    return "" if metric == _METRIC else f", {metric_of(metric).label}"


def findings(certificate: Certificate) -> str:
    """How often the interval covered, whether that is as it should be, and how many verdicts were false."""
    groups = certificate.group(GROUP).false_verdicts
    return f"{coverage(certificate.single)}, {false_verdicts(groups)}"


def coverage(share: Share) -> str:
    """the 95 % interval covered 94.9 % (91.0–97.4); says where that is fewer, or more, than it claims."""
    if not share.of:
        return "too few to say how often the 95 % interval covers"
    low, high = share.interval
    judged = ", so it is too narrow" if high < LEVEL else ", so it is wider than need be" if low > LEVEL else ""
    return f"the 95 % interval covered {with_interval(share)}{judged}"


def false_verdicts(share: Share) -> str:
    """0 false verdicts in 71 groups of three."""
    if not share.of:
        return "no group of three that gives a verdict"
    return f"{plural(share.hits, 'false verdict')} in {plural(share.of, 'group')} of three"


def with_interval(share: Share) -> str:
    """94.9 % (91.0–97.4), exact; a dash without a case."""
    low, high = share.interval
    return f"{percent(share.value)} ({percent(low)}–{percent(high)})".replace(" %–", "–").replace(" %)", ")") if share.of else "–"
