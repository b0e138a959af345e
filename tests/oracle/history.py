"""SCD type 2 (semantics, 9)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listing
from dataclasses import replace
from datetime import UTC, datetime

from tests.oracle.fold import Event, State, states
from tests.oracle.ledger import Ledger
from tests.oracle.model import Key, Sequence, Value, Version, rank
from tests.oracle.table_schema import SERVICE_COLUMNS, Shape

Moment = tuple[Sequence, int, State]
"""From this sequence on, of this generation, the key has this state."""
_LOWEST: Mapping[type, Value] = {str: "", int: -(2**63), datetime: datetime(1970, 1, 1, tzinfo=UTC)}


def history(table_schema: Shape, ledger: Ledger, events: dict[Key, list[Event]]) -> list[Version]:
    """Empty unless the table keeps one."""
    if not table_schema.spec.history:
        return []
    return [
        _told(version, table_schema, ledger)
        for found in events.values()
        for version in _versions(table_schema, _moments(table_schema, ledger, found))
    ]


def _told(version: Version, table_schema: Shape, ledger: Ledger) -> Version:
    """A later generation before which no change came begins below every sequence: null means other things."""
    start, end = version.start, version.end
    if start is None and version.start_generation > 1:
        start = _below_all(table_schema, ledger)
    if end is None and version.end_generation is not None:
        end = _below_all(table_schema, ledger)
    return replace(version, start=start, end=end)


def _below_all(table_schema: Shape, ledger: Ledger) -> Sequence:
    """Of the type of the table's sequences: text until there is a change, and whole numbers in further columns."""
    untold = ("", *(0 for _ in table_schema.sequence[1:]))
    known = next((change.sequence for change in ledger.changes if change.sequence is not None), untold)
    return tuple(_LOWEST[type(part)] for part in known)


def _moments(table_schema: Shape, ledger: Ledger, events: Listing[Event]) -> list[Moment]:
    """The key's states over all generations: a generation starts empty at its floor, and nothing in it is earlier."""
    moments: list[Moment] = []
    for generation in range(1, ledger.generation + 1):
        floor = ledger.generation_low_watermarks[generation - 1]
        own = [e for e in events if e.change.generation == generation]
        if own or generation <= ledger.swept:
            moments.append((floor, generation, None))
        for event, state in zip(own, states(table_schema, own), strict=True):
            moments.append((max(event.sequence, floor, key=rank), generation, state))
    return _collapsed(moments)


def _collapsed(moments: Listing[Moment]) -> list[Moment]:
    """Of the states at one sequence of a generation only the last was ever there."""
    after = [*moments[1:], None]
    return [now for now, later in zip(moments, after, strict=True) if later is None or later[:2] != now[:2]]


def _versions(table_schema: Shape, moments: Listing[Moment]) -> list[Version]:
    versions: list[Version] = []
    start: tuple[Sequence, int] = (None, 0)
    current: State = None
    for at, generation, state in moments:
        if current is not None and not _same(table_schema, current, state):
            versions.append(_version(current, start, (at, generation)))
        if not _same(table_schema, current, state):
            start = (at, generation)
        current = state
    if current is not None:
        versions.append(_version(current, start, (None, None)))
    return versions


def _version(
    columns: Mapping[str, Value], start: tuple[Sequence, int], end: tuple[Sequence, int] | tuple[None, None]
) -> Version:
    return Version(columns=columns, start=start[0], start_generation=start[1], end=end[0], end_generation=end[1])


def _same(table_schema: Shape, one: State, other: State) -> bool:
    if one is None or other is None:
        return one is other
    return _tracked(table_schema, one) == _tracked(table_schema, other)


def _tracked(table_schema: Shape, row: Mapping[str, Value]) -> dict[str, Value]:
    untracked = {
        name.lower()
        for name in (
            *table_schema.sequence,
            *table_schema.spec.track_history_except,
            *table_schema.control,
            *SERVICE_COLUMNS,
        )
    }
    return {
        name: value
        for name, value in row.items()
        if name.lower() not in untracked and not name.lower().startswith("ar_h_")
    }
