"""`import sweepbench as sb`: the Python interface of this repository (flows/api)."""

from flows.api import ConfigError, DamagedFile, RunError, Sweep, UserError, compare, load, run, sweeps

__all__ = ["ConfigError", "DamagedFile", "RunError", "Sweep", "UserError", "compare", "load", "run", "sweeps"]
