"""Pools: where trials can run. Each is an entry of pools.yaml; $SWEEPBENCH_POOLS and $SWEEPBENCH_EXTRA add or replace entries."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints

from cluster.journal.object_store import problem_with
from cluster.pools.device_kinds import device_kinds
from cluster.pools.errors import PoolError
from cluster.trial_layout import RAY_TOKEN
from experiments.config.credentials import credentials_in, names_secret
from experiments.config.errors import ConfigError, choose
from experiments.config.paths import REPOSITORY, extra_folders, runs_root
from experiments.config.strict import Strict
from experiments.config.validate import validate
from experiments.config.yaml_document import Document, load
from experiments.spec.schema import Name

EMBEDDED = "embedded"
_HERE = Path(__file__).resolve().parent
_TO_COME = ("cpu", "cuda", "hpu")  # kinds that a pool may name without a file in cluster/devices; it cannot run trials
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class PoolEntry(Strict):
    """A pool as pools.yaml describes it."""

    device: str = Field(description="device kind: a file in cluster/devices")
    address: str | None = Field(default=None, description="`embedded` (subprocesses of this machine), or the URL of a Ray head's Jobs API")
    address_env: _Variable | None = Field(default=None, description="environment variable that gives, or overrides, the address")
    nodes: int = Field(default=1, ge=1, le=10_000, description="nodes of the cluster; 1 where the pool is this machine")
    accelerators_per_node: int | None = Field(
        default=None, ge=1, le=1024, description="devices per node; on a cpu pool the data-parallel workers per node; null: not stated"
    )
    resources: dict[str, float] = Field(
        default_factory=dict, description="Ray's custom resources per device: a node has accelerators_per_node times as much"
    )
    accelerator_type: str | None = Field(default=None, description="Ray's accelerator type, such as A100")
    image: str | None = Field(default=None, description="container image of the nodes")
    python: str | None = Field(
        default=None, description="Python executable on the nodes (embedded: also a path from the repository); null: as here"
    )
    env: dict[_Variable, str] = Field(default_factory=dict, description="environment variables of the pool's trials")
    storage: str | None = Field(
        default=None, description="URI that all nodes and the flow can reach; null: runs/, at the same path on the nodes as here"
    )
    labels: dict[str, str] = Field(default_factory=dict, description="what you want to remember of it, such as memory: 80GB")
    exclusive: bool = Field(default=True, description="one trial at a time on a node")
    token_env: _Variable | None = Field(default=None, description="environment variable with the cluster's token")
    token_file: str | None = Field(default=None, description="file with the cluster's token, mode 0600; relative to runs/")
    start: Literal["warm", "fresh"] = Field(
        default="warm", description="how a trial's process starts: forked from one that has made its imports, or fresh"
    )
    emulated: bool = Field(default=False, description="the device is emulated: its results are not measurements")
    price_per_hour: float | None = Field(
        default=None, gt=0, le=1e6, description="what an hour of one accelerator or of one node costs (`price_per`); null: not known"
    )
    price_per: Literal["accelerator", "node"] | None = Field(
        default=None, description="of what: a trial pays the accelerators that it uses, or the nodes that it takes, whole"
    )
    price_currency: Annotated[str, StringConstraints(strip_whitespace=True, max_length=20, pattern=r"^[^\x00-\x1f]*$")] = Field(
        default="", description="how the price's currency is called in tables, such as USD"
    )
    lock_clocks_mhz: int | None = Field(
        default=None, ge=100, le=10_000, description="lock the GPUs' SM clock at this while a trial runs, where the driver permits it"
    )
    autoscales: bool = Field(default=False, description="nodes join on demand: trials are submitted even if no node can take them yet")
    wait_s: float = Field(
        default=600, ge=0, le=604_800, description="how long trials wait for an unreachable pool before they end as infra"
    )
    lost_after_s: float = Field(
        default=60, gt=0, le=604_800, description="a running trial is lost once its pool has not answered for this long"
    )
    start_timeout_s: float = Field(
        default=300,
        gt=0,
        le=86_400,
        description="how long a trial waits for its resources; on a pool that autoscales: for those of several workers",
    )


class Pool(PoolEntry):
    """A pool with its name. `address` is final, the variable in `address_env` applied; None while the pool is not configured."""

    name: Name

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def embedded(self) -> bool:
        """True if trials are subprocesses of this machine."""
        return self.address == EMBEDDED

    @property
    def here(self) -> bool:
        """True if this machine is the pool's only node: it is embedded, or the Ray head that `make up` started, by whose token it is known.

        An address tells nothing: a tunnel to another machine's head begins at 127.0.0.1 too.
        """
        return self.nodes == 1 and (self.embedded or (self.token_file is not None and self._token_path == runs_root() / RAY_TOKEN))

    @property
    def _token_path(self) -> Path:
        return runs_root() / Path(self.token_file or "").expanduser()

    @property
    def capacity(self) -> int | None:
        """Devices of the whole pool; None where only the pool itself knows."""
        return self.nodes * self.accelerators_per_node if self.accelerators_per_node else None

    def url(self) -> str:
        """The Ray head's address. Raises PoolError for a pool that is not configured or has none."""
        if self.address is None:
            raise PoolError(f"pool {self.name} is not configured: set {self.address_env} to the URL of its Ray head, http://host:8265")
        if self.embedded:
            raise PoolError(f"pool {self.name} is embedded: it has no Ray head")
        return self.address

    def token(self) -> str | None:
        """The cluster's token; None if it has none. Raises PoolError for a missing or malformed token, or a file that others may read."""
        if self.token_env:
            text, source = os.environ.get(self.token_env, ""), f"environment variable {self.token_env}"
        elif self.token_file:
            text, source = self._read_token(self._token_path), self.token_file
        else:
            return None
        token = text.strip()
        if not token:
            raise PoolError(f"pool {self.name}: no token in {source}; put the cluster's token there")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise PoolError(f"pool {self.name}: what is in {source} is not a token: one line of printable characters")
        return token

    def _read_token(self, path: Path) -> str:
        try:
            with open(path) as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise PoolError(f"pool {self.name}: others may read the token file {path} (mode {mode:04o}); run `chmod 600 {path}`")
                return file.read(10_000)
        except OSError as error:
            hint = "`make up` writes it" if self.name == "local" else "put the cluster's token there, mode 0600"
            raise PoolError(f"pool {self.name}: the token file {path} cannot be read ({error.strerror}); {hint}") from None


class PoolsFile(Strict):
    """A pools file."""

    pools: dict[Name, PoolEntry] = Field(description="name -> where its trials run; a later file replaces entries of the same name")


def load_pools(path: Path | None = None) -> dict[str, Pool]:
    """All pools by name: of `path` if given, else of pools.yaml here, each $SWEEPBENCH_EXTRA folder and $SWEEPBENCH_POOLS.

    A later entry replaces an earlier one of the same name completely. Raises ConfigError, which lists every problem.
    """
    if path is not None:
        return _read(path)
    pools = _read(_HERE / "pools.yaml")
    for folder in extra_folders():
        if (folder / "pools.yaml").exists():
            pools |= _read(folder / "pools.yaml")
    if more := os.environ.get("SWEEPBENCH_POOLS"):
        if not Path(more).is_file():
            raise ConfigError.one("$SWEEPBENCH_POOLS", None, "", f"is {more}, which is no file", "name a YAML file of pools, or unset it")
        pools |= _read(Path(more))
    return pools


def find_pool(pools: Mapping[str, Pool], name: str) -> Pool:
    """The pool of that name. Raises ConfigError."""
    if name not in pools:
        raise ConfigError.one("pools", None, name, "unknown pool", choose(name, pools))
    return pools[name]


def _read(path: Path) -> dict[str, Pool]:
    document = load(path)
    entries = validate(PoolsFile, document).pools
    problems = [problem for name, entry in entries.items() for problem in _check(document, name, entry)]
    if problems:
        raise ConfigError([document.problem(("pools", *key), problem, hint) for key, problem, hint in problems])
    return {name: _resolved(name, entry) for name, entry in entries.items()}


def _resolved(name: str, entry: PoolEntry) -> Pool:
    values = entry.model_dump()
    override = os.environ.get(entry.address_env, "") if entry.address_env else ""
    if override:
        if problem := _address_problem(override):
            raise ConfigError.one(f"${entry.address_env}", None, "", problem, "write http://host:8265, or embedded")
        values["address"] = override
    if values["address"]:
        values["address"] = values["address"].rstrip("/")  # one spelling of it: the locks of the nodes go by the address
    if values["address"] == EMBEDDED and values["python"] and os.sep in values["python"]:
        values["python"] = str(REPOSITORY / Path(values["python"]).expanduser())  # relative to the repository's root
    return Pool(name=name, **values)


def _check(document: Document, name: str, entry: PoolEntry) -> list[tuple[tuple[str, ...], str, str]]:
    problems: list[tuple[tuple[str, ...], str, str]] = []
    kinds = sorted({*device_kinds(), *_TO_COME})
    if entry.device not in kinds:
        problems.append(((name, "device"), f"unknown device {entry.device!r}", choose(entry.device, kinds)))
    if entry.address is None and entry.address_env is None:
        problems.append(((name, "address"), "is missing", "write `embedded`, the URL of a Ray head, or give `address_env`"))
    if entry.address is not None and (problem := _address_problem(entry.address)):
        problems.append(((name, "address"), problem, "write embedded, or a URL such as http://127.0.0.1:8265"))
    if entry.token_env and entry.token_file:
        problems.append(((name, "token_file"), "is given beside token_env", "keep one of the two"))
    if entry.address == EMBEDDED:
        if entry.nodes != 1:
            problems.append(((name, "nodes"), f"is {entry.nodes}", "an embedded pool is this machine: 1"))
        ray_only = [
            key for key in ("token_env", "token_file", "accelerator_type", "resources", "storage", "autoscales") if getattr(entry, key)
        ]
        problems += [((name, key), "has no meaning on an embedded pool", "remove it") for key in ray_only]
    problems += _price_problems(name, entry)
    if entry.lock_clocks_mhz is not None and entry.device != "cuda":
        problems.append(((name, "lock_clocks_mhz"), f"has no meaning on device {entry.device}", "remove it"))
    if entry.storage and (problem := problem_with(entry.storage)):
        problems.append(((name, "storage"), problem, "write /shared/folder, s3://bucket/folder or gs://bucket/folder"))
    for variable, value in entry.env.items():
        if problem := "holds a secret by its name" if names_secret(variable) else credentials_in(value):
            problems.append(((name, "env", variable), problem, "give it to the nodes themselves: Ray shows a job's variables"))
    if entry.address != EMBEDDED and entry.nodes > 1 and entry.exclusive:
        problems += _not_exclusive(name, entry)
    bad = {key: value for key, value in entry.resources.items() if not value > 0}
    return problems + [((name, "resources", key), f"is {value}", "should be greater than 0") for key, value in bad.items()]


def _price_problems(name: str, entry: PoolEntry) -> list[tuple[tuple[str, ...], str, str]]:
    """A price says what it is of; where it would mean nothing there is none."""
    if entry.price_per_hour is None:
        alone = [key for key in ("price_per", "price_currency") if getattr(entry, key)]
        return [((name, key), "is given without price_per_hour", "give the price too, or remove it") for key in alone]
    if entry.emulated:
        return [((name, "price_per_hour"), "has no meaning on an emulated pool", "remove it")]
    if entry.price_per is None:
        hint = "write `price_per: accelerator` or `price_per: node`: what an hour of it is paid for"
        return [((name, "price_per"), "is missing beside price_per_hour", hint)]
    if entry.price_per == "accelerator" and entry.device == "cpu":
        return [((name, "price_per"), "is accelerator on a pool of device cpu, which has none", "write `price_per: node`")]
    return []


def _not_exclusive(name: str, entry: PoolEntry) -> list[tuple[tuple[str, ...], str, str]]:
    """What Ray needs, and the entry lacks, to give a trial whole nodes."""
    problems: list[tuple[tuple[str, ...], str, str]] = []
    if not entry.accelerators_per_node:
        problems.append(((name, "accelerators_per_node"), "is missing", "an exclusive pool of several nodes needs it"))
    if not entry.resources and not entry.accelerator_type:
        hint = "give `resources` or `accelerator_type`, by which Ray keeps other trials off a node, or `exclusive: false`"
        problems.append(((name, "exclusive"), "needs a resource that every node of the pool has", hint))
    return problems


def _address_problem(text: str) -> str | None:
    if text == EMBEDDED:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return f"is {text!r}, which is not a URL"
    if problem := credentials_in(text):
        return problem  # it would end up in logs; a token has its own fields
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        return f"is {text!r}, which is not http(s)://host:port"
    return None if port is None or port > 0 else "has the port 0"
