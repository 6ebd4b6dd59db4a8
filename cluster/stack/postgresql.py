"""PostgreSQL for Prefect and MLflow: a cluster of the stack's own, without a network port and without a password.

It listens on a Unix socket in a folder that only its user may enter, and asks the kernel who connects (`peer`): the user of the stack, and
nobody else, as the roles `prefect` and `mlflow`, each of which owns one database. No role that can connect is a superuser. It refuses to
run as root, so root's runs as user `postgres`, whom the Debian package makes.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from cluster.stack.errors import StackError
from cluster.stack.settings import DATABASES, POSTGRESQL_PORT, POSTGRESQL_USER, Settings

_INSTALL = "on Debian and Ubuntu: apt install postgresql"
_FOLDERS = Path("/usr/lib/postgresql")  # Debian's: <major version>/bin, not on PATH
_MAP = "stack"

# One statement a line, as the single-user mode reads them
_SQL = "".join(
    f"CREATE ROLE {name} LOGIN\nCREATE DATABASE {name} OWNER {name}\nREVOKE ALL ON DATABASE {name} FROM PUBLIC\n" for name in DATABASES
)


def run_as() -> list[str]:
    """What stands before a command of PostgreSQL's: nothing, and for root what makes it another user's."""
    if os.getuid():
        return []
    return ["setpriv", f"--reuid={POSTGRESQL_USER}", f"--regid={POSTGRESQL_USER}", "--clear-groups", "--"]


def binaries(settings: Settings) -> Path | None:
    """The folder of `postgres` and `initdb` of the version that made the data, else of the newest; None if there is none."""
    found = {int(folder.parent.name): folder for folder in _FOLDERS.glob("*/bin") if folder.parent.name.isdecimal()}
    found = {version: folder for version, folder in found.items() if (folder / "initdb").exists()}
    made_by = _version(settings.postgresql_data)
    if made_by in found:
        return found[made_by]
    if made_by is None and found:
        return found[max(found)]
    command = shutil.which("initdb")  # other systems' packages
    return Path(command).resolve().parent if command else None


def server(settings: Settings) -> list[str]:
    """The command of the server. Its settings stand here and not in its file, so that a change of them restarts it."""
    options = {
        "listen_addresses": "",  # no TCP
        "port": str(POSTGRESQL_PORT),  # a part of the socket's name
        "unix_socket_directories": str(settings.postgresql_socket),
        "unix_socket_permissions": "0700",
    }
    folder = binaries(settings) or Path()
    arguments = [each for name, value in options.items() for each in ("-c", f"{name}={value}")]
    return [*run_as(), str(folder / "postgres"), "-D", str(settings.postgresql_data), *arguments]


def answers(settings: Settings) -> bool:
    """True if connections are accepted."""
    folder = binaries(settings)
    if folder is None:
        return False
    address = ["-h", str(settings.postgresql_socket), "-p", str(POSTGRESQL_PORT), "-U", DATABASES[0], "-d", DATABASES[0]]
    command = [str(folder / "pg_isready"), "--quiet", "--timeout=5", *address]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0


def prepare(settings: Settings) -> bool:
    """Check what is needed, and make the cluster with its roles and databases unless it is there; says whether it made it.

    It is made under another name, so that it is whole or not at all. Raises StackError.
    """
    folder, data = _checked(settings), settings.postgresql_data
    if _version(data) is not None:
        return False
    made = data.with_name(f"{data.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    initdb = [str(folder / "initdb"), "-D", str(made), "--username=postgres", "--auth=reject"]
    # sorted by bytes: an order that no update of the C library changes, which would break indexes
    _run([*initdb, "--encoding=UTF8", "--no-locale", "--data-checksums", "--no-instructions"], "initdb")
    # no server runs yet, so the first statements need no connection
    _run([str(folder / "postgres"), "--single", "-D", str(made), "-c", "exit_on_error=on", "postgres"], "postgres --single", _SQL)
    user = pwd.getpwuid(os.getuid()).pw_name.replace('"', '""')
    (made / "pg_hba.conf").write_text(f"local all all peer map={_MAP}\n")
    (made / "pg_ident.conf").write_text("".join(f'{_MAP} "{user}" {name}\n' for name in DATABASES))
    if data.is_dir():
        data.rmdir()  # an empty one, as was checked
    made.rename(data)
    return True


def _checked(settings: Settings) -> Path:
    """The folder of the binaries. Raises StackError where something is missing or does not fit."""
    data, folder = settings.postgresql_data, binaries(settings)
    version = _version(data)
    if folder is None:
        which = f"PostgreSQL {version}, which made {data}," if version else "PostgreSQL"
        raise StackError(f"{which} is not installed: {_INSTALL}{f'-{version}' if version else ''}; or DATABASE=sqlite")
    if version is not None and version != _major(folder):
        fix = f"apt install postgresql-{version}, or dump it there and restore it here (docs/operating.md, Where data live)"
        raise StackError(f"{data} was made by PostgreSQL {version}, and here is {_major(folder)}: {fix}")
    if version is None and data.exists() and any(data.iterdir()):
        raise StackError(f"{data} holds no PostgreSQL cluster and is not empty: move it away, or DATABASE=sqlite")
    if not os.getuid():
        try:
            pwd.getpwnam(POSTGRESQL_USER)
        except KeyError:
            why = f"PostgreSQL does not run as root, and there is no user {POSTGRESQL_USER} to run it as"
            raise StackError(f"{why}: {_INSTALL}; or run the stack as another user") from None
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise StackError(f"PostgreSQL needs a user with a name, and user id {os.getuid()} has none: add it to /etc/passwd") from None
    return folder


def _version(data: Path) -> int | None:
    """The major version that made the cluster; None if there is none."""
    try:
        return int((data / "PG_VERSION").read_text())
    except (OSError, ValueError):
        return None


def _major(folder: Path) -> int:
    """The major version of a folder's binaries; 0 if they do not say it."""
    said = subprocess.run([str(folder / "postgres"), "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+", said)
    return int(number[0]) if number else 0


def _run(command: list[str], what: str, text: str = "") -> None:
    # nothing of the user's environment and no folder of theirs, since it may run as another user
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    done = subprocess.run([*run_as(), *command], input=text, capture_output=True, text=True, check=False, cwd="/", env=environment)
    if done.returncode != 0:
        tail = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-8:])
        raise StackError(f"{what} did not make PostgreSQL's files, status {done.returncode}:\n{tail}")
