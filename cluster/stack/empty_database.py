"""The databases of Prefect and MLflow before their first use: a new folder of results gets copies.

Their own ways to make one take seconds each, and a process that is killed meanwhile leaves tables that fit no version, which nothing
mends. A copy is there as a whole or not at all. `python -m cluster.stack.empty_database` makes both, once for each version of Prefect and
MLflow; `make setup` runs that. They hold tables and no row of anybody's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from logging import getLogger
from pathlib import Path

from experiments.config.errors import DamagedFile


@dataclass(frozen=True)
class EmptyDatabase:
    """One package's. `migrate` makes it, in a file that is not there yet."""

    package: str
    migrate: Callable[[Path], None]
    anew: str = "it is made anew"  # what is lost with one that is damaged, and what makes it again

    def kept(self) -> Path:
        """Where it is kept, whether it is there or not: with the installed packages that it belongs to."""
        return Path(sys.prefix) / "share" / "sweepbench" / f"{self.package}-{version(self.package)}.db"

    def make(self, target: Path) -> bool:
        """Make it by the package's own migrations, in some seconds; says whether it did: not over another. Raises OSError."""
        return _place(target, self.migrate)

    def give(self, target: Path) -> bool:
        """Copy the one that is kept, or make one; says whether it did: not over another. Raises OSError."""
        return self.copy(target) or self.make(target)

    def check(self, target: Path, *, thorough: bool = False, timeout_s: float = 1.0) -> None:
        """Raise DamagedFile where there is a file that SQLite cannot read. `thorough`: all of it, s for each GB; else what tables it has.

        One that stays locked for `timeout_s` or may not be read is no damage: who uses it says that.
        """
        if not target.exists():
            return
        try:
            with closing(sqlite3.connect(f"{target.as_uri()}?mode=ro", uri=True, timeout=timeout_s)) as database:
                database.execute("select name from sqlite_master").fetchall()
                found = database.execute("pragma quick_check(1)").fetchone()[0] if thorough else "ok"
        except sqlite3.OperationalError:
            return
        except sqlite3.DatabaseError as error:
            found = str(error)
        if found != "ok":
            raise DamagedFile(target, "", f"is damaged ({found})", f"move it away: {self.anew}")

    def copy(self, target: Path) -> bool:
        """Copy the one that is kept; says whether it did: not over another, and not where none is kept. Raises OSError."""
        source = self.kept()
        return source.exists() and _place(target, lambda new: shutil.copyfile(source, new))


def _place(target: Path, make: Callable[[Path], object]) -> bool:
    """Have a file made beside `target` and moved there once it is whole, unless there is one. Raises OSError."""
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as folder:
        new = Path(folder) / target.name
        make(new)
        try:
            os.link(new, target)
        except FileExistsError:  # another process that starts in the same folder was first
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            new.replace(target)  # a file system without hard links: two that start at the same moment may each have put one there
    return True


def _migrate_prefect(path: Path) -> None:
    """Sets variables of this process: to be called in one that does nothing else with Prefect."""
    os.environ |= {"PREFECT_HOME": str(path.parent), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{path}"
    asyncio.run(_create_prefect())


async def _create_prefect() -> None:
    from prefect.server.database import provide_database_interface

    database = provide_database_interface()
    await database.create_db()
    await (await database.engine()).dispose()  # closes the file, so that all of it is in the file


def _migrate_mlflow(path: Path) -> None:
    """Without the experiment Default, which holds where the artifacts are: MLflow adds that on the first use."""
    from mlflow.store.db import utils

    for name in ("mlflow", "alembic"):
        getLogger(name).setLevel("WARNING")  # they log each step
    engine = utils.create_sqlalchemy_engine(f"sqlite:///{path}")
    utils._initialize_tables(engine)
    engine.dispose()


_AGAIN = "nothing measured is lost, `sweep resume ID` publishes each sweep again from its journals"
MLFLOW = EmptyDatabase("mlflow", _migrate_mlflow, _AGAIN)
PREFECT = EmptyDatabase("prefect", _migrate_prefect, "it holds what Prefect's pages showed of past flow runs, and nothing measured")


if __name__ == "__main__":
    for database in (PREFECT, MLFLOW):
        database.make(database.kept())
