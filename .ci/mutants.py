"""`make mutants`: which small changes to the code (mutants, made by mutmut) make a fast test fail. Prints a table by module.

    python .ci/mutants.py [--sample N] [PATTERN ...]

PATTERN: names of mutants with * and ?, such as `tasks.sweep.plan.*`; all of `only_mutate` in pyproject.toml if none is given.
--sample: at most N mutants of each module, chosen at random with a fixed seed.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

MUTANTS = Path("mutants")
NOTICED = {1, 3, 24, -24, 36, 37}  # a failed test, an error of pytest's own, a time-out, a type error
NOT_RUN = {None, 34}


def main() -> None:
    """Generate the mutants, run those that are asked for, and print how many of each module were noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["*"], metavar="PATTERN")
    parser.add_argument("--sample", type=int, default=0, help="at most so many mutants of each module; 0: all")
    options = parser.parse_args()
    mutmut("no.such.mutant")  # only generates them
    names = chosen(options.patterns, options.sample)
    if not names:
        sys.exit(f"error: no mutant matches {' '.join(options.patterns)}")
    print(f"{len(names)} mutants", file=sys.stderr)
    mutmut(*names)
    print(table(set(names)))


def mutmut(*names: str) -> None:
    """`mutmut run`. It ends with another status than 0 where mutants survive, so its results are read from its files."""
    subprocess.run([sys.executable, "-m", "mutmut", "run", *names], stdout=sys.stderr, check=False)


def results() -> dict[str, dict[str, int | None]]:
    """Exit status of the tests by mutant, by source file; None for one that was not run."""
    found = {}
    for path in sorted(MUTANTS.rglob("*.py.meta")):
        statuses = json.loads(path.read_text())["exit_code_by_key"]
        if statuses:
            found[str(path.relative_to(MUTANTS)).removesuffix(".meta")] = statuses
    return found


def chosen(patterns: list[str], sample: int) -> list[str]:
    """The names of the mutants to run."""
    seeded, names = random.Random(0), []
    for statuses in results().values():
        mine = sorted(name for name in statuses if any(fnmatch.fnmatch(name, pattern) for pattern in patterns))
        names += seeded.sample(mine, sample) if 0 < sample < len(mine) else mine
    return names


def table(names: set[str]) -> str:
    """Markdown: a line for each module, and the sum."""
    counts: dict[str, tuple[int, int, int]] = {}
    survivors: dict[str, list[str]] = defaultdict(list)
    for file, statuses in results().items():
        run = {name: status for name, status in statuses.items() if name in names and status not in NOT_RUN}
        if run:
            noticed = sum(status in NOTICED for status in run.values())
            counts[file] = (noticed, len(run), len(statuses))
            survivors[file] = [name for name, status in run.items() if status not in NOTICED]
    lines = ["| module | noticed | run | of | share |", "| :-- | --: | --: | --: | --: |"]
    lines += [f"| {file} | {noticed} | {run} | {all_} | {noticed / run:.0%} |" for file, (noticed, run, all_) in counts.items()]
    noticed, run, all_ = (sum(column) for column in zip(*counts.values(), strict=True))
    lines.append(f"| all | {noticed} | {run} | {all_} | {noticed / run:.0%} |")
    left = [f"- {name}" for names_of_file in survivors.values() for name in names_of_file]
    return "\n".join([*lines, "", "Not noticed (`mutmut show NAME` prints one):", "", *left])


if __name__ == "__main__":
    main()
