"""Weights of a hub are pinned to a commit, those of a folder are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.components.checkpoint import check_pinned, is_config_alone, place_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("weights", "revision"), [(None, None), ("/a/folder", None), ("./folder", None), ("~/folder", None), ("a/b", COMMIT)]
)
def test_what_is_pinned_as_it_should_be_passes(weights: str | None, revision: str | None) -> None:
    check_pinned(weights, revision)


@pytest.mark.parametrize("revision", [None, "", "main", COMMIT[:-1], COMMIT + "0", COMMIT.upper()])
def test_a_hub_id_needs_a_whole_commit(revision: str | None) -> None:
    with pytest.raises(ValueError, match=r"^clip_weights 'a/b' is a hub id: clip_revision must be its commit, 40 hex digits"):
        check_pinned("a/b", revision, "clip_")


@pytest.mark.parametrize("weights", [None, "/a/folder"])
def test_a_revision_is_for_hub_ids_only(weights: str | None) -> None:
    with pytest.raises(ValueError, match=r"^revision is only for weights that are a hub id$"):
        check_pinned(weights, COMMIT)


@pytest.mark.parametrize(
    "weights", ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json", "x.pt", "x.gguf"]
)
def test_a_folder_with_any_file_of_weights_is_no_config_alone(tmp_path: Path, weights: str) -> None:
    assert not is_config_alone(str(tmp_path)), "there is nothing at all"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    assert is_config_alone(str(tmp_path))
    (tmp_path / weights).touch()
    assert not is_config_alone(str(tmp_path)) and not is_config_alone("meta/llama")


def test_a_hub_id_is_none_whatever_lies_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meta" / "llama").mkdir(parents=True)
    (tmp_path / "meta" / "llama" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert is_config_alone("./meta/llama") and not is_config_alone("meta/llama")


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert place_of("~/x") == f"{tmp_path}/x" and place_of("a/b") == "a/b" and is_config_alone("~")
