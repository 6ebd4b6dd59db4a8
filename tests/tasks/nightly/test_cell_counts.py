"""What a night's headline and `sweep nights` count: cells, each once, with the metrics in which they changed."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from experiments.regression.definition import word_of
from experiments.stats.verdict import Verdict
from flows.cli import show_night
from tasks.nightly.cell_counts import CellCount, cell_counts
from tasks.nightly.report import headline, markdown, verdict_table
from tasks.nightly.store import CellVerdict, Night, NightStore
from tests.tasks.nightly.night_support import TONIGHT, cell, night

T, M, F, L, E = "throughput", "peak_memory_bytes", "time_to_first_step_s", "final_loss", "energy_j_per_sample"
WORSE, BETTER, OPEN, SAME = Verdict.SLOWER, Verdict.FASTER, Verdict.UNDECIDED, Verdict.SAME


def night_of(cells: Mapping[str, Mapping[str, Verdict]], needs: Mapping[str, int] | None = None) -> Night:
    """A night with these verdicts by metric of each cell; of those in `needs` the baseline is too short."""
    items = [
        CellVerdict(
            cell=name,
            name=name,
            role="history",
            metric=metric,
            verdict=verdict,
            word=word_of(verdict, metric),
            minimum=0.03,
            repeats=3,
            needs=(needs or {}).get(name),
        )
        for name, metrics in cells.items()
        for metric, verdict in metrics.items()
    ]
    return night(judgements=items, cells=[cell(name) for name in cells], closed_at=1.8e9)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"a": {T: WORSE, F: WORSE, E: WORSE}}, "1 cell worse in throughput, time to first step and energy per sample"),
        ({"a": {T: WORSE, M: SAME, E: OPEN}, "b": {T: SAME, M: SAME}}, "1 cell worse in throughput, 1 cell the same"),
        ({"a": {T: SAME, E: WORSE}, "b": {T: WORSE, E: WORSE}}, "2 cells worse in energy per sample and throughput"),
        ({"a": {T: WORSE, M: BETTER}, "b": {M: BETTER}}, "1 cell worse in throughput, 2 cells better in peak memory"),
        (
            {"a": {T: SAME, E: OPEN}, "b": {T: OPEN}, "c": {T: SAME}},
            "2 cells undecided in energy per sample and throughput, 1 cell the same",
        ),
        ({"a": dict.fromkeys((T, M, F, L), WORSE)}, "1 cell worse in throughput, peak memory, time to first step and final loss"),
        ({"a": dict.fromkeys((T, M, F, L, E), WORSE)}, "1 cell worse in throughput, peak memory, time to first step and 2 more"),
        ({"a": {T: SAME}, "b": {T: SAME}}, "2 cells the same"),
    ],
)
def test_a_cell_counts_once_with_the_metrics_in_which_it_changed(cells: Mapping[str, Mapping[str, Verdict]], said: str) -> None:
    found = night_of(cells)
    regression = "REGRESSION: " if "worse" in said else ""
    assert headline(found) == f"{regression}made-up {TONIGHT}: {said}"


def test_metrics_that_are_the_same_are_counted_below_the_table_where_there_are_any() -> None:
    for cells, said in (({"a": {T: WORSE}}, None), ({"a": {T: SAME, M: SAME}}, "2 metrics of all cells the same.")):
        text = markdown(found := night_of(cells), [found], [])
        assert (said in text) if said else ("of all cells the same" not in text)


def test_sentences_that_are_put_together_have_one_mark_between_them() -> None:
    found = night_of({"a": {T: WORSE}})
    item = found.judgements[0].model_copy(update={"why": "More pairs decide it.", "causes": ["code a → b", "git commit c → d"]})
    [row] = verdict_table(found.model_copy(update={"judgements": [item]})).rows
    assert row[-1] == "More pairs decide it; code a → b; git commit c → d"


def test_cells_that_cannot_be_judged_yet_are_none_of_them() -> None:
    assert cell_counts(night_of({"a": {T: OPEN}, "b": {T: SAME}}, {"a": 5})) == [CellCount("the same", 1)]
    assert cell_counts(night_of({})) == []


def test_the_list_of_nights_counts_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPBENCH_RUNS", str(tmp_path))
    cells = {"a": {T: WORSE, F: WORSE, E: WORSE}, "b": {T: SAME, E: OPEN}, "c": {T: OPEN, M: OPEN}, "d": {T: SAME}}
    store, found = NightStore("made-up"), night_of(cells, {"c": 5})
    store.folder(TONIGHT).mkdir(parents=True)
    store.save(found)
    [row] = show_night.night_rows()
    assert row["verdicts"] == {"worse": 1, "undecided": 1, "the same": 1, "recorded": 1}
    assert row["metrics"] == {"worse": [T, F, E], "undecided": [E]} and len(row["worse"]) == 3
    page = Console(file=StringIO(), width=200)
    show_night.nights(page, [row])
    shown = "1 worse (throughput, time to first step, energy per sample), 1 undecided, 1 the same, 1 recorded"
    assert shown in page.file.getvalue()  # type: ignore[attr-defined]
    for state, columns in (("judged", 2), ("recorded", 0)):
        controls = Console(file=StringIO(), width=200)
        show_night.nights(controls, [{**row, "state": state, "verdicts": {}, "probes": {"twin": "undecided", "injected": "undecided"}}])
        assert controls.file.getvalue().count("undecided") == columns, "a control of a first night has no baseline"  # type: ignore[attr-defined]
