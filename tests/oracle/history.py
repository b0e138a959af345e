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

Moment = tuple[Sequence, int, State, datetime | None]
"""From this sequence on, of this generation, the key has this state; and when it came to, if that is known."""
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
    """The key's states over all generations: a generation starts empty at its floor, and nothing in it is earlier.

    What is at the floor of a later generation came with it: not before the newest commit of those before.
    """
    moments: list[Moment] = []
    for generation in range(1, ledger.generation + 1):
        floor = ledger.generation_low_watermarks[generation - 1]
        own = [e for e in events if e.change.generation == generation]
        opened = ledger.generation_times[generation - 1] if generation > 1 else None
        if own or generation <= ledger.swept:
            moments.append((floor, generation, None, opened))
        for event, state in zip(own, states(table_schema, own), strict=True):
            time, at_floor = event.change.commit, rank(event.sequence) <= rank(floor)
            known = [one for one in (time, opened if at_floor else None) if one is not None]
            moments.append((max(event.sequence, floor, key=rank), generation, state, max(known, default=None)))
    return _never_back(_collapsed(moments))


def _never_back(moments: Listing[Moment]) -> list[Moment]:
    """A clock that goes back makes no version begin before the one before it."""
    found: list[Moment] = []
    latest: datetime | None = None
    for at, generation, state, time in moments:
        if time is not None:
            latest = time if latest is None else max(latest, time)
        found.append((at, generation, state, None if time is None else latest))
    return found


def _collapsed(moments: Listing[Moment]) -> list[Moment]:
    """Of the states at one sequence of a generation only the last was ever there."""
    after = [*moments[1:], None]
    return [now for now, later in zip(moments, after, strict=True) if later is None or later[:2] != now[:2]]


def _versions(table_schema: Shape, moments: Listing[Moment]) -> list[Version]:
    versions: list[Version] = []
    start: Moment = (None, 0, None, None)
    current: State = None
    for moment in moments:
        state = moment[2]
        if current is not None and not _same(table_schema, current, state):
            versions.append(_version(current, start, moment))
        if not _same(table_schema, current, state):
            start = moment
        current = state
    if current is not None:
        versions.append(_version(current, start, None))
    return versions


def _version(columns: Mapping[str, Value], start: Moment, end: Moment | None) -> Version:
    return Version(
        columns=columns, start=start[0], start_generation=start[1], valid_from=start[3], end=end and end[0],
        end_generation=end and end[1], valid_to=end and end[3],
    )  # fmt: skip


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
