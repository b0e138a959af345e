"""What events say of snapshots: their `source.snapshot`, connector and table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from spark_jobs.dialects.debezium.names import partition_of
from spark_jobs.dialects.debezium.position import Source
from spark_jobs.dialects.debezium.technical import SEQUENCE, TIME, with_other_epochs
from spark_jobs.plan.snapshots import MOST_NAMED, KnownSnapshots, SnapshotMarks, SnapshotPart

_LAST, _LAST_OF_TABLE = "last", "last_in_data_collection"
_OF_SNAPSHOT = frozenset({"true", "first", "first_in_data_collection", _LAST_OF_TABLE, _LAST})
"""Values of `source.snapshot`; others: streamed changes (`false`) and rows of incremental snapshots."""


def marks_of(table: pa.Table, sources: Sequence[Source], path: str) -> SnapshotMarks:
    """
    Args:
        table: the rows, with their positions and commit times; `sources`: of the same rows.
        path: of the file.
    """
    given = [source for source in sources if source]
    names = dict.fromkeys(_text(source.get("name")) for source in given)
    tables = dict.fromkeys(map(_collection, given))
    partition = partition_of(path)
    return SnapshotMarks(
        sources=tuple(names)[:MOST_NAMED], collections=tuple(tables)[:MOST_NAMED],
        partitions=(partition,) if partition else (), parts=_parts(table, sources),
    )  # fmt: skip


def with_other_places(known: KnownSnapshots, began: Sequence[str]) -> KnownSnapshots:
    """Snapshots with the places that they have in a log that was reset at these moments (`technical.with_epochs`)."""
    times = [None if run.since is None else datetime.fromisoformat(run.since) for run in known.runs]
    places = pa.table({
        SEQUENCE: pa.array([run.position for run in known.runs], pa.string()),
        TIME: pa.array(times, pa.timestamp("us", "UTC")),
    })  # fmt: skip
    found = with_other_epochs(places, began).column(SEQUENCE).to_pylist()
    return replace(known, runs=tuple(replace(r, position=at) for r, at in zip(known.runs, found, strict=True)))


def _parts(table: pa.Table, sources: Sequence[Source]) -> tuple[SnapshotPart, ...]:
    marks = [_mark(source) for source in sources]
    rows = [row for row, mark in enumerate(marks) if mark in _OF_SNAPSHOT]
    if not rows or SEQUENCE not in table.column_names:
        return ()
    chosen = table.select([SEQUENCE, TIME]).take(pa.array(rows))
    found: dict[str, dict[str, Any]] = {}
    for row, position, time in zip(rows, *(column.to_pylist() for column in chosen.columns), strict=True):
        if position is not None:
            part = found.setdefault(position, {"since": None, "finished": {}, "whole": False})
            part["since"] = min((t for t in (part["since"], time) if t is not None), default=None)
            part["whole"] |= marks[row] == _LAST
            if marks[row] == _LAST_OF_TABLE:
                part["finished"][_collection(sources[row])] = True
    return tuple(
        SnapshotPart(
            position=position, since=_iso(part["since"]), finished=tuple(part["finished"]), whole=part["whole"]
        )
        for position, part in found.items()
    )


def _mark(source: Source) -> str:
    """In lower case; connectors before Debezium 1.0 write booleans."""
    value = source.get("snapshot")
    return "" if value is None else str(value).lower()


def _collection(source: Source) -> str:
    return ".".join(_text(source.get(part)) for part in ("db", "schema", "table"))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
