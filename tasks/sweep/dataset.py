"""Resolve the data set that a trial reads, and build it if it is synthetic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from experiments.components.data.listing import fingerprint
from experiments.config.errors import UserError
from experiments.config.paths import runs_root
from experiments.datasets import scenes, shapes, texts
from experiments.trial import DataSource, digest

# value of the parameter `dataset` -> its generator
_GENERATORS: Mapping[str, Any] = {"drawn": scenes, "drawn-text": texts, "drawn-classes": shapes}
_NAMES = " or ".join(map(repr, _GENERATORS))
_VALIDATION_SHARE = 8  # one held-out row per this many generated ones


class DatasetError(UserError):
    """The data set does not exist or cannot be read. The message names it and says what would be valid."""


def resolve(parameters: Mapping[str, Any]) -> DataSource | None:
    """The data source of a trial with these parameters; None for a workload that reads no data. Builds nothing.

    The fingerprint of a synthetic set depends on its arguments, that of files on their names, sizes and modification times. Raises
    DatasetError.
    """
    dataset = parameters.get("dataset")
    if dataset is None:
        return None
    if generator := _GENERATORS.get(dataset):
        version = generator.fingerprint(**_generator_arguments(parameters))
        folder = runs_root() / "data" / f"{generator.__name__.rpartition('.')[2]}-{version}"
        tokenizer = str(folder / "tokenizer") if generator.LAST == "tokenizer" else None
        return DataSource(uri=str(folder), fingerprint=version, tokenizer=tokenizer)
    if dataset.startswith("hf://"):
        revision = re.search(r"@([0-9a-f]{40})(/|$)", dataset)
        if not revision:
            raise DatasetError(f"dataset {dataset}: pin the revision, as in hf://datasets/OWNER/NAME@<40 hex digits>/FOLDER")
        return DataSource(uri=dataset, fingerprint=digest(dataset))
    return DataSource(uri=dataset, fingerprint=_listing(dataset))


def is_drawn(parameters: Mapping[str, Any]) -> bool:
    """True if the trials' data set is synthetic."""
    return parameters.get("dataset") in _GENERATORS


def is_built(parameters: Mapping[str, Any]) -> bool:
    """True unless the set is synthetic and has not been generated yet. Raises DatasetError."""
    source = resolve(parameters)
    generator = _GENERATORS.get(str(parameters.get("dataset")))
    return source is None or generator is None or (Path(source.uri) / generator.LAST).exists()


def build(parameters: Mapping[str, Any]) -> None:
    """Generate the set if it is synthetic and does not exist yet. One process generates it; others wait. Raises DatasetError."""
    source = resolve(parameters)
    generator = _GENERATORS.get(str(parameters.get("dataset")))
    if source is None or generator is None:
        return
    folder = Path(source.uri)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not is_built(parameters):
            generator.build(folder, **_generator_arguments(parameters))


def _generator_arguments(parameters: Mapping[str, Any]) -> dict[str, int]:
    rows = int(parameters["drawn_rows"])
    return {"rows": rows, "validation_rows": max(64, rows // _VALIDATION_SHARE), "seed": 0}


def _listing(dataset: str) -> str:
    """Fingerprint of a folder of Parquet files. Raises DatasetError."""
    from pyarrow import fs  # with numpy 0.1 s, and most suites draw their data sets

    uri = dataset if "://" in dataset else str(Path(dataset).expanduser().resolve())
    try:
        version = fingerprint(*fs.FileSystem.from_uri(uri))
    except FileNotFoundError:
        raise DatasetError(f"dataset {dataset} does not exist; give a folder of Parquet files, s3://, gs://, hf:// or {_NAMES}") from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"dataset {dataset} cannot be read: {error}") from error
    if version is None:
        raise DatasetError(f"dataset {dataset}: no *.parquet file there; give a folder of Parquet files, s3://, gs://, hf:// or {_NAMES}")
    return version
