"""Suites' files: which there are, what one says before it is held against its workload, and what people call a suite."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from experiments.config.errors import ConfigError
from experiments.config.named_files import misnamed, named_files
from experiments.config.validate import validate
from experiments.config.yaml_document import Document, load
from experiments.spec.schema import Suite, SuiteFile
from experiments.spec.vocabulary import BASE

_HERE = Path(__file__).resolve().parents[1] / "suites"


def suite_files() -> dict[str, Path]:
    """Suite name -> file. Raises ConfigError if two files give one name."""
    return named_files(_HERE, "suite")


def title_of(suite: Suite) -> str:
    """What people call the suite; of a plan from before suites had a title as its file of today says, and its name where none tells."""
    if suite.title is None and (path := suite_files().get(suite.suite)) is not None:
        with suppress(ConfigError):  # what was measured has a report, whatever became of the file
            return read_suite(path)[1].title or suite.suite
    return suite.title or suite.suite


def read_suite(path: Path) -> tuple[Document, SuiteFile]:
    """A suite's file, checked against the schema but not yet against its workload. Raises ConfigError."""
    document = load(path)
    document = Document(shown_path(path), document.data, document.lines)
    file = validate(SuiteFile, document)
    if problems := misnamed(document, "suite", file.suite, path):
        raise ConfigError(problems)
    for name in (BASE, "auto"):
        if name in file.profiles:
            problem = "is a name with a meaning of its own"
            raise ConfigError([document.problem(("profiles", name), problem, "full is the suite without a profile; choose another name")])
    return document, file


def shown_path(path: Path) -> Path:
    """The path relative to the current folder, where it is inside."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
