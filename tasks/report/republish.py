"""Write the texts of a results page anew from its own plans and steps, as today's code says them: the sweeps themselves are not needed."""

from __future__ import annotations

import re
import secrets
import shutil
from pathlib import Path

from cluster.trial_layout import CERTIFICATES, HELD_TIME, KNOWN_SPREAD, PLAN, STEPS
from tasks.report.manifest import check_published, listed_files
from tasks.report.publish import README, PublishError, publish_plan, published_sweep, replace_page, write_page
from tasks.sweep.store import read_plan

_KEPT = (STEPS, KNOWN_SPREAD, CERTIFICATES, HELD_TIME)  # with the plan what was measured and known; all else is derived


def republish(folder: Path) -> Path:
    """Reports, figures, README and manifest of the page in `folder`; what was measured stays byte by byte, and of a plan all but the
    places of data that we drew. Returns its README.

    Raises PublishError, and writes nothing, if a file of the page is not as it was written; ResultsError for a folder that is no page;
    OSError.
    """
    if problems := check_published(folder):
        raise PublishError("nothing was written:\n" + "\n".join(f"- {problem}" for problem in problems))
    text = (folder / README).read_text(encoding="utf-8")
    names = sorted((path.partition("/")[0] for path in listed_files(folder) if path.endswith(f"/{PLAN}")), key=text.find)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        for name in names:
            (temporary / name).mkdir(parents=True)
            for kept in _KEPT:
                if (folder / name / kept).exists():
                    shutil.copyfile(folder / name / kept, temporary / name / kept)
            if (plan := read_plan(folder / name / PLAN)) is not None:
                publish_plan(plan, folder / name / PLAN, temporary / name / PLAN)  # earlier ones may name where data lay
        write_page([published_sweep(temporary / name) for name in names], _missing(text), temporary)
        replace_page(folder, temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder / README


def _missing(text: str) -> list[str]:
    """What the page says was not measured, which only its campaign knew."""
    after = re.split(r"\nNot measured(?:, or not as often as planned)?:\n", text, maxsplit=1)[-1]  # the first: of earlier pages
    if after == text:
        return []
    lines = after.partition("\n\n")[0].splitlines()
    return [re.sub(r"\\(.)", r"\1", line.removeprefix("- ")) for line in lines]
