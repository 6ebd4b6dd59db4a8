"""Nightly definitions: what they may hold, and what is said of what they may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.config.errors import ConfigError
from experiments.metrics import metric_of
from experiments.regression.definition import METRICS, cell_id, drop_to_fit, load_night, nights
from experiments.regression.paired_test import PAIRS

WHOLE = """nightly: mine
cells:
  - {suite: synthetic, metrics: [throughput, final_loss]}
looks: [5, 8]
budget: 90m
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


def test_the_definition_that_is_deployed_is_whole() -> None:
    assert "regression" in nights()
    night = load_night("regression")
    assert night.interim_repeats == [3, 5, 8] and night.budget_s == 7200 and night.canary is not None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("budget: 90m", "budget: soon"), r"mine.yaml:5: budget: 'soon' is not a duration; write it as 2h, 90m"),
        (("[5, 8]", "[3, 8]"), r"mine.yaml:4: looks: is \[3, 8\]; write rising numbers of repeats above 3"),
        (("final_loss", "losss"), r"mine.yaml:3: cells\[0\].metrics: 'losss' is not judged; .*final_loss"),
        (("nightly: mine", "nightly: yours"), r"mine.yaml:1: nightly: is 'yours', the file is mine.yaml; write `nightly: mine`"),
        (("budget: 90m", "probe: bert"), r"probe: 'bert' has no cells here"),
        (("budget: 90m", "bugdet: 90m"), r"bugdet"),
        (("budget: 90m", "notify: [https://hooks.example.com/secret]"), r"notify"),
        (("budget: 90m", "alpha: 0"), r"alpha"),
        (("budget: 90m", "pairs: [3, 3]"), r"mine.yaml:5: pairs: is \[3, 3\]; write rising numbers of pairs from 2 on"),
        (
            ("budget: 90m", "canary: {suite: canary, metrics: [bogus]}"),
            r"mine.yaml:5: canary.metrics: 'bogus' is not judged; known: throughput",
        ),
        (
            ("budget: 90m", "canary: {suite: canary, minimum_effect: {latency_p99_s: 0.1}}"),
            r"mine.yaml:5: canary.minimum_effect.latency_p99_s: 'latency_p99_s' is not judged here; add it to `metrics`, or leave it out$",
        ),
        (
            ("final_loss]}", "final_loss], minimum_effect: {energy_j_per_sample: 0.1}}"),
            r"mine.yaml:3: cells\[0\].minimum_effect.energy_j_per_sample: 'energy_j_per_sample' is not judged here; add it to `metrics`",
        ),
        (
            ("final_loss]}", "final_loss], minimum_effect: {final_los: 0.1}}"),
            r"mine.yaml:3: cells\[0\].minimum_effect.final_los: 'final_los' is not judged here; did you mean 'final_loss'\?",
        ),
        (
            ("budget: 90m", "least_nights: 30"),
            r"mine.yaml:5: least_nights: a baseline of 20 nights at most never has the 30 that it needs; write a `least_nights` that is no",
        ),
        (
            ("budget: 90m", "baseline_nights: 4"),
            r"mine.yaml:5: baseline_nights: a baseline of 4 nights at most never has the 5 that it needs; write a",
        ),
        (("budget: 90m", "pairs: [1, 3]"), r"mine.yaml:5: pairs: is \[1, 3\]; write rising numbers of pairs from 2 on"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert load_night(written(tmp_path, WHOLE)).pairs == list(PAIRS)
    assert (
        load_night(written(tmp_path, WHOLE + "pairs: []\n")).pairs == []
        and load_night(written(tmp_path, WHOLE + "pairs: [2, 3]\n")).pairs[0] == 2
    )
    assert load_night(written(tmp_path, WHOLE + "least_nights: 20\n")).least_nights == 20, "as many as the baseline has at most"
    with pytest.raises(ConfigError, match=says):
        load_night(written(tmp_path, WHOLE.replace(*change)))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown nightly definition.*regression"):
        load_night("regresion")


def test_history_goes_on_when_a_schema_gains_a_parameter() -> None:
    old = cell_id("s", "w", "cpu", {"steps": 50, "width": 8}, {"steps": 100, "width": 8})
    assert cell_id("s", "w", "cpu", {"steps": 50, "width": 8, "new": 0}, {"steps": 100, "width": 8, "new": 0}) == old
    assert cell_id("s", "w", "cpu", {"steps": 50, "width": 16}, {"steps": 100, "width": 8}) != old
    assert cell_id("s", "w", "a100", {"steps": 50, "width": 8}, {"steps": 100, "width": 8}) != old


def test_the_lowest_value_goes_first_and_only_as_much_as_needed() -> None:
    costs, values = {"a": 50.0, "b": 30.0, "c": 40.0}, {"a": 3.0, "b": 1.0, "c": 1.0}
    assert drop_to_fit(costs, values, 200, 20) == []
    assert drop_to_fit(costs, values, 100, 20) == ["c"]  # of the two of least value the dearer one
    assert drop_to_fit(costs, values, 80, 20) == ["c", "b"]
    assert drop_to_fit(costs, values, 10, 20) == ["c", "b", "a"]


def test_every_metric_has_words_and_a_smallest_effect() -> None:
    assert all(0 < metric.minimum_effect < 1 and metric.worse != metric.better for metric in METRICS.values())


def test_nights_judge_language_models_by_tokens(tmp_path: Path) -> None:
    """By metrics that a trial of theirs has, and the canary's node shows in both."""
    path = tmp_path / "words.yaml"
    part = "suite: llm, profile: smoke, metrics: [tokens_per_s], minimum_effect: {tokens_per_s: 0.05}"
    other = "suite: llm_inference, profile: smoke, metrics: [latency_per_token_s, tokens_per_s]"
    path.write_text(f"nightly: words\ncells:\n  - {{{part}}}\n  - {{{other}}}\n")
    night = load_night(str(path))
    assert [part.metrics for part in night.cells] == [["tokens_per_s"], ["latency_per_token_s", "tokens_per_s"]]
    tokens, latency = METRICS["tokens_per_s"], METRICS["latency_per_token_s"]
    assert (tokens.higher_is_better, latency.higher_is_better) == (True, False)
    assert (tokens.minimum_effect, latency.minimum_effect) == (0.03, metric_of("latency_p50_s").minimum_effect)
    assert tokens.depends_on_node and latency.depends_on_node
