"""The stack's folders and ports, and the environment variables that point Prefect, MLflow and Ray at it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.stack.errors import StackError
from cluster.trial_layout import RAY_TOKEN
from experiments.config.paths import REPOSITORY, runs_root

HOST = "127.0.0.1"
POOL = "local"  # the Prefect work pool, and the name of the Ray head's pool in cluster/pools/pools.yaml
# name -> (environment variable, default)
PORTS = {
    "prefect": ("SWEEPBENCH_PREFECT_PORT", 4200),
    "mlflow": ("SWEEPBENCH_MLFLOW_PORT", 5000),
    "ray": ("SWEEPBENCH_RAY_PORT", 6379),
    "ray_dashboard": ("SWEEPBENCH_RAY_DASHBOARD_PORT", 8265),
    "ray_client": ("SWEEPBENCH_RAY_CLIENT_PORT", 10001),  # Ray always starts this proxy
}
SQLITE, POSTGRESQL = "sqlite", "postgresql"  # $SWEEPBENCH_DATABASE
DATABASES = ("prefect", "mlflow")  # of PostgreSQL, each with a role of its name
POSTGRESQL_PORT = 5432  # of a socket's name: nothing listens on TCP
POSTGRESQL_USER = "postgres"  # as whom root's PostgreSQL runs
TELEMETRY_OFF = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # MLflow accepts `true`, not `1`
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True)
class Settings:
    """One stack: its repository, its folder of results, its ports, and what Prefect and MLflow keep their tables in."""

    root: Path
    runs: Path
    ports: dict[str, int]
    database: str = SQLITE

    @property
    def state(self) -> Path:
        """Folder of pids, logs and the Ray token."""
        return self.runs / ".stack"

    @property
    def token(self) -> Path:
        """File with the Ray head's token, mode 0600."""
        return self.runs / RAY_TOKEN

    @property
    def ray_temp(self) -> Path:
        """Ray's session folder, to which Ray gives mode 0777: its parent keeps others out. Not in `runs`: its sockets allow 107 bytes."""
        return Path("/tmp") / f"sweepbench-{os.getuid()}-{self._name}" / "ray"  # noqa: S108 - its parent has mode 0700 and is checked

    @property
    def postgresql_data(self) -> Path:
        """PostgreSQL's files. Root's lie with the user that it runs as (Debian's home of it), to whom `runs` may be closed."""
        return self.runs / ".postgresql" if os.getuid() else Path("/var/lib/postgresql") / f"sweepbench-{self._name}"

    @property
    def postgresql_socket(self) -> Path:
        """The folder of PostgreSQL's socket, for which `runs` may be too long as well."""
        return Path("/tmp") / f"sweepbench-{os.getuid()}-{self._name}-postgresql"  # noqa: S108 - it has mode 0700 and is checked

    @property
    def _name(self) -> str:
        return hashlib.sha256(str(self.runs).encode()).hexdigest()[:8]

    @property
    def prefect_url(self) -> str:
        """Address of the Prefect server, without /api."""
        return f"http://{HOST}:{self.ports['prefect']}"

    @property
    def mlflow_url(self) -> str:
        """Address of the MLflow server."""
        return f"http://{HOST}:{self.ports['mlflow']}"

    @property
    def ray_url(self) -> str:
        """Address of the Ray dashboard, which serves the Jobs API."""
        return f"http://{HOST}:{self.ports['ray_dashboard']}"

    @property
    def mlflow_database(self) -> str:
        """SQLAlchemy URL of MLflow's database."""
        return self._postgresql("mlflow", "psycopg2") if self.database == POSTGRESQL else f"sqlite:///{self.runs / 'mlflow.db'}"

    @property
    def prefect_database(self) -> str | None:
        """SQLAlchemy URL of Prefect's database; None for its own choice, SQLite in its home."""
        return self._postgresql("prefect", "asyncpg") if self.database == POSTGRESQL else None

    def _postgresql(self, name: str, driver: str) -> str:
        """It holds no password: there is none."""
        return f"postgresql+{driver}://{name}@/{name}?host={self.postgresql_socket}&port={POSTGRESQL_PORT}"

    @property
    def artifacts(self) -> Path:
        """MLflow's artifacts: plain files, so that runs logged with and without the server share them."""
        return self.runs / "mlartifacts"


def load(root: Path = REPOSITORY) -> Settings:
    """The settings of the stack of repository `root`, ports and database from the environment.

    Where it names no database: PostgreSQL if these results have one, else SQLite. Raises StackError for an invalid or repeated port, and
    for an unknown database, ConfigError as `runs_root`.
    """
    runs = runs_root(root)
    ports: dict[str, int] = {}
    for name, (variable, default) in PORTS.items():
        text = os.environ.get(variable) or str(default)
        if not text.isdecimal() or not 1024 <= int(text) <= 65535:
            raise StackError(f"{variable}={text!r} is not a port: give a number from 1024 to 65535")
        same = [other for other, port in ports.items() if port == int(text)]
        if same:
            raise StackError(f"{variable} and {PORTS[same[0]][0]} are both {text}: each needs a port of its own")
        ports[name] = int(text)
    chosen = os.environ.get("SWEEPBENCH_DATABASE") or None
    if chosen not in (None, SQLITE, POSTGRESQL):
        raise StackError(f"SWEEPBENCH_DATABASE={chosen!r} is unknown: give {SQLITE} or {POSTGRESQL}")
    settings = Settings(root.resolve(), runs, ports)
    return replace(settings, database=chosen or (POSTGRESQL if (settings.postgresql_data / "PG_VERSION").exists() else SQLITE))


def base_environment(settings: Settings) -> dict[str, str]:
    """Variables of every process of sweepbench, with or without the stack: telemetry off, Prefect's files under runs/."""
    prefect = {
        "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",  # Prefect's own default is pickle, which runs code when it is read
        "PREFECT_CLIENT_MAX_RETRIES": "1",  # after 2 s; its own 5 take a minute for each call to a server that is gone
    }
    return {**TELEMETRY_OFF, **prefect, "SWEEPBENCH_RUNS": str(settings.runs), "PREFECT_HOME": str(settings.runs / ".prefect")}


def stack_environment(settings: Settings) -> dict[str, str]:
    """`base_environment` and the variables that point at the stack's servers."""
    return {
        **base_environment(settings),
        "SWEEPBENCH_ROOT": str(settings.root),
        **{variable: str(settings.ports[name]) for name, (variable, _) in PORTS.items()},
        "PREFECT_API_URL": f"{settings.prefect_url}/api",
        "MLFLOW_TRACKING_URI": settings.mlflow_url,
        "SWEEPBENCH_LOCAL_ADDRESS": settings.ray_url,  # pool `local` of cluster/pools/pools.yaml
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(settings.token),
    }


def environment(root: Path = REPOSITORY) -> dict[str, str]:
    """The variables of a command run by the user: `stack_environment` if the stack is up, else `base_environment`."""
    from cluster.stack.process import alive, read_record

    settings = load(root)
    records = [read_record(settings.state, name) for name in ("prefect", "mlflow", "ray")]
    if all(record is not None and alive(record) for record in records):
        recorded = {name: port for record in records if record for name, port in record.ports.items()}
        return stack_environment(replace(settings, ports={**settings.ports, **recorded}))
    return base_environment(settings)
