"""The order of a key's changes and their fold (semantics, 3, 5, 6 and 7)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Listing
from dataclasses import dataclass

from tests.oracle.model import Change, Key, Op, Sequence, Value, rank
from tests.oracle.table_schema import Shape

State = dict[str, Value] | None
_LAST = "\U0010ffff"
"""Above all names of files: of changes under different `tie_break` one under `last_arrival` wins."""
Rescued = Mapping[str, tuple[str, str]]
"""Column to JSON of its value, and the file that has it."""


@dataclass(frozen=True)
class Event:
    """What a change means for one key: itself, or the delete of the key that a key update leaves.

    Attributes:
        sequence: the effective one.
    """

    change: Change
    op: Op
    sequence: Sequence

    @property
    def arrival(self) -> tuple[int, int]:
        return self.change.arrival


def events_by_key(changes: Iterable[Change], truncates: Iterable[Change] = ()) -> dict[Key, list[Event]]:
    """Each key's events in the order that decides; the first truncate after each event deletes the key."""
    arrived: dict[Key, list[tuple[Change, Op]]] = defaultdict(list)
    for change in changes:
        if change.old_key is not None:
            arrived[change.old_key].append((change, "D"))
        arrived[change.key].append((change, change.op))
    cuts = [Event(one, "D", one.sequence) for one in truncates]
    events: dict[Key, list[Event]] = {}
    for key, own in arrived.items():
        events[key] = []
        for change, op in sorted(own, key=lambda pair: pair[0].arrival):
            _arrive(events[key], change, op, cuts)
        events[key] += _concerning(events[key], cuts)
    return {key: sorted(found, key=_order) for key, found in events.items()}


def _concerning(events: Listing[Event], truncates: Iterable[Event]) -> list[Event]:
    """Truncates with an event between the one before and them."""
    found, before = [], None
    for truncate in sorted(truncates, key=_order):
        if any((before is None or before < _order(one)) and _order(one) < _order(truncate) for one in events):
            found.append(truncate)
        before = _order(truncate)
    return found


def _arrive(earlier: list[Event], change: Change, op: Op, truncates: Iterable[Event]) -> None:
    """A forced change comes after all that arrived before it: changes of its key, and truncates."""
    sequence, event = change.sequence, Event(change, op, change.sequence)
    if change.forced:
        before = [*earlier, *(one for one in truncates if one.arrival < event.arrival)]
        same_load = (other for other in before if other.change.generation == change.generation)
        sequence = max([sequence, *(other.sequence for other in same_load)], key=rank)
    earlier.append(Event(change, op, sequence))


def _order(event: Event) -> tuple[Value, ...]:
    """A forced change wins a tie with one that isn't. Names of change files tell their order, others nothing.

    Only full-load rows are tied, so that `delete_wins` never has a delete to choose here.
    """
    change = event.change
    first = (change.generation, rank(event.sequence), change.forced)
    if change.op != "R":
        return (*first, 1, change.source_file.rsplit("/", 1)[-1], change.source_file, *change.reading)
    return (*first, 0, "", change.source_file if change.tie_break == "delete_wins" else _LAST, *change.reading)


def states(table_schema: Shape, events: Listing[Event]) -> list[State]:
    """The row after each of the events of one generation; null where there is none."""
    found: list[State] = []
    row: State = None
    rescued: Rescued = {}
    for event in events:
        if event.change.old_key is not None:
            row = None  # what the key had is another row's
        rescued = _rescued(rescued if row is not None else {}, event)
        row = _step(table_schema, row, event)
        shown = rescued_text(rescued)
        found.append(row if row is None or shown is None else {**row, "_rescued_data": shown})
    return found


def _rescued(before: Rescued, event: Event) -> Rescued:
    """What is rescued of the row: a change replaces it in the columns that it carries."""
    change = event.change
    if event.op == "D":
        return {}
    whole = event.op != "U"
    kept = {} if whole else {c: value for c, value in before.items() if c not in change.carried}
    own = {c: (v, change.source_file) for c, v in change.rescued.items() if whole or c in change.carried}
    return {**kept, **own}


def rescued_text(rescued: Rescued) -> str | None:
    """The JSON in `_rescued_data`; files below the landing folder."""
    if not rescued:
        return None
    files = {column: file for column, (_, file) in rescued.items()}
    path = json.dumps(files if len(set(files.values())) > 1 else next(iter(files.values())), separators=(",", ":"))
    parts = [f"{json.dumps(column)}:{value}" for column, (value, _) in rescued.items()]
    return "{" + ",".join([*parts, f'"_file_path":{path}']) + "}"


def _step(table_schema: Shape, row: State, event: Event) -> State:
    change = event.change
    if event.op == "D":
        return None
    if event.op == "U":
        base = row or dict.fromkeys(table_schema.replica)
        return {**base, **_images(table_schema, change), **{c: change.row.get(c) for c in change.carried}}
    return {column: change.row.get(column) for column in table_schema.replica}


def _images(table_schema: Shape, change: Change) -> dict[str, Value]:
    """Before images of columns that a key update doesn't carry: the row comes from another key."""
    if change.old_key is None:
        return {}
    images = {column: change.row.get(table_schema.before(column) or "") for column in table_schema.replica}
    return {column: value for column, value in images.items() if value is not None}
