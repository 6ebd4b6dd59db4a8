"""Which records of a journal a result rests on. A plain data class: the sampler, which reads no models, imports no pydantic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JournalMark:
    """How many records one writer wrote of an attempt, the CRC-32 of their JSON (8 hex digits), and whether it wrote its close record."""

    records: int
    checksum: str
    closed: bool
