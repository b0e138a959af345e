"""SCD type 2 (semantics, 9)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listing

from tests.oracle.fold import Event, State, states
from tests.oracle.ledger import Ledger
from tests.oracle.model import Key, Sequence, Value, Version, rank
from tests.oracle.table_schema import SERVICE_COLUMNS, Shape

Moment = tuple[Sequence, State]
"""From this sequence on the key has this state."""


def history(table_schema: Shape, ledger: Ledger, events: dict[Key, list[Event]]) -> list[Version]:
    """Empty unless the table keeps one."""
    if not table_schema.spec.history:
        return []
    return [
        version
        for found in events.values()
        for version in _versions(table_schema, _moments(table_schema, ledger, found))
    ]


def _moments(table_schema: Shape, ledger: Ledger, events: Listing[Event]) -> list[Moment]:
    """The key's states over all generations: a generation starts empty at its floor, and nothing in it is earlier."""
    moments: list[Moment] = []
    for generation in range(1, ledger.generation + 1):
        floor = ledger.generation_low_watermarks[generation - 1]
        own = [e for e in events if e.change.generation == generation]
        if own or generation <= ledger.swept:
            moments.append((floor, None))
        for event, state in zip(own, states(table_schema, own), strict=True):
            moments.append((max(event.sequence, floor, key=rank), state))
    return _collapsed(moments)


def _collapsed(moments: Listing[Moment]) -> list[Moment]:
    """Of the states at one sequence only the last was ever there."""
    after = [*moments[1:], None]
    return [now for now, later in zip(moments, after, strict=True) if later is None or later[0] != now[0]]


def _versions(table_schema: Shape, moments: Listing[Moment]) -> list[Version]:
    versions: list[Version] = []
    start: Sequence = None
    current: State = None
    for at, state in moments:
        if current is not None and not _same(table_schema, current, state):
            versions.append(Version(columns=current, start=start, end=at))
        if not _same(table_schema, current, state):
            start = at
        current = state
    if current is not None:
        versions.append(Version(columns=current, start=start, end=None))
    return versions


def _same(table_schema: Shape, one: State, other: State) -> bool:
    if one is None or other is None:
        return one is other
    return _tracked(table_schema, one) == _tracked(table_schema, other)


def _tracked(table_schema: Shape, row: Mapping[str, Value]) -> dict[str, Value]:
    control = [c for c in (table_schema.spec.columns_to_update, table_schema.spec.force_update) if c is not None]
    untracked = {
        name.lower()
        for name in (*table_schema.sequence, *table_schema.spec.track_history_except, *control, *SERVICE_COLUMNS)
    }
    return {
        name: value
        for name, value in row.items()
        if name.lower() not in untracked and not name.lower().startswith("ar_h_")
    }
