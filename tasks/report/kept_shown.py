"""What is shown of a sweep, kept beside it: thousands of trials are put together once, however often they are looked at.

.shown.json has it with a checksum of all that it follows from: the bytes of the plan, of every trial's record and of the sweep's other
files that are read for it, and the code. Whoever shows the sweep reads all these bytes again. So a file that was changed or damaged since
is found as it would be without the kept one, and what was kept is shown only where putting all together again would give the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from cluster.trial_layout import AA_CERTIFICATES, CERTIFICATES, HELD_TIME, KNOWN_SPREAD, PLAN, SHOWN, SLOTS, TRIALS
from tasks.report.shown import Shown
from tasks.sweep.kept_file import read_kept, write_kept
from tasks.sweep.whole_records import code_digest, record_digest

_FILES = (PLAN, SLOTS, HELD_TIME, KNOWN_SPREAD, CERTIFICATES)


def inputs_of(sweep_dir: Path, digests: Sequence[str]) -> str | None:
    """64 hex digits of all that is shown of a sweep follows from; None where a file cannot be read.

    `digests`: of its trials' records, in the plan's order. What is shown must follow from nothing else: see `settled_inputs`.
    """
    content = hashlib.sha256(code_digest().encode())
    for path in (*(sweep_dir / name for name in _FILES), sweep_dir.parent / AA_CERTIFICATES / f"{sweep_dir.name}.json"):
        try:
            data = path.read_bytes()
            content.update(f"\n{path.name}: {len(data)}\n".encode() + data)
        except FileNotFoundError:
            content.update(f"\n{path.name}: none\n".encode())
        except OSError:
            return None
    content.update("\n".join(digests).encode())
    return content.hexdigest()


def read_shown(sweep_dir: Path) -> Shown | None:
    """What is kept of a sweep, where all that it was made of is as it was; else None."""
    kept = read_kept(sweep_dir / SHOWN)
    try:
        digests = [record_digest(sweep_dir / TRIALS / str(key)) for key in kept.get("trials", ())]
        whole = [digest for digest in digests if digest is not None]
        if not digests or len(whole) < len(digests) or inputs_of(sweep_dir, whole) != kept["inputs"]:
            return None
        return Shown.model_validate_json(kept["shown"])
    except (KeyError, TypeError, ValidationError):  # sealed by something else
        return None


def keep_shown(sweep_dir: Path, keys: Sequence[str], inputs: str, shown: Shown) -> None:
    """Keep what is shown of a sweep. `keys`: of its trials, in the plan's order. `inputs`: `inputs_of` it."""
    write_kept(sweep_dir / SHOWN, {"inputs": inputs, "trials": list(keys), "shown": shown.model_dump_json()})
