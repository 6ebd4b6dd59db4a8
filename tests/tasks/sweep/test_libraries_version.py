"""Which libraries a trial's key depends on."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.pools.pool import Pool
from tasks.sweep import trial_key
from tasks.sweep.trial_key import libraries_version

POOL = {"name": "p", "device": "cpu"}


def test_an_embedded_pool_has_the_libraries_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, versions = Pool(**POOL, address="embedded"), {"torch": "1"}
    monkeypatch.setattr(trial_key, "_version", versions.get)
    before = libraries_version(pool)
    assert libraries_version(pool.model_copy(update={"image": "an image"})) == before
    versions["transformers"] = "2"
    assert libraries_version(pool) != before
    before = libraries_version(pool)
    monkeypatch.setattr(trial_key.platform, "python_version", lambda: "3.99.0")
    assert libraries_version(pool) != before


@pytest.mark.parametrize("fields", [{"address": "http://head:8265"}, {"address": "embedded", "python": "/other/python"}, {}])
def test_another_python_or_image_has_what_the_pool_declares(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]) -> None:
    pool = Pool(**POOL, **fields)
    before = libraries_version(pool)
    monkeypatch.setattr(trial_key, "_version", lambda name: "another")
    assert libraries_version(pool) == before
    assert libraries_version(pool.model_copy(update={"image": "an image"})) != before
    assert libraries_version(pool.model_copy(update={"python": "/another"})) != before


@pytest.mark.parametrize("name", ["torch", "transformers", "diffusers", "ray", "numpy", "pillow", "tokenizers", "pyarrow", "torchao"])
def test_each_library_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pool = Pool(**POOL, address="embedded")
    monkeypatch.setattr(trial_key, "_version", lambda asked: "1")
    before = libraries_version(pool)
    monkeypatch.setattr(trial_key, "_version", lambda asked: "2" if asked == name else "1")
    assert libraries_version(pool) != before


def test_the_version_of_a_library_is_its_installed_one_or_none() -> None:
    assert trial_key._version("pytest") == pytest.__version__
    assert trial_key._version("no-such-library") is None
