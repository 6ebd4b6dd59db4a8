"""A trial's data set: synthetic ones as dataset.py has them, and the user's own looked at before anything starts, then made ready."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from experiments import workloads
from experiments.config.paths import runs_root
from experiments.parameters import TrainingParameters
from experiments.trial import DataSource, Trial, digest
from tasks.sweep import dataset
from tasks.sweep.dataset import DatasetError

if TYPE_CHECKING:
    from experiments.components.data.sample import Sample
    from experiments.datasets.columns import Holds
    from experiments.datasets.own.findings import Inspection
    from experiments.datasets.own.needs import Needs
    from experiments.datasets.own.table import Table


@dataclass(frozen=True)
class Settled:
    """`source`: where the trial's data is, None for a workload that reads none. `parameters`: those whose values were guessed from it."""

    source: DataSource | None
    parameters: Mapping[str, str] = field(default_factory=dict)


# Parameters that say what is read of a data set and how much of it is needed; `columns` of the workload adds its own
_READ = ("dataset", "drawn_rows", "train_split", "validation_split", "tokenizer", "weights", "model", "batch_size", "devices")
FIRST_IMAGES = 16  # of each split that are decoded before a sweep starts
_EVALUATED = ("evaluation_batch_size", "evaluation_samples")


@dataclass(frozen=True)
class Look:
    """What a workload finds in a folder, and in the images of each split that were decoded."""

    found: Inspection
    samples: Sequence[Sample]

    @property
    def looked(self) -> int:
        return sum(sample.looked for sample in self.samples)

    @property
    def broken(self) -> list[str]:
        """What is wrong with each image that cannot be decoded."""
        return [line for sample in self.samples for line in sample.broken]

    @property
    def too_many_broken(self) -> bool:
        return any(sample.too_many for sample in self.samples)

    @property
    def missing(self) -> list[str]:
        """Everything that keeps the workload from reading it."""
        lines = [str(finding) for finding in self.found.missing]
        some = f"images: {len(self.broken)} of the first {self.looked} cannot be decoded, such as {'; '.join(self.broken[:3])}"
        return [*lines, *([some] if self.too_many_broken else [])]

    @property
    def ready(self) -> bool:
        return not self.missing


class Folders:
    """The data sets that a plan names, each looked at once. `say`: told what was guessed of the user's own, and what is to be made."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self._say = say
        self._schemas: dict[str, type[TrainingParameters]] = {}
        self._settled: dict[str, Settled] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], Table] = {}
        self._samples: dict[tuple[str, str, str], Sample] = {}
        self._versions: dict[str, str] = {}
        self._said: set[str] = set()

    def settle(self, workload: str, parameters: Mapping[str, Any]) -> Settled:
        """The data of a trial with these parameters. Makes nothing. Raises DatasetError, which lists everything that is missing."""
        if workload not in self._schemas:  # finding a workload takes a look at all of them
            self._schemas[workload] = workloads.load(workload).Parameters
        schema = self._schemas[workload]
        own = is_own(schema, parameters)
        read = (*_READ, *_EVALUATED, *columns_of(schema)) if own else ("dataset", "drawn_rows")
        identity = digest([workload if own else None, {name: parameters.get(name) for name in read}])
        if identity not in self._settled:
            self._settled[identity] = self._own(workload, schema, parameters) if own else Settled(dataset.resolve(parameters))
        return self._settled[identity]

    def _own(self, workload: str, schema: type[TrainingParameters], parameters: Mapping[str, Any]) -> Settled:
        name = str(parameters["dataset"])
        if not is_local(name):
            return Settled(_remote(_needs(schema, parameters), parameters))
        look = self.look(schema, parameters)
        found = look.found
        if not look.ready:
            lines = "\n".join(f"  {line}" for line in look.missing)
            hint = f"`sweep data check {shlex.quote(name)} --workload {workload}` shows what is there"
            raise DatasetError(f"dataset {name}, as workload {workload} reads it, lacks:\n{lines}\n{hint}")
        remarks = [f"data set {name}: {finding}" for finding in found.findings if finding.state in ("guessed", "made")]
        for remark in remarks:
            if remark not in self._said:
                self._said.add(remark)
                self._say(remark)
        return Settled(self._source(found, parameters), found.settings)

    def look(self, schema: type[TrainingParameters], parameters: Mapping[str, Any], images: int = FIRST_IMAGES) -> Look:
        """What the workload finds in its local folder. `images`: so many of each split are decoded.

        Raises DatasetError where it is no data set at all.
        """
        from experiments.datasets.own.inspect import inspect
        from experiments.datasets.own.recognise import recognise
        from experiments.datasets.own.table import OwnDataError

        named = (str(parameters["train_split"]), str(parameters["validation_split"]))
        place = str(parameters["dataset"])
        defaults = {name: model_field.default for name, model_field in schema.model_fields.items()}
        try:
            if (place, named) not in self._tables:
                self._tables[place, named] = recognise(_folder(place), named)
            found = inspect(self._tables[place, named], _needs(schema, parameters), parameters, defaults)
            samples = [
                self._sample(place, split, found.columns[name], images)
                for name, kind in columns_of(schema).items()
                if kind == "image" and name in found.columns
                for split in found.used
            ]
        except OwnDataError as error:
            raise DatasetError(f"dataset {error}") from error
        return Look(found, samples)

    def _sample(self, place: str, split: str, column: str, images: int) -> Sample:
        from experiments.components.data.sample import look_at_images

        if (place, split, column) not in self._samples:
            table = next(table for (name, _), table in self._tables.items() if name == place and split in table.parts)
            self._samples[place, split, column] = look_at_images(table.parts[split], column, images)
        return self._samples[place, split, column]

    def _source(self, found: Inspection, parameters: Mapping[str, Any]) -> DataSource:
        """Where trials read: the user's files as they are, or the set that is made of them, in runs/data."""
        from experiments.datasets.own.prepare import fingerprint
        from experiments.datasets.own.recognise import version

        folder = found.table.folder
        if found.recipe is None:
            as_given = folder == _folder(str(parameters["dataset"]))
            source = dataset.resolve({**parameters, "dataset": parameters["dataset"] if as_given else str(folder)})
            assert source is not None
            return source
        if str(folder) not in self._versions:
            self._versions[str(folder)] = version(folder)
        name = fingerprint(self._versions[str(folder)], found.recipe)
        made = runs_root() / "data" / f"own-{name}"
        tokenizer = found.recipe.tokenizer or found.recipe.tokenizer_file
        return DataSource(uri=str(made), fingerprint=name, tokenizer=str(made / "tokenizer") if tokenizer else None)


def make_ready(trial: Trial) -> None:
    """Draw a synthetic set, or make one of the user's files, unless it is there. One process does; others wait.

    Raises DatasetError, also for files that changed since the trial was planned.
    """
    from experiments.datasets.own.prepare import prepare
    from experiments.datasets.own.table import OwnDataError

    if not is_made(trial.data):
        dataset.build(trial.parameters)
        return
    assert trial.data is not None
    made = Path(trial.data.uri)
    made.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(made.with_suffix(".lock")):
        if made.is_dir():
            return
        folders = Folders()
        if folders.settle(trial.workload, trial.parameters).source != trial.data:
            raise DatasetError(
                f"dataset {trial.parameters['dataset']} has changed since the sweep was planned: `sweep resume` takes what is there"
            )
        found = folders.look(workloads.load(trial.workload).Parameters, trial.parameters).found
        assert found.recipe is not None
        try:
            prepare(made, found.table, found.recipe, (trial.parameters["train_split"], trial.parameters["validation_split"]))
        except OwnDataError as error:
            raise DatasetError(f"dataset {error}") from error
        except OSError as error:
            raise DatasetError(f"dataset {trial.parameters['dataset']}: {made} cannot be written: {error.strerror or error}") from error


def is_made(source: DataSource | None) -> bool:
    """Whether this is a set that is made of the user's files, below runs/."""
    return source is not None and Path(source.uri).parent == runs_root() / "data" and Path(source.uri).name.startswith("own-")


def is_local(place: str) -> bool:
    """Whether a data set's name is a path of this machine."""
    return "://" not in place or place.startswith("file://")


def columns_of(schema: type[TrainingParameters]) -> Mapping[str, Holds]:
    """The parameters of a workload that name columns, and what each must hold; none for one that reads no data, or only its own."""
    columns: Mapping[str, Holds] = getattr(schema, "columns", {})
    return columns


def is_own(schema: type[TrainingParameters], parameters: Mapping[str, Any]) -> bool:
    """Whether trials read the user's own data, and their workload says what it needs of it (components/data/splits.py)."""
    return bool(columns_of(schema)) and parameters.get("dataset") is not None and not dataset.is_drawn(parameters)


def _needs(schema: Any, parameters: Mapping[str, Any]) -> Needs:
    needs: Needs = schema.model_validate(parameters).needs()
    return needs


def _folder(place: str) -> Path:
    return Path(place.removeprefix("file://")).expanduser()


def _remote(needs: Needs, parameters: Mapping[str, Any]) -> DataSource | None:
    """Remote Parquet is read as it is: nothing is made of it here. Raises DatasetError where its text has no tokenizer."""
    text = any(kind == "text" for kind in needs.columns.values())
    if text and parameters.get("tokenizer") is None and parameters.get("weights") is None:
        raise DatasetError(
            f"dataset {parameters['dataset']}: give --set tokenizer=FOLDER, with a tokenizer.json; one is trained on a local folder only"
        )
    return dataset.resolve(parameters)
