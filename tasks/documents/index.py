"""The index of a folder of results pages: a line for each published sweep, and the pages that another command or a person wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.spec.suite_files import title_of
from tasks.documents.goals import GoalTables
from tasks.report.markdown import grid, md
from tasks.report.other_hosts import on_other_hosts
from tasks.report.published_pages import Page, SweepOnPage
from tasks.report.text_format import listed
from tasks.report.told_apart import told_apart
from tasks.sweep.request_text import set_and_chosen

HEAD = """# Results

A line for each sweep that `sweep publish` or `sweep campaign` published: [all sweeps](#all-sweeps). What the best of them say:
[how far from what we aim at](#how-far-from-what-we-aim-at), [where the peak went](#where-the-peak-went) and
[others' ratios beside ours](#others-ratios-beside-ours), loader processes, SwitchBack and FSDP's model sizes among them; of
[loss spikes](../measuring.md#spikes) with AdamW and StableAdamW there is more elsewhere. `python -m tasks.documents` writes this index.

Each page has the plan, every step of every trial, the report and its figures, and says how it was measured: by which command, at which
commit, with what software. `sweep publish --check FOLDER` tells whether a file was changed since. A page's command is as it was given:
campaigns and profiles of earlier pages have other names [today](../operating.md#campaigns); *in 2 runs*: trials were begun twice, by the
command again or by `sweep resume`.
"""
GOALS = """## How far from what we aim at

Of each goal (tasks/documents/goals.yaml) the best cell of all pages above, of those with three trials where there are such; where the
goal's source had other machines or settings, it says so. Picked as the best of several pages, a cell may be lucky. *Beyond it*: the whole
interval is; nothing is claimed of a cell that was not shown to learn what its reference learns: then the best one is told as well whose
loss is proven, or which is a reference itself; of two whose intervals overlap, the one with the proven loss. *On another card*: than the
goal is of; where a page has that card, its best is told too. A ratio is over the cell of the same sweep that differs in the least else,
with its page's interval: 95 %, or more where the sweep was looked at several times; *clocks*: the mean ones of both cells, where they
differ by 1 % or more, and their ratio. At the power limit what draws less runs at a higher clock, which is a part of its gain.
"""
PEAK = """## Where the peak went

In the cells above: the data sheet's peak of the precisions that compute (of fp8 and bf16 where a step has both), and the three largest
drops of the cell's traced steps, which the profiler slows ([how they are made](../measuring.md#where-the-peak-goes)); where none were
traced, also those of the best cell that has traced ones. With the smaller drops, and less the gains, they add up to the peak.
What bounds them, in words: [models in bf16 and fp8](../settings.md#whole-models-in-fp8), [language models](../settings.md#language-models),
[ViT's ladder](../measuring.md#where-the-peak-goes).
"""
RATIOS = """## Others' ratios beside ours

Not our measurements, and no verdict on either: each ratio that the documents of our suites and others report
(experiments/literature/published.csv), beside one of ours. Of several it is that with three trials a cell, where there is one (of what
fits, one trial tells it), then of the same precision, then that in which least differs, then of the plainest cells. Each report has more
under *Published by others*. Brackets are our intervals, of 95 % or more; of what fits, the bounds between the sizes that were tried. *In
TFLOP/s*: of cells that do other work for a sample, such as more pixels.
"""
ALL = """## All sweeps

Single trials decide nothing: of them nothing is found here (–), unless the question was what fits. *Not shown to differ*: no verdict fell
at the level that was used, which does not say that the cells are equal. *Not claimed*: nothing shows that the cell learns what its
reference learns. *The same on another host*: the same cells on as many devices of the same name, measured elsewhere.
"""
OTHERS = """Pages without a manifest: records of another kind. Those of before `sweep publish`, of single trials, are in the repository's
history: `git show d30ac837:docs/results/NAME/README.md`, NAME one of bridgetower-h100, bridgetower-h200, clip-precision-h200 (with
linear_layer), clip-stability-h200 and flava-h200. So are pages that a later campaign replaced: `git log -- docs/results/NAME`.
"""


def index_of(pages: Sequence[Page], found: Mapping[Path, str], goals: GoalTables, ratios: str) -> str:
    """The index as Markdown, written by `python -m tasks.documents`.

    `found`: what each sweep found, by its folder (finding.py). `goals`, `ratios`: the tables of goals.py and ratios_of_others.py.
    """
    header = ["page", "what it is", "found", "device", "trials", "date", "suite"]
    others_of = on_other_hosts(pages)
    rows = [_row(page, sweep, found[sweep.folder], others_of.get(sweep.folder, ())) for page in pages for sweep in page.sweeps]
    others = "\n".join(f"- [{md(page.name)}]({page.name}/README.md): {md(page.title)}" for page in pages if not page.sweeps)
    tables = [(ALL, grid(header, rows)), *([(OTHERS, others)] if others else [])]
    tables += [(GOALS, goals.reached), (PEAK, goals.peak), (RATIOS, ratios)]
    return "\n".join([HEAD, *(f"{text}\n{table}\n" for text, table in tables)])


def _heading(sweep: SweepOnPage) -> str:
    suite = sweep.plan.suite
    return suite.report.title or f"{title_of(suite)}: {suite.description.removesuffix('.')}"


def _row(page: Page, sweep: SweepOnPage, found: str, on_others: Sequence[tuple[Page, SweepOnPage]]) -> list[str]:
    plan, heading = sweep.plan, _heading(sweep)
    alike = [one.plan.request for one in page.sweeps if _heading(one) == heading]
    own, *others = [set_and_chosen(one.set, one.only) for one in (plan.request, *alike)]
    what = told_apart(heading, own, others)
    again = [f"the same on another host: {listed([_link(*other) for other in on_others])}"] if on_others else []
    return [
        _link(page, sweep),
        "; ".join([md(what), *again]),
        md(found) or "–",
        md(sweep.devices),
        sweep.trials,
        sweep.date,
        md(" · ".join([plan.suite.suite, plan.profile, *([sweep.kind] if sweep.kind else [])])),
    ]


def _link(page: Page, sweep: SweepOnPage) -> str:
    where = f"#{sweep.folder.name}" if len(page.sweeps) > 1 else ""  # of a page of one sweep its head is there
    return f"[{md(page.name)}]({page.name}/README.md{where})"
