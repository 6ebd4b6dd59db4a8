"""Spikes in the report: the table's counts, the figure with a panel for each cell, and reports without any."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.analysis.results import load_sweep
from tasks.report.figures.loss_spikes import POINTS, _thinned, spike_figure
from tasks.report.model import make_report
from tasks.report.write import write_report
from tests.tasks.fake_sweep import Fake, make_sweep

STEPS = 400


def fake(rule: str, *, spiky: bool, **more: object) -> Fake:
    """RMS spikes at 200 and 300; the loss follows the first of them four steps later, for three steps."""
    return Fake(
        {"pool": "gpu", "update_rule": rule, "dataloader_workers": 0},
        steps=STEPS,
        loss=lambda step: 2.0 + (step in (204, 205, 206)) * 2.0 * spiky,
        rms=lambda step: 4.0 if spiky and step in (200, 201, 300) else 1.0,
        parameters={"spikes_after": 100},
        window={"spikes_after": 100},
        **more,  # type: ignore[arg-type]
    )


def test_the_report_counts_spikes_and_draws_them(tmp_path: Path) -> None:
    sweep_dir = make_sweep(tmp_path, [fake("adamw", spiky=True, repeats=2), fake("stable_adamw", spiky=False)])
    report = make_report(load_sweep(sweep_dir))
    by_cell = {row[0]: dict(zip(report.spikes.header, row, strict=True)) for row in report.spikes.rows}
    spiky, quiet = by_cell["adamw"], by_cell["stable_adamw"]
    assert (spiky["loss spikes"], spiky["RMS spikes of patch"], spiky["explained"], spiky["largest RMS"]) == ("2", "4", "2 of 2", "4.00")
    assert (spiky["outcome"], spiky["steps judged"], spiky["by chance"]) == ("ok, 2 repeats", "600", "5.3 %")
    assert 1.9 < float(spiky["largest rise"]) < 2.1 and quiet["largest rise"] == "–"
    assert (quiet["loss spikes"], quiet["RMS spikes of patch"], quiet["explained"]) == ("0", "0", "–")
    paths = write_report(sweep_dir)
    assert "## Spikes" in paths.markdown.read_text() and "<h2>Spikes</h2>" in paths.html.read_text()
    drawn = (sweep_dir / "figures" / "spikes.svg").read_text()
    assert "loss spike, explained by an RMS spike" in drawn and ">adamw<" in drawn and ">stable_adamw<" in drawn
    figure = spike_figure(report.cells)
    assert figure is not None and len({tuple(axes.get_ylim()) for axes in figure.axes[:2]}) == 1, "one scale for all losses"


def test_a_sweep_that_looks_for_no_spikes_has_none_of_this(tmp_path: Path) -> None:
    paths = write_report(make_sweep(tmp_path, [Fake({"pool": "gpu", "dataloader_workers": 0})]))
    assert "Spikes" not in paths.markdown.read_text() and not (paths.markdown.parent / "figures" / "spikes.svg").exists()


def test_a_thinned_curve_keeps_its_peaks() -> None:
    steps, values = np.arange(20_000), np.ones(20_000)
    values[[7, 12_345]] = 9.0, -3.0
    values[100] = np.nan
    kept, shown = _thinned(steps, values)
    assert kept.size <= POINTS and {7, 12_345} <= set(kept.tolist()) and (shown.max(), shown.min()) == (9.0, -3.0)
    assert (np.diff(kept) > 0).all()
