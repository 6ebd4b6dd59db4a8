"""sweepbench in a notebook: load sweeps into pandas, compare them, run suites. `import sweepbench` at the repository's root is this.

    import sweepbench as sb

    sweep = sb.load("last")
    sweep.cells()[["precision", "estimate", "low", "high", "ratio", "verdict"]]

Numbers, intervals and verdicts are those of `sweep show` and of the report: the same functions make them. Every error that a user can mend
is a `UserError`, whose text says what would be right.
"""

from __future__ import annotations

from experiments.config.errors import ConfigError, DamagedFile, UserError
from flows.api.run_suite import RunError, run
from flows.api.sweep import Sweep, compare, load, sweeps

__all__ = ["ConfigError", "DamagedFile", "RunError", "Sweep", "UserError", "compare", "load", "run", "sweeps"]
