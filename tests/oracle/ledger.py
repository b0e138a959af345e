"""What the oracle remembers of the runs so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime

from tests.oracle.model import Arrival, Change, Counts, DeliveredFile, Quarantined, Sequence


@dataclass
class Ledger:
    """All that was ever ingested; grows run by run.

    Attributes:
        read: name to the last version that could be read, and its generation.
        seen: name to the last version, readable or not.
        again: LOAD files written again as they were; a newer full load takes them along.
        removed: names that are no longer in the landing folder.
        generation_low_watermarks: greatest sequence ingested before each generation, from generation 1.
        generation_times: newest commit time ingested before each generation, from generation 1.
        swept: generations below this one have vanished.
        faults: rows ever quarantined.
        held: generation whose sweep waits for a person; null: none does.
        held_with: the load files by which it does.
        columns: names of the table's columns, in lower case.
        texts: columns of whole numbers that have become text.
        misfits: rows in quarantine for a value that does not fit, by file and row.
        truncates: by generation and sequence.
    """

    generation: int = 0
    swept: int = 0
    faults: int = 0
    held: int | None = None
    held_with: tuple[tuple[str, str], ...] = ()
    generation_low_watermarks: list[Sequence] = field(default_factory=list)
    generation_times: list[datetime | None] = field(default_factory=list)
    read: dict[str, tuple[DeliveredFile, int]] = field(default_factory=dict)
    seen: dict[str, DeliveredFile] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    misfits: dict[tuple[str, int], Arrival] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    truncates: dict[tuple[int, Sequence], Change] = field(default_factory=dict)
    identities: Counter[Hashable] = field(default_factory=Counter)
    quarantined: list[Quarantined] = field(default_factory=list)
    settled: list[Quarantined] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
