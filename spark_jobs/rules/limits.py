"""What a process that works on small tables may take; set by whoever starts it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class MemoryLimits:
    """`query_bytes`: memory of a thread's queries; null: DuckDB's own choice, most of the machine's."""

    query_bytes: int | None = None


LIMITS = MemoryLimits()
