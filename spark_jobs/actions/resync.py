"""The check of a resync: compares the rebuilt table with the live table and the source before the swap."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.errors import FatalError
from spark_jobs.engines.base import RebuildRequest
from spark_jobs.plan.files import FileEntry
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.table.run import TableRun
from spark_jobs.verification.source_columns import distance
from spark_jobs.verification.source_database import opened, url_of


@dataclass(frozen=True, kw_only=True)
class ResyncCheck:
    """What the swap changes.

    Attributes:
        rows: of the new replica, without rows that are marked deleted.
        appear, vanish, change: keys; null for tables without keys, and where there was no replica.
        far_before, far_after: keys that differ from the source; null without a connection to it.
    """

    rows: int
    appear: int | None = None
    vanish: int | None = None
    change: int | None = None
    far_before: int | None = None
    far_after: int | None = None


def check(run: TableRun, order: RebuildRequest, files: Mapping[str, FileEntry], connection: str = "") -> ResyncCheck:
    """
    Args:
        files: files as read by the rebuild.
        connection: to the source; empty: the row's connection, if any.

    Raises:
        FatalError: `RESYNC_REFUSED`: a file could not be read, or the new table differs from the source in more keys.
            Others as `url_of`.
    """
    unread = sorted(path for path, entry in files.items() if entry.state == "unreadable")
    if unread:
        raise _refused(run, f"{len(unread)} files can't be read, e.g. {unread[0]}", "deliver them again")
    connection = connection or run.dialect.options.verify_connection or ""
    if connection:
        url_of(connection, run.runtime.environ)  # a table that can't be compared must not hide a wrong name
    engine, layout = order.live.engine, order.live.layout
    table_schema = _common(order) if engine.exists(layout.replica) else None
    if table_schema is None or not table_schema.keys:
        return ResyncCheck(rows=sum(1 for _ in engine.rebuild(order).rows(order.table_schema.columns[:1])))
    columns = (*table_schema.keys, *(c.name for c in table_schema.data if c.name not in table_schema.keys))
    live = _hashed(engine.live_rows(layout.replica, columns), len(table_schema.keys))
    built = _hashed(engine.rebuild(order).rows(columns), len(table_schema.keys))
    found = ResyncCheck(
        rows=len(built), appear=len(built.keys() - live.keys()), vanish=len(live.keys() - built.keys()),
        change=sum(live[key] != built[key] for key in live.keys() & built.keys()),
    )  # fmt: skip
    return _against_source(run, order, table_schema, found, connection)


def _common(order: RebuildRequest) -> TableSchema | None:
    """The schema with the columns of both replicas; null where they don't share their keys."""
    stored = {column.name for column in order.live.engine.columns(order.live.layout.replica)}
    data = tuple(c for c in order.table_schema.data if c.name in stored)
    return replace(order.table_schema, data=data) if stored.issuperset(order.table_schema.keys) else None


def _hashed(rows: Iterable[Sequence[Any]], keys: int) -> dict[tuple[Any, ...], bytes]:
    return {tuple(row[:keys]): hashlib.blake2b(repr(row[keys:]).encode(), digest_size=8).digest() for row in rows}


def _against_source(
    run: TableRun, order: RebuildRequest, table_schema: TableSchema, found: ResyncCheck, connection: str
) -> ResyncCheck:
    if not connection:
        return found
    engine, layout, spec = order.live.engine, order.live.layout, run.spec
    with opened(url_of(connection, run.runtime.environ), *spec.name_in_source.split(".", 1)) as table:
        before = distance(table, table_schema, lambda names: engine.live_rows(layout.replica, names))
        after = distance(table, table_schema, lambda names: engine.rebuild(order).rows(names))
    if after > before:
        what = f"{after} keys of the new table differ from the source, of the live one {before}"
        raise _refused(run, what, "its files lack changes: let the CDC service reload the table, then run it")
    return replace(found, far_before=before, far_after=after)


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(
        "RESYNC_REFUSED", f"{run.spec.table}: {what}", remedy=f"{remedy}; readers still have the old table"
    )
