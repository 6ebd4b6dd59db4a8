"""Prefect's database before its first use: a new folder of results gets a copy, since Prefect's own way to make one takes six seconds.

`python -m cluster.stack.empty_database` makes it, once for each version of Prefect; `make setup` runs that. It holds Prefect's tables and
no row of anybody's. Without it Prefect makes its database itself.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

_NAME = "prefect.db"  # in $PREFECT_HOME


def kept() -> Path:
    """Where it is kept, whether it is there or not: with the installed packages that it belongs to."""
    return Path(sys.prefix) / "share" / "sweepbench" / f"prefect-{version('prefect')}.db"


def make(target: Path) -> None:
    """Make it by Prefect's own migrations. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as home:
        os.environ |= {"PREFECT_HOME": home, "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
        os.environ.pop("PREFECT_SERVER_DATABASE_CONNECTION_URL", None)
        asyncio.run(_migrate())
        (Path(home) / _NAME).replace(target)  # whole or not at all


async def _migrate() -> None:
    from prefect.server.database import provide_database_interface

    database = provide_database_interface()
    await database.create_db()
    await (await database.engine()).dispose()  # closes the file, so that all of it is in the file


def copy_to(home: Path) -> bool:
    """Give a Prefect home that has no database a copy; says whether it did. Raises OSError."""
    home.mkdir(parents=True, exist_ok=True)
    target, source = home / _NAME, kept()
    if target.exists() or not source.exists():
        return False
    with tempfile.TemporaryDirectory(dir=home) as folder:
        copy = Path(folder) / _NAME
        shutil.copyfile(source, copy)
        try:
            os.link(copy, target)
        except FileExistsError:  # another server that starts in the same home was first
            return False
    return True


if __name__ == "__main__":
    if not kept().exists():
        make(kept())
