"""The replica: the fold of each key, deletes and the sweep (semantics, 2, 5 and 8)."""

from __future__ import annotations

from collections.abc import Sequence as Listing

from tests.oracle.fold import Event, State, states
from tests.oracle.ledger import Ledger
from tests.oracle.model import Key, ReplicaRow
from tests.oracle.table_schema import Shape


def replica(table_schema: Shape, ledger: Ledger, events: dict[Key, list[Event]]) -> list[ReplicaRow]:
    if not table_schema.keys:
        found = events.get((), [])
        cut = max((place for place, event in enumerate(found) if event.change.op == "T"), default=-1)
        rows = [_row(table_schema, ledger, [event]) for event in found[cut + 1 :]]
    else:
        rows = [_row(table_schema, ledger, found) for found in events.values()]
    return [row for row in rows if row is not None]


def _row(table_schema: Shape, ledger: Ledger, events: Listing[Event]) -> ReplicaRow | None:
    last = events[-1]
    generation = last.change.generation
    state, kept = _fold(table_schema, events)
    deleted = state is None or generation < ledger.swept
    if deleted and (table_schema.spec.delete == "hard" or kept is None or not table_schema.keys):
        return None
    columns = state if state is not None else kept
    assert columns is not None, "a row that is not deleted has columns"
    return ReplicaRow(columns=columns, op=last.op, sequence=last.sequence, generation=generation, deleted=deleted)


def _fold(table_schema: Shape, events: Listing[Event]) -> tuple[State, State]:
    """The state in the highest generation, and the last row the key ever had, which a soft delete keeps."""
    state: State = None
    kept: State = None
    for generation in sorted({e.change.generation for e in events}):
        found = states(table_schema, [e for e in events if e.change.generation == generation])
        state = found[-1]
        kept = next((row for row in reversed(found) if row is not None), kept)
    return state, kept
