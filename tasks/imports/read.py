"""Which program wrote a file, and what it holds; files of one kind together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.config.errors import ConfigError
from tasks.imports.checked import json_object
from tasks.imports.mlperf import EARLY, MARK, read_mlperf
from tasks.imports.model import OthersResult, Read
from tasks.imports.optimum_benchmark import is_optimum, read_optimum
from tasks.imports.pytest_benchmark import is_pytest, read_pytest

KINDS = (
    "logs of MLPerf Training (lines :::MLLOG), benchmark.json of optimum-benchmark and the JSON of pytest-benchmark (--benchmark-json) "
    "are read"
)


def read_file(path: Path, data: bytes) -> Read:
    """Raises ConfigError for a file of no such kind, or one that its kind's reader refuses."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError.one(path, line, "", "is not UTF-8 text", KINDS) from None
    content = json_object(path, text)
    if content is None and (MARK in text or EARLY in text):
        return read_mlperf(path, text)
    for is_kind, read in ((is_pytest, read_pytest), (is_optimum, read_optimum)):
        if content is not None and is_kind(content):
            return read(path, content)
    what = "is empty" if not text.strip() else "is JSON of no kind that is known" if content is not None else "is no log of a known kind"
    raise ConfigError.one(path, None, "", what, KINDS)


def together(paths: Sequence[Path], reads: Sequence[Read]) -> Read:
    """Files of one kind as one. Results of the same name are numbered. Raises ConfigError for files of several kinds."""
    first = reads[0]
    for path, read in zip(paths, reads, strict=True):
        if read.origin is not first.origin:
            problem = f"is of {read.origin}, and {paths[0]} of {first.origin}"
            raise ConfigError.one(path, None, "", problem, "import each kind with a command of its own")
    environment: dict[str, str] = {}
    for name in dict.fromkeys(name for read in reads for name in read.environment):
        environment[name] = "; ".join(dict.fromkeys(read.environment[name] for read in reads if name in read.environment))
    versions = dict.fromkeys(read.version for read in reads if read.version)
    times = [read.measured_at for read in reads if read.measured_at is not None]
    results = _numbered([result for read in reads for result in read.results])
    return replace(
        first, results=results, environment=environment, version="; ".join(versions) or None, measured_at=min(times) if times else None
    )


def _numbered(results: Sequence[OthersResult]) -> list[OthersResult]:
    often, seen = Counter(result.name for result in results), Counter[str]()
    numbered = []
    for result in results:
        seen[result.name] += 1
        numbered.append(result.model_copy(update={"name": f"{result.name} #{seen[result.name]}"}) if often[result.name] > 1 else result)
    return numbered
