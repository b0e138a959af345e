"""Report of a simulation, with the expected content of a correct replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """One table; counts are of all that was written so far.

    `change_rows = sum(changes) + ties + expected_quarantined + expected_redelivered`, once nothing is pending.

    Attributes:
        keys: the key's columns; empty: a table without a key.
        load_files, change_files: readable data files written; a LOAD file counts at each full load.
        load_rows, change_rows: rows in them.
        changes: operation (`I`, `U`, `D`) to changes of the source.
        troubles: trouble to how often it was put in (files, rows or changes, as in `Troubles`).
        expected_quarantined: rows that belong in the quarantine, those of repeated files too.
        expected_redelivered: good rows that came before.
        phantoms: rows of the truth that the source lacks: old keys, updated away without before images.
        pending_files: held back until the next round.
        truth_rows: rows of the truth.
    """

    keys: tuple[str, ...] = ()
    load_files: int = 0
    change_files: int = 0
    load_rows: int = 0
    change_rows: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)
    troubles: Mapping[str, int] = field(default_factory=dict)
    expected_quarantined: int = 0
    expected_redelivered: int = 0
    phantoms: int = 0
    pending_files: int = 0
    truth_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class SimulateReport:
    """Table name to its report, and the round that was written last (0: the full load)."""

    rounds: int
    tables: Mapping[str, TableReport]


@dataclass
class TableCounts:
    """Mutable counts."""

    load_files: int = 0
    change_files: int = 0
    load_rows: int = 0
    change_rows: int = 0
    quarantined: int = 0
    redelivered: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)
