"""JSON events as a table of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_gddl.contract.debezium import DebeziumOptions
from spark_jobs.dialects.debezium.events import Event, Events
from spark_jobs.dialects.debezium.joined import joined
from spark_jobs.dialects.debezium.technical import Translated, with_technical
from spark_jobs.dialects.debezium.values import Values, array_of, kind_for, mentions_unavailable, unavailable_forms

_ABSENT = object()


def table_of(events: Events, options: DebeziumOptions, before_images: str | None = None) -> Translated:
    """A row for each event, and a row of nulls for each invalid record.

    Args:
        before_images: prefix of the columns of rows before updates; null: these are left out.

    Raises:
        ValueError: see `with_technical`.
    """
    table = _Table(events, options)
    rows = [event.row for event in events.found]
    data: dict[str, Values] = {}
    kept: dict[str, Sequence[bool]] = {}
    for name in _names(rows, events.versions):
        values = [row.get(name, _ABSENT) for row in rows]
        # Only in an update a missing column is unchanged.
        flags = [value is _ABSENT and event.op == "U" for value, event in zip(values, events.found, strict=True)]
        values, hits = table.sent(values)
        if hits:
            flags = [flag or hit for flag, hit in zip(flags, hits, strict=True)]
        if any(flags):
            kept[name] = flags
        data[name] = table.column(name, values)
    images = {} if before_images is None else table.images(before_images)
    return with_technical([e.op for e in events.found], {**data, **images}, [e.source for e in events.found], kept)


class _Table:
    """Columns of a file's events."""

    def __init__(self, events: Events, options: DebeziumOptions) -> None:
        self._found: Sequence[Event] = events.found
        self._versions = events.versions
        self._options = options
        self._unavailable = unavailable_forms(options) if mentions_unavailable(events.text, options) else []

    def sent(self, values: Sequence[Any]) -> tuple[list[Any], Sequence[bool]]:
        """The values, null where absent or a placeholder, and the mask of placeholders, if there can be any."""
        hits = [value in self._unavailable for value in values] if self._unavailable else ()
        values = [None if hit else value for value, hit in zip(values, hits, strict=True)] if hits else values
        return [None if value is _ABSENT else value for value in values], hits

    def images(self, prefix: str) -> dict[str, Values]:
        """The rows before updates, where they are given."""
        rows = [event.before for event in self._found]
        names = _names(rows, self._versions) if any(rows) else ()
        return {f"{prefix}{name}": self.column(name, self.sent([row.get(name) for row in rows])[0]) for name in names}

    def column(self, name: str, values: Sequence[Any]) -> Values:
        """Each value by the schema of its own record: a column's type may change in the middle of a file."""
        given = [version[name] for version in self._versions if name in version]
        if all(part == given[0] for part in given):
            return array_of(values, kind_for(name, {name: given[0]} if given else {}, self._options))
        places: dict[int, list[int]] = {}
        for at, event in enumerate(self._found):
            places.setdefault(id(event.fields), []).append(at)
        parts = []
        for rows in places.values():
            kind = kind_for(name, self._found[rows[0]].fields, self._options)
            parts.append(array_of([values[at] for at in rows], kind))
        return joined(parts, list(places.values()))


def _names(rows: Sequence[Mapping[str, Any]], versions: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """In the order of the schemas, then in order of delivery."""
    found: dict[str, None] = {}
    for version in versions:
        found.update(dict.fromkeys(version))
    for row in rows:
        if not row.keys() <= found.keys():
            found.update(dict.fromkeys(row))
    return tuple(found)
