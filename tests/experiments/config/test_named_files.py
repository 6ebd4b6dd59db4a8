"""Files that are found by their names, here and in the user's folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from experiments.config.named_files import chosen_file, misnamed, named_files
from experiments.config.yaml_document import load


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `dishes` of ours with soup.yaml and salt.txt, and one of the user's with stew.yaml."""
    for name in ("ours/dishes/soup.yaml", "ours/dishes/salt.txt", "extra/dishes/stew.yaml", "extra/others/cake.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("dish: soup\n")
    monkeypatch.setenv("SWEEPBENCH_EXTRA", str(tmp_path / "extra"))
    return tmp_path / "ours" / "dishes"


def test_ours_and_the_users_are_found_by_name(ours: Path, tmp_path: Path) -> None:
    assert named_files(ours, "dish") == {"soup": ours / "soup.yaml", "stew": tmp_path / "extra" / "dishes" / "stew.yaml"}
    assert named_files(ours, "dish", "*.txt") == {"salt": ours / "salt.txt"}


def test_one_name_twice_is_an_error_that_names_both(ours: Path, tmp_path: Path) -> None:
    other = tmp_path / "extra" / "dishes" / "soup.yaml"
    other.write_text("")
    with pytest.raises(ConfigError, match=f"{other}: the dish soup is already in {ours / 'soup.yaml'}; rename one of them"):
        named_files(ours, "dish")


def test_a_name_or_a_path_chooses_a_file(ours: Path) -> None:
    def files() -> dict[str, Path]:
        return named_files(ours, "dish")

    assert chosen_file("soup", files, "dish", "dish") == ours / "soup.yaml"
    assert chosen_file("there.yaml", files, "dish", "dish") == Path("there.yaml")
    assert chosen_file("here/there", files, "dish", "dish") == Path("here/there")
    with pytest.raises(ConfigError, match=r"dish: .*soop.*unknown dish.*did you mean 'soup'"):
        chosen_file("soop", files, "dish", "dish")


def test_a_file_is_called_what_it_says(ours: Path, tmp_path: Path) -> None:
    document = load(ours / "soup.yaml")
    assert misnamed(document, "dish", "soup", ours / "soup.yaml") == []
    [problem] = misnamed(document, "dish", "soup", tmp_path / "stew.yaml")
    assert (problem.problem, problem.hint) == ("is 'soup', the file is stew.yaml", "write `dish: stew`")
