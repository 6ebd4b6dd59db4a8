"""What a sweep writes holds no secret of the user's environment, and nothing that somebody planted there is unpickled."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments.config.paths import runs_root
from experiments.trial import Outcome
from tests.cli_support import only_store, sweep

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SENTINEL = "sentinel-5c1e7a90b2"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": SENTINEL,
    "HF_TOKEN": f"hf_{SENTINEL}",
    "WANDB_API_KEY": SENTINEL,
    "DATABASE_URL": f"postgres://user:{SENTINEL}@db/name",
}


class Planted:
    """Its pickle, once loaded, makes a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.proof,))


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below `folder` with its content, that of compressed files too."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        yield path, path.read_bytes()
        if path.suffix == ".gz":
            yield path, gzip.decompress(path.read_bytes())
        elif path.suffix == ".parquet":
            table = pq.read_table(path)
            yield path, repr((table.schema.metadata, table.to_pydict())).encode()


def test_no_secret_is_written_and_no_pickle_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    proof, planted = tmp_path / "proof", []
    for place in (".prefect/storage", "mlartifacts", "data", "."):
        for name in ("result", "result.pkl", "results.pickle", "model.pt"):
            path = runs_root() / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(Planted(proof)))
            planted.append(path)
    status, text = sweep("run", "one_of_three", "--only", "seed=0", folder=tmp_path)
    assert status == 0, text
    store = only_store()
    assert store is not None and set(store.states(store.load_plan()).values()) == {Outcome.OK}
    for command in ("report", "show"):
        status, said = sweep(command, "last", folder=tmp_path)
        assert status == 0, said
        text += said
    assert not proof.exists(), "a planted pickle was loaded"
    assert all(path.exists() for path in planted)

    written = dict(contents(runs_root()))
    assert {path.name for path in written} >= {"plan.json", "journal.jsonl", "result.json", "report.html", "mlflow.db", "prefect.db"}
    assert [str(path) for path, content in contents(tmp_path) if SENTINEL.encode() in content] == []
    assert SENTINEL not in text
    assert (runs_root() / ".prefect" / "prefect.db").stat().st_mode & 0o777 == 0o600

    pickle.loads(planted[0].read_bytes())  # the test can fail: what was planted works
    assert proof.exists()
