"""Which commits a change lies between, and why a verdict is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.stats.verdict import Verdict
from tasks.nightly.commit_records import FoundCommit, Pairs
from tasks.nightly.store import CellVerdict, NightCode
from tasks.site.culprit import Culprit, culprit_of, reasons
from tasks.site.history import Track, tracks
from tasks.site.words import Commits
from tests.tasks.site.site_support import ONE, alarm, commit, day, read, save, verdict

SENTENCE = "slower by 5.1 % (4.2 to 6.0 %), 8 pairs of 000000000000 against 000000000000"


def pairs(good: int, tonight: int, said: Verdict = Verdict.SLOWER) -> Pairs:
    return Pairs(good=commit(good), good_date=day(good), tonight=commit(tonight), count=8, verdict=said, ratio=0.949, low=0.94, high=0.958)


def found(number: int | None, sentence: str = "it is this one", **more: Any) -> FoundCommit:
    values = {"cell": ONE.cell, "name": "one", "metric": "throughput", "good": commit(1), "bad": commit(4), "on": day(4)}
    return FoundCommit.model_validate(
        {**values, "commit": commit(number) if number else None, "subject": "Halve the buffer", "sentence": sentence, **more}
    )


def of_main(root: Path) -> Track:
    return next(track for track in tracks(read(root)) if track.branch == "main")


def culprit(root: Path, item: CellVerdict) -> Culprit:
    track = of_main(root)
    return culprit_of(track, track.history.cells[ONE.cell], item)


def test_a_change_lies_between_the_commits_of_the_branchs_nights_around_it(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2, branch="next")
    save(tmp_path, 3)
    save(tmp_path, 4, code=NightCode(branch="main"))
    assert culprit(tmp_path, alarm(3)) == Culprit((commit(1), commit(3)))
    others = [culprit(tmp_path, alarm(number)) for number in (1, 2, 4, 9)]
    assert others == [Culprit(None)] * 4, "the first, another branch's, unknown, none"


def test_where_pairs_decided_on_an_alarms_first_night_it_lies_between_their_commits(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save(tmp_path, number)
    first, second = alarm(4, pairs=pairs(1, 4)), alarm(5, since=4, pairs=pairs(1, 5))
    save(tmp_path, 4, [first])
    save(tmp_path, 5, [second])
    assert culprit(tmp_path, first) == culprit(tmp_path, second) == Culprit((commit(1), commit(4)))


def test_pairs_that_did_not_show_the_change_say_nothing_of_its_commits(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    item = alarm(3, pairs=pairs(1, 3, Verdict.UNDECIDED))
    save(tmp_path, 3, [item])
    assert culprit(tmp_path, item) == Culprit((commit(2), commit(3)))


def test_the_commit_that_any_night_of_the_alarm_found_is_the_culprit_and_not_that_of_another_alarm(tmp_path: Path) -> None:
    old, new, later = alarm(1, pairs=pairs(1, 4)), alarm(4, pairs=pairs(1, 4)), alarm(5, since=4, pairs=pairs(1, 5))
    save(tmp_path, 1, [old], bisections=[found(1)])
    save(tmp_path, 4, [new], bisections=[found(None, between=(commit(2), commit(4)))])
    assert culprit(tmp_path, new).between == (commit(2), commit(4)) and culprit(tmp_path, new).commit is None
    save(tmp_path, 5, [later], bisections=[found(3)])
    assert culprit(tmp_path, new).commit == culprit(tmp_path, later).commit == commit(3)
    assert culprit(tmp_path, old).commit == commit(1)
    text = culprit(tmp_path, new).shown(Commits("https://example.org/c/{commit}"))
    assert text == f'<a href="https://example.org/c/{commit(3)}"><code>0000000000</code></a>, the first bad one: Halve the buffer'
    assert culprit(tmp_path, old).shown(Commits()).startswith("<code>0000000000</code>, the first bad one")


def test_reasons_of_a_change_are_pairs_where_and_causes_but_not_what_stands_beside() -> None:
    item = alarm(4, pairs=pairs(1, 4), causes=["git commit 1 → 4", "torch 2.12 → 2.13"])
    both = (commit(1), commit(4))
    assert reasons(item, Culprit(both)) == [SENTENCE, "in the code", "torch 2.12 → 2.13"]
    assert reasons(item, Culprit(None)) == [SENTENCE, "in the code", "git commit 1 → 4", "torch 2.12 → 2.13"]
    assert reasons(item, Culprit(both, found(3))) == [SENTENCE, "in the code", "torch 2.12 → 2.13"]
    assert reasons(item, Culprit(both, found(None, "one of three"))) == [SENTENCE, "in the code", "one of three", "torch 2.12 → 2.13"]


def test_of_no_change_there_is_only_what_pairs_say() -> None:
    looked = {"looked": Verdict.SLOWER, "raw": 0.97, "why": "shown in the heading"}
    same = verdict(ratio=0.97, pairs=pairs(1, 4, Verdict.SAME), **looked)
    refused = verdict(ratio=0.97, not_paired="tonight's code is of no commit", **looked)
    assert reasons(same, None) == ["looked 3.0 % slower; 8 pairs of 000000000000 against 000000000000: same"]
    assert [text.startswith("looked 3.0 % slower, and no pair counts (tonight's") for text in reasons(refused, None)] == [True]
    assert reasons(verdict(), None) == []
