"""Write the texts of a results page anew from its own plans and steps, as today's code says them: the sweeps themselves are not needed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from cluster.trial_layout import PLAN
from tasks.report.lacks import README, lacks_of
from tasks.report.manifest import check_published, listed_files
from tasks.report.page_folder import PublishError, clear_leftovers, new_page
from tasks.report.publish import publish_again, write_page


def republish(folder: Path, without: Collection[str] = ()) -> Path:
    """Reports, figures, README and manifest of the page in `folder`; what was measured stays byte by byte, and of a plan all but the
    places of data that we drew. Returns its README. `without`: ids of sweeps that leave the page, since later ones have their place.

    Raises PublishError, and writes nothing, if a file of the page is not as it was written, or `without` names a sweep that is not on it
    or leaves none; ResultsError for a folder that is no page; DamagedFile, OSError.
    """
    given, folder = folder, folder.resolve()  # `.` and `page/../page` lead nowhere once the page is moved away
    clear_leftovers(folder)
    if problems := check_published(folder):
        raise PublishError("nothing was written:\n" + "\n".join(f"- {problem}" for problem in problems))
    names = sweeps_of(folder)
    if unknown := [name for name in without if name not in names]:
        raise PublishError(f"{folder}: {', '.join(unknown)} not on the page; write one of {', '.join(names)}")
    stays = [name for name in names if name not in without]
    if not stays:
        raise PublishError(f"{folder}: no sweep would be left; remove the folder instead")
    with new_page(folder) as temporary:
        published = [publish_again(folder / name, temporary / name) for name in stays]
        write_page(published, [lack for lack in lacks_of(folder) if lack.sweep_id not in without], temporary, folder)
    return given / README


def sweeps_of(folder: Path) -> list[str]:
    """Ids of a page's sweeps, in its order. Raises ResultsError for a folder that is no page."""
    text = (folder / README).read_text(encoding="utf-8")
    return sorted((path.partition("/")[0] for path in listed_files(folder) if path.endswith(f"/{PLAN}")), key=text.find)
