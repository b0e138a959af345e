"""Events out of JSON as a table of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.debezium import DebeziumOptions
from spark_jobs.dialects.debezium.events import Events
from spark_jobs.dialects.debezium.technical import with_technical
from spark_jobs.dialects.debezium.values import array_of, kind_for, mentions_unavailable, unavailable_forms

_ABSENT = object()


def table_of(events: Events, options: DebeziumOptions) -> pa.Table:
    """A row for each event, and one of nulls for each record that is none.

    Raises:
        ValueError: see `with_technical`.
    """
    rows = [event.row for event in events.found]
    names = _names(rows, events.fields)
    unavailable = unavailable_forms(options) if mentions_unavailable(events.text, options) else []
    data: dict[str, pa.Array] = {}
    kept: dict[str, Sequence[bool]] = {}
    for name in names:
        values = [row.get(name, _ABSENT) for row in rows]
        # Only an update says nothing of a column that it lacks.
        flags = [value is _ABSENT and event.op == "U" for value, event in zip(values, events.found, strict=True)]
        if unavailable:
            hits = [value in unavailable for value in values]
            flags = [flag or hit for flag, hit in zip(flags, hits, strict=True)]
            values = [None if hit else value for value, hit in zip(values, hits, strict=True)]
        if any(flags):
            kept[name] = flags
        values = [None if value is _ABSENT else value for value in values]
        data[name] = array_of(values, kind_for(name, events.fields, options))
    return with_technical([e.op for e in events.found], data, [e.source for e in events.found], kept)


def _names(rows: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """In the order of the schema, then as they come."""
    found = dict.fromkeys(fields)
    for row in rows:
        if not row.keys() <= found.keys():
            found.update(dict.fromkeys(row))
    return tuple(found)
