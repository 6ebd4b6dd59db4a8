"""What a change can touch, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.report import ab_changed
from tasks.report.ab_changed import changed_comment, changed_facts, changed_headline
from tasks.sweep.touched import Change, Touched

A, B = "a" * 40, "b" * 40
NONE = [Touched("vit"), Touched("bert")]
CPU = frozenset({"cpu"})


def change(*suites: Touched, paths: tuple[str, ...] = ()) -> Change:
    return Change("main", "HEAD", (A, B), suites, paths)


def test_nothing_touched_is_said() -> None:
    found = change(*NONE, paths=("README.md", "docs/a_b.md"))
    assert changed_headline(found) == (
        "no trial of 2 suites runs other code in B (HEAD, bbbbbbbbbbbb) than in A (main, aaaaaaaaaaaa): nothing is measured"
    )
    assert changed_facts(found) == ["2 other files that no trial runs: README.md and docs/a_b.md"]
    assert changed_comment(found, []) == (
        "**No trial of 2 suites runs other code in B (HEAD, bbbbbbbbbbbb) than in A (main, aaaaaaaaaaaa): nothing is measured**\n\n"
        "- 2 other files that no trial runs: README.md and docs/a\\_b.md\n"
    )


def test_suites_are_named_with_the_files_and_what_is_not_measured_with_the_reason() -> None:
    files = tuple(f"experiments/{letter}.py" for letter in "abcd")
    bert, clip = Touched("bert", CPU, files), Touched("clip", CPU, files, "--set: dataset: is not set")
    found = change(bert, clip, Touched("vit"), paths=(*files, "requirements.lock", "experiments/suites/vit.yaml", "tests/x.py"))
    assert changed_headline(found) == "of 3 suites, 2 run other code in B (HEAD, bbbbbbbbbbbb) than in A (main, aaaaaaaaaaaa)"
    assert changed_facts(found) == [
        "bert: by experiments/a.py, experiments/b.py and 2 more",
        "clip is not measured: --set: dataset: is not set",
        "requirements.lock: both sides ran with the libraries that are installed here",
        "experiments/suites/vit.yaml: both sides run suites as they lie here",
        "1 other file that no trial runs: tests/x.py",
    ]


def test_files_of_a_suite_that_could_not_be_read_are_not_said_to_be_run_by_no_trial() -> None:
    unread = Touched("clip", left_out="--profile: no such profile")
    assert changed_facts(change(unread, Touched("vit"), paths=("f.py",))) == [
        "clip is not measured: --profile: no such profile",
        "1 other file that no trial of the other suites runs: f.py",
    ]


def test_one_suite_is_named_and_a_side_that_is_no_commit_or_a_hash_has_no_other_name() -> None:
    found = Change(A[:9], "worktree", (A, None), [Touched("bert", CPU, ("f.py",))], ["f.py"])
    assert changed_headline(found) == "suite bert runs other code in B (worktree) than in A (aaaaaaaaa)"
    assert changed_headline(replace(found, a=A)) == "suite bert runs other code in B (worktree) than in A (aaaaaaaaaaaa)"


def test_the_comment_has_that_of_each_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab_changed, "pull_request_comment", lambda folder: f"of {folder.name}\n")
    text = changed_comment(change(Touched("bert", CPU, ("f.py",)), *NONE), [Path("x"), Path("y")])
    assert text == (
        "**Of 3 suites, 1 runs other code in B (HEAD, bbbbbbbbbbbb) than in A (main, aaaaaaaaaaaa)**\n\n- bert: by f.py\n\n"
        "---\n\nof x\n\n---\n\nof y\n"
    )
