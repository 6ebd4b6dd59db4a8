"""Weights of a hub are pinned to a commit, those of a folder are not."""

from __future__ import annotations

import pytest

from experiments.components.checkpoint import check_pinned

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
