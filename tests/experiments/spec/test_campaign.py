"""Campaign files: the ones here, and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cluster.pools.pool import load_pools
from experiments.config.errors import ConfigError, Problem
from experiments.spec.campaign import campaigns, load_campaign
from experiments.spec.load import load_suite
from experiments.spec.matrix import PlannedCell, expand

GOOD = """\
campaign: mine
budget: 9m
sweeps:
  - {suite: synthetic, profile: smoke, budget: 3m, to: docs/results/mine}
  - {suite: synthetic, profile: tune, rounds: {most: 1}, only: {batch_size: [16]}, set: {steps: 50}, to: docs/results/mine}
"""
WRITE_TO = "write docs/results/NAME: pages lie there alone, and NAME has letters, digits, -, _, . and {device}"


def written(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def test_names_and_budgets(tmp_path: Path) -> None:
    file = load_campaign(written(tmp_path, GOOD))
    assert [(sweep.called, sweep.budget_s, sweep.rounds.most) for sweep in file.sweeps] == [
        ("synthetic-smoke", 180.0, 3),
        ("synthetic-tune", None, 1),
    ]
    assert file.budget_s == 540.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("budget: 9m", "budget: soon", "mine.yaml:2: budget: 'soon' is not a duration; write it as 2h, 90m, 1h30m or 45s"),
        ("budget: 9m", "budget: 60", "mine.yaml:2: budget: 60 has no unit; write it as 2h, 90m, 1h30m or 45s"),
        ("budget: 9m", "budget: [9m]", "mine.yaml:2: budget: is a list; should be text"),
        ("profile: smoke", "profil: smoke", "mine.yaml:4: sweeps[0].profil: unknown key; did you mean 'profile'?"),
        ("campaign: mine", "campaign: other", "campaign: is 'other', the file is mine.yaml; write `campaign: mine`"),
        ("profile: tune", "profile: smoke", "sweeps[1].name: synthetic-smoke is the name of 2 sweeps; give each a name"),
        ("profile: smoke", "profile: auto", "sweeps[0].profile: is auto, which depends on the machine"),
        ("to: docs/results/mine}", "to: ../mine}", f"mine.yaml:4: sweeps[0].to: is '../mine'; {WRITE_TO}"),
        (
            "to: docs/results/mine}",
            'to: "docs/{pool}/{device}"}',
            "sweeps[0].to: is 'docs/{pool}/{device}'; {device} alone stands for something",
        ),
        ("budget: 3m", "budget: 3m, rounds: {least: 4, most: 3}", "sweeps[0].rounds.least: is 4, more than `most`; write at most 3"),
        ("budget: 3m", "only: {precision: []}", "mine.yaml:4: sweeps[0].only.precision: is an empty list; should be a list of at least 1"),
        ("budget: 3m", "title: ''", "mine.yaml:4: sweeps[0].title: is ''; should be text that is not blank"),
        ("budget: 3m", "title: '  '", "mine.yaml:4: sweeps[0].title: is '  '; should be text that is not blank"),
        ("budget: 3m", "per_run: soon", "mine.yaml:4: sweeps[0].per_run: 'soon' is not a duration"),
        ("budget: 9m", "budget: 9m\nmost: 3", "mine.yaml:3: most: unknown key"),
    ],
)
def test_what_is_wrong_is_named_with_what_would_be_right(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_campaign(written(tmp_path, GOOD.replace(old, new, 1)))
    assert said in str(wrong.value)
    keys = [one.key for one in wrong.value.problems]
    assert len(keys) == len({*keys}), "each is wrong for one reason"


@pytest.mark.parametrize(
    "to",
    ["", ".", "docs", "docs/results", "docs/results/", "docs/results/..", "docs/results/a/b", "docs/results/a b", "tasks/report", "/tmp/a"],
)
def test_a_page_that_no_document_would_find_or_that_lies_in_the_code_is_refused_before_anything_is_measured(
    tmp_path: Path, to: str
) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_campaign(written(tmp_path, GOOD.replace("to: docs/results/mine}", f'to: "{to}"}}', 1)))
    assert str(wrong.value) == f"{tmp_path}/mine.yaml:4: sweeps[0].to: is {to.rstrip('/')!r}; {WRITE_TO}"


@pytest.mark.parametrize(
    "to", ["docs/results/README.md", "docs/results/README.md/", "docs/results/mine.html", "docs/results/{device}.md", "docs/results/CNAME"]
)
def test_a_page_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "CNAME").touch()
    monkeypatch.setattr("experiments.spec.campaign.REPOSITORY", tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_campaign(written(tmp_path, GOOD.replace("to: docs/results/mine}", f'to: "{to}"}}', 1)))
    hint = "a page is a folder, and that is a file's name: write docs/results/NAME without an ending such as .md"
    assert str(caught.value).endswith(f"mine.yaml:4: sweeps[0].to: is '{to.rstrip('/')}'; {hint}")


@pytest.mark.parametrize("to", ["docs/results/mine", "docs/results/mine/", "docs/results/{device}", "docs/results/Mine_2.5-{device}-x1"])
def test_folders_of_pages(tmp_path: Path, to: str) -> None:
    assert load_campaign(written(tmp_path, GOOD.replace("to: docs/results/mine}", f'to: "{to}"}}', 1))).sweeps[0].to == to.rstrip("/")


@pytest.mark.parametrize("wrong", ["budget: 9", "budget: 9m\nmost: 3", "budget: 9m\nsweeps: none"])
def test_a_file_that_is_wrong_elsewhere_still_tells_all_suites_and_profiles_that_there_are_not(tmp_path: Path, wrong: str) -> None:
    text = f"""\
campaign: mine
{wrong}
sweeps:
  - {{suite: synthetik, to: docs/results/a}}
  - {{suite: synthetic, profile: smok, to: /docs}}
  - {{suite: 3, to: docs/results/b}}
  - 4
"""
    text = text if "none" not in wrong else text.partition("\nsweeps:\n")[0]
    with pytest.raises(ConfigError) as error:
        load_campaign(written(tmp_path, text))
    told = str(error.value).splitlines()
    unknown = [line.partition(": ")[2] for line in told if "unknown suite" in line or "no such profile" in line]
    names = [
        "sweeps[0].suite: synthetik: unknown suite; did you mean 'synthetic'?",
        "sweeps[1].profile: smok: the suite synthetic has no such profile; did you mean 'smoke'? known: full, smoke, tune",
    ]
    assert unknown == ([] if "none" in wrong else names) and len(told) > len(unknown)


def test_what_the_schema_alone_cannot_tell_stands_beside_unknown_suites(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_campaign(
            written(tmp_path, GOOD.replace("to: docs/results/mine}", "to: ../mine}", 1).replace("suite: synthetic", "suite: synthetik", 1))
        )
    assert [problem.key for problem in error.value.problems] == ["sweeps[0].to", "sweeps[0].suite"]


def test_an_unknown_campaign_is_told_from_the_known() -> None:
    with pytest.raises(ConfigError, match="unknown campaign; did you mean 'gpu-x4'"):
        load_campaign("gpu_x4")


@pytest.mark.parametrize(
    ("name", "suites"),
    [
        (
            "gpu-x1",
            {"bridgetower", "bridgetower_inference", "clip_precision", "linear_layer", "clip_stability", "vit", "bert"}
            | {"bert_inference", "t5", "t5_inference", "stable_diffusion", "llm", "llm_inference", "winoground"}
            | {"flava"},
        ),
        ("gpu-x1-large", {"clip_precision", "bert", "t5", "flava"}),
        ("gpu-x2", {"vit", "flava", "llm", "bridgetower"}),
    ],
)
def test_the_campaigns_of_one_and_two_gpus_have_every_suite_for_them(name: str, suites: set[str]) -> None:
    """Each in runs of less than ten minutes, with three trials a cell but of what fits, and no sweep longer in a run than that."""
    file = load_campaign(name)
    assert {sweep.suite for sweep in file.sweeps} == suites and file.budget_s < 600 and all("{device}" in sweep.to for sweep in file.sweeps)
    assert all(sweep.budget_s is not None and min(sweep.budget_s, sweep.per_run_s) <= file.budget_s for sweep in file.sweeps)
    others = [sweep for sweep in file.sweeps if (sweep.rounds.least, sweep.rounds.most) != (3, 3)]
    goes_on = [sweep for sweep in others if sweep.rounds.until_decided]
    assert {(sweep.rounds.least, sweep.rounds.most) for sweep in goes_on} <= {(3, 6), (5, 6)}, (
        "what lies some percent apart takes more than 3"
    )
    assert goes_on
    assert {sweep.profile for sweep in others if sweep not in goes_on} <= {"x2_fit"}
    pools = load_pools()
    most = 2 if name == "gpu-x2" else 1
    for sweep in file.sweeps:
        suite = load_suite(sweep.suite, profile=sweep.profile, pools=pools, sets=sweep.set, only=sweep.only)
        assert {cell.parameters.get("devices", 1) for cell in expand(suite)} <= set(range(1, most + 1)), sweep.called
        assert suite.parity_reference <= sweep.rounds.least, f"{sweep.called}: a seed of the reference without one of each cell"


def cells_of(campaign: str) -> dict[str, list[PlannedCell]]:
    pools = load_pools()
    suites = {
        one.called: load_suite(one.suite, profile=one.profile, pools=pools, sets=one.set, only=one.only)
        for one in load_campaign(campaign).sweeps
    }
    return {name: expand(suite) for name, suite in suites.items()}


def told(cells: Iterable[PlannedCell], *names: str) -> set[tuple[Any, ...]]:
    return {tuple(cell.parameters[name] for name in names) for cell in cells}


@pytest.mark.parametrize("devices", [4, 8])
def test_vit_on_many_gpus_has_the_whole_ladder_and_the_scaling_of_its_ends(devices: int) -> None:
    cells = cells_of(f"vit-x{devices}")
    rungs = {str(cell.axes["rung"]) for cell in expand(load_suite("vit", pools=load_pools())) if not cell.reference}
    assert told(cells["ladder"], "rung", "devices") == {(rung, devices) for rung in rungs} and len(rungs) == 12
    numbers = [number for number in (1, 2, 4, 8) if number <= devices]
    assert told(cells["scaling"], "rung", "devices") == {(rung, number) for rung in ("baseline", "sequence_first") for number in numbers}
    every = [*cells["ladder"], *cells["scaling"]]
    assert told(every, "cores_per_device", "threads") == {(16, 8)}, "as many cores for each device"
    assert told(cells["scaling"], "profile_steps", "profile_repeats", "communication_steps") == {(3, 1, 4)}


@pytest.mark.parametrize("devices", [4, 8])
def test_flava_on_many_gpus_has_every_size_and_strategy_and_the_largest_batches(devices: int) -> None:
    cells, sizes = cells_of(f"flava-x{devices}"), ("350m", "900m", "1.8b", "2.7b", "4.8b", "10b")
    assert told([cell for found in cells.values() for cell in found], "devices", "cores_per_device") == {(devices, 16)}
    measured = told([*cells["rates"], *cells["fsdp1"]], "model", "strategy", "batch_size")
    assert measured == {(size, one, 8) for size in sizes for one in ("ddp", "fsdp2", "fsdp2+ac", "fsdp1", "fsdp1+ac")}
    largest = told([*cells["largest"], *cells["largest-others"]], "model", "strategy", "batch_size")
    assert largest == {(size, one, "max") for size in sizes for one in ("ddp", "fsdp2", "fsdp2+ac")} - {("10b", "ddp", "max")}


@pytest.mark.parametrize("name", ["vit-x4", "vit-x8", "flava-x4", "flava-x8"])
def test_campaigns_of_many_gpus_have_three_rounds_and_begin_with_more_than_one_sweep_in_a_run(name: str) -> None:
    file = load_campaign(name)
    assert file.budget_s == 540.0
    assert {sweep.called: sweep.rounds.least for sweep in file.sweeps if sweep.rounds.most > 1} == {
        sweep.called: 3 for sweep in file.sweeps if sweep.called != "fit"
    }
    assert file.sweeps[0].per_run_s <= 360 and all(sweep.budget_s is None for sweep in file.sweeps)
    assert {sweep.to for sweep in file.sweeps} == {"docs/results/" + name.replace("-", "-{device}-")}


@pytest.mark.parametrize("name", campaigns())
def test_every_sweep_of_the_campaigns_here_has_cells(name: str) -> None:
    pools = load_pools()
    for sweep in load_campaign(name).sweeps:
        named = sweep.pools or None
        suite = load_suite(sweep.suite, profile=sweep.profile, pools=pools, pool_names=named, sets=sweep.set, only=sweep.only)
        assert suite.pools == ({"cpu": "cpu"} if name.endswith("-cpu") else {"cuda": "cuda"}) and sweep.to.startswith("docs/results/")


@pytest.mark.parametrize(("old", "new"), [("h200-x1", ["gpu-x1", "gpu-x1-large"]), ("h200-x2", ["gpu-x2"]), ("h200-x4", ["gpu-x4"])])
def test_a_campaign_that_was_renamed_says_what_it_is_called_today(old: str, new: list[str]) -> None:
    """Published pages give their command as it was."""
    hint = " or ".join(f"`sweep campaign {one}`" for one in new)
    with pytest.raises(ConfigError, match=f"{old}: is called otherwise today; {hint}$"):
        load_campaign(old)
    assert [load_campaign(one).campaign for one in new] == new


@pytest.mark.parametrize(
    ("asks", "key", "told"),
    [
        ("pools: [cpu], set: {steps: 50}", "limit", "pools"),  # the same cells on each of them
        ("pools: [cpu], set: {devices: 9}", "devices", "set.devices"),
        ("pools: [cpu], set: {steps: 50}", "", "set"),
        ("set: {steps: 50}, only: {model: [a]}", "devices", "set"),
        ("only: {model: [a]}", "limit", "only"),
    ],
)
def test_cells_that_are_wrong_with_what_a_sweep_asks_for_are_told_at_the_key_that_makes_them_so(
    tmp_path: Path, asks: str, key: str, told: str
) -> None:
    file = load_campaign(written(tmp_path, GOOD.replace("budget: 3m", asks)))
    found = file.problem_of(file.sweeps[0], Problem("synthetic.yaml with overrides", None, key, "are too many", ""), set())
    assert (found.line, found.key) == (4, f"sweeps[0].{told}")
    given = file.problem_of(file.sweeps[0], Problem("synthetic.yaml with overrides", None, key, "are too many", ""), {"width"})
    assert (given.line, given.key) == (None, f"{key} (of sweep synthetic-smoke)".strip()), "the command line may make them so"
