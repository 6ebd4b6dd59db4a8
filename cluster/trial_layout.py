"""Every file name of a trial and of a sweep."""

from __future__ import annotations

JOURNAL = "journal.jsonl"
