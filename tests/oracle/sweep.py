"""When rows of older generations vanish (semantics, 2)."""

from __future__ import annotations

from collections import Counter

from tests.oracle.fold import events_by_key
from tests.oracle.ledger import Ledger
from tests.oracle.replica import replica
from tests.oracle.table_schema import Shape


def sweep(table_schema: Shape, ledger: Ledger) -> None:
    """Let older generations vanish once the newest load is whole and the share of rows is small enough."""
    if ledger.generation == 0:
        return
    if ledger.generation == 1:
        ledger.swept = 1
    if ledger.swept == ledger.generation or not _is_whole(table_schema, ledger):
        return
    loads = tuple(sorted((name, repr(file)) for name, file in ledger.seen.items() if file.kind == "load"))
    if ledger.held == ledger.generation and ledger.held_with == loads:  # until a person, or a later load, decides
        return
    events = events_by_key(ledger.changes, ledger.truncates.values())
    rows = [row for row in replica(table_schema, ledger, events) if not row.deleted]
    older = Counter(row.generation for row in rows if row.generation < ledger.generation)
    lacking, live = older.total(), len(rows)
    if not table_schema.keys:  # no row is a newer version of another: the load replaces what was there
        replaced = max(older.values(), default=0)
        lacking, live = replaced - (len(rows) - older.total()), replaced
    if lacking > table_schema.spec.sweep_limit * live:
        ledger.held, ledger.held_with = ledger.generation, loads
    else:
        ledger.swept, ledger.held = ledger.generation, None


def _is_whole(table_schema: Shape, ledger: Ledger) -> bool:
    """Every load file could be read, and each was written again or is gone; no time passes between runs."""
    loads = {name: file for name, file in ledger.seen.items() if file.kind == "load" and name not in ledger.removed}
    if any(file.damage for file in loads.values()):
        return False
    return table_schema.spec.sweep_after == "0s" or all(ledger.read[name][1] == ledger.generation for name in loads)
