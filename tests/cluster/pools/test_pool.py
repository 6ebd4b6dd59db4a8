"""Pools: what a pools file may say, and where addresses and tokens come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.pools.errors import PoolError
from cluster.pools.pool import find_pool, load_pools
from experiments.config.errors import ConfigError
from tests.cluster.pools.pool_support import TOKEN, pool


def write(folder: Path, text: str, name: str = "pools.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_pools_that_come_with_it() -> None:
    pools = load_pools()
    assert {name: (found.device, found.address) for name, found in pools.items()} == {
        "cpu": ("cpu", "embedded"),
        "cuda": ("cuda", "embedded"),
        "local": ("cpu", "http://127.0.0.1:8265"),
        "a100": ("cuda", None),
        "gaudi2": ("hpu", None),
        "gaudi2-emulated": ("hpu", "embedded"),
    }
    assert all(found.exclusive for found in pools.values())
    assert [name for name, found in pools.items() if found.emulated] == ["gaudi2-emulated"]
    assert Path(str(pools["gaudi2-emulated"].python)).is_absolute(), "wherever sweep is started"
    assert (pools["a100"].capacity, pools["cuda"].capacity) == (8, None)
    assert pools["gaudi2"].resources == {"gaudi2": 1}
    assert len({hash(found) for found in pools.values()}) == 6 and hash(load_pools()["cpu"]) == hash(pools["cpu"])


WRONG = [
    ("devise: cpu", 3, "pools.p.devise", ["unknown key", "did you mean 'device'"]),
    ("nodes: two", 3, "pools.p.nodes", ["is 'two'", "whole number"]),
    ("nodes: 0", 3, "pools.p.nodes", ["is 0", "at least 1"]),
    ("nodes: 2", 3, "pools.p.nodes", ["is 2", "an embedded pool is this machine: 1"]),
    ("token_env: T", 3, "pools.p.token_env", ["no meaning on an embedded pool", "remove it"]),
    ("token_env: T-1", 3, "pools.p.token_env", ["is 'T-1'", "should be text like"]),
    ("address: {}", 3, "pools.p.address", ["duplicate key"]),
    ("wait_s: -1", 3, "pools.p.wait_s", ["is -1", "at least 0"]),
    ("storage: s3://b", 3, "pools.p.storage", ["no meaning on an embedded pool", "remove it"]),
    ("lock_clocks_mhz: 1500", 3, "pools.p.lock_clocks_mhz", ["no meaning on device cpu", "remove it"]),
    ("lock_clocks_mhz: 1", 3, "pools.p.lock_clocks_mhz", ["is 1", "at least 100"]),
    ("env: {A-B: x}", 3, "pools.p.env.A-B", ["is 'A-B'", "should be text like"]),
    ("env: {HF_TOKEN: x}", 3, "pools.p.env.HF_TOKEN", ["holds a secret by its name", "give it to the nodes themselves"]),
]


@pytest.mark.parametrize(("line", "number", "key", "parts"), WRONG)
def test_wrong(tmp_path: Path, line: str, number: int, key: str, parts: list[str]) -> None:
    path = write(tmp_path, f"pools:\n  p:\n    {line}\n    device: cpu\n    address: embedded\n")
    if "duplicate" in parts[0]:
        number = 5
    with pytest.raises(ConfigError) as caught:
        load_pools(path)
    error = caught.value
    assert (error.file, error.line, error.key) == (str(path), number, key)
    assert all(part in str(error) for part in parts), str(error)


@pytest.mark.parametrize(
    ("entry", "key", "parts"),
    [
        ("{address: embedded}", "pools.p.device", ["is missing"]),
        ("{device: cpu}", "pools.p.address", ["is missing", "`embedded`, the URL of a Ray head, or give `address_env`"]),
        ("{device: tpu, address: embedded}", "pools.p.device", ["unknown device 'tpu'", "known: cpu, cuda, hpu"]),
        ("{device: clock, address: embedded}", "pools.p.device", ["unknown device 'clock'"]),  # a file there, and no device
        ("{device: ../x, address: embedded}", "pools.p.device", ["unknown device '../x'"]),
        ("{device: cpu, address: embeded}", "pools.p.address", ["is 'embeded'", "not http(s)://host:port", "write embedded"]),
        ("{device: cpu, address: 'ray://h:10001'}", "pools.p.address", ["not http(s)://host:port"]),
        ("{device: cpu, address: 'http://h:x'}", "pools.p.address", ["not a URL"]),
        ("{device: cpu, address: 'http://h:8265/api'}", "pools.p.address", ["not http(s)://host:port"]),
        ("{device: cpu, address: 'http://u:secret@h:8265'}", "pools.p.address", ["user name or password"]),
        ("{device: cpu, address: 'http://h:1', token_env: A, token_file: b}", "pools.p.token_file", ["beside token_env", "keep one"]),
        ("{device: cpu, address: 'http://h:1', resources: {x: 0}}", "pools.p.resources.x", ["is 0", "greater than 0"]),
        (
            "{device: cpu, address: 'http://h:1', storage: results}",
            "pools.p.storage",
            ["neither a path from /", "write /shared/folder, s3://"],
        ),
        ("{device: cpu, address: 'http://h:1', storage: 's3://k:secret@b/x'}", "pools.p.storage", ["holds a user name"]),
        (
            "{device: cuda, address: 'http://h:1', nodes: 2, accelerator_type: A100}",
            "pools.p.accelerators_per_node",
            ["is missing", "an exclusive pool of several nodes needs it"],
        ),
        (
            "{device: cuda, address: 'http://h:1', nodes: 2, accelerators_per_node: 8}",
            "pools.p.exclusive",
            ["needs a resource that every node", "`resources` or `accelerator_type`"],
        ),
    ],
)
def test_wrong_entries(tmp_path: Path, entry: str, key: str, parts: list[str]) -> None:
    path = write(tmp_path, f"pools:\n  ok: {{device: cpu, address: embedded}}\n  p: {entry}\n")
    with pytest.raises(ConfigError) as caught:
        load_pools(path)
    assert (caught.value.line, caught.value.key) == (3, key)
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "secret" not in str(caught.value)


def test_unsafe_names_and_unknown_pools(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r":2: pools\.\.\./p: is '\.\./p'; should be up to 64 lower-case letters, digits, - and _"):
        load_pools(write(tmp_path, "pools:\n  ../p: {device: cpu, address: embedded}\n"))
    with pytest.raises(ConfigError, match=r"cudaa: unknown pool; did you mean 'cuda'\?"):
        find_pool(load_pools(), "cudaa")
    assert find_pool(load_pools(), "cuda").device == "cuda"


def test_other_files_add_and_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, own = tmp_path / "extra", tmp_path / "own.yaml"
    extra.mkdir()
    write(extra, "pools:\n  x: {device: cpu, address: embedded}\n  cpu: {device: cpu, address: embedded, accelerators_per_node: 3}\n")
    own.write_text("pools:\n  x: {device: cuda, address: embedded}\n")
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(extra))
    assert (load_pools()["x"].device, load_pools()["cpu"].capacity) == ("cpu", 3)
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(own))
    assert load_pools()["x"].device == "cuda" and set(load_pools()) == {"cpu", "cuda", "local", "a100", "gaudi2", "gaudi2-emulated", "x"}
    monkeypatch.setenv("SWEEPBENCH_POOLS", str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match=r"\$SWEEPBENCH_POOLS: is .*absent\.yaml, which is no file; name a YAML file of pools"):
        load_pools()


def test_an_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load_pools()["a100"].embedded
    with pytest.raises(PoolError, match="pool a100 is not configured: set SWEEPBENCH_A100_ADDRESS to the URL"):
        load_pools()["a100"].url()
    monkeypatch.setenv("SWEEPBENCH_A100_ADDRESS", "https://head.example:8265/")
    assert load_pools()["a100"].url() == "https://head.example:8265"
    monkeypatch.setenv("SWEEPBENCH_A100_ADDRESS", "head:8265")
    with pytest.raises(ConfigError, match=r"\$SWEEPBENCH_A100_ADDRESS: is 'head:8265', which is not http"):
        load_pools()
    with pytest.raises(PoolError, match="is embedded: it has no Ray head"):
        pool().url()


def test_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = pool(address="http://h:1", token_env="THE_TOKEN")
    assert pool(address="http://h:1").token() is None
    with pytest.raises(PoolError, match="no token in environment variable THE_TOKEN"):
        remote.token()
    monkeypatch.setenv("THE_TOKEN", TOKEN + "\n")
    assert remote.token() == TOKEN
    assert TOKEN not in repr(remote) + remote.model_dump_json()
    monkeypatch.setenv("THE_TOKEN", "two\r\nlines")
    with pytest.raises(PoolError, match="is not a token") as caught:
        remote.token()
    assert "two" not in str(caught.value)


def test_token_from_a_file_that_only_its_owner_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    remote = pool(name="local", address="http://h:1", token_file=".stack/ray_token")
    with pytest.raises(PoolError, match=r"token file .* cannot be read \(No such file or directory\); `make up` writes it"):
        remote.token()
    path = tmp_path / ".stack" / "ray_token"
    path.parent.mkdir()
    path.touch(mode=0o600)
    with pytest.raises(PoolError, match="no token in"):
        remote.token()
    path.write_text(TOKEN)
    assert remote.token() == TOKEN
    for mode in (0o640, 0o604, 0o644):
        path.chmod(mode)
        with pytest.raises(PoolError, match=rf"others may read the token file .* \(mode 0{mode:o}\); run `chmod 600"):
            remote.token()
