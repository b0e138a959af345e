"""The errors table: bad rows and unreadable files, kept with reason and original until they are resolved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules import error_rows
from spark_jobs.rules.errors_table import ROW_MASK
from spark_jobs.rules.records import ReplayGroup, replayed


def append(tables: Tables, path: str, rows: pa.Table, app: str, version: int) -> None:
    """Write rows, creating the table if need be."""
    tables.create(table_definition.errors(path))
    tables.commit(path, Write(app=app, version=version, added=[rows]))


def stamp(
    tables: Tables, path: str, chosen: Callable[[pa.Table], pa.Array], now: str, transaction: tuple[str, int] = ("", 0)
) -> None:
    """Set `resolved_at` of the unresolved rows that are chosen; files without any stay as they are."""
    snapshot = tables.existing(path)
    app, version = transaction
    added, removed = [], []
    for file in snapshot.files:
        rows = tables.read_files(snapshot, [file])
        hit = pc.and_(pc.fill_null(chosen(rows), False), rows.column("resolved_at").is_null())
        if pc.any(hit).as_py():
            when = pa.scalar(datetime.fromisoformat(now), error_rows.SCHEMA.field("resolved_at").type)
            at = rows.schema.get_field_index("resolved_at")
            added.append(rows.set_column(at, "resolved_at", pc.if_else(hit, when, rows.column("resolved_at"))))
            removed.append(file)
    if removed:
        tables.commit(path, Write(app=app, version=version, added=added, removed=removed))


def resolve_rows(tables: Tables, path: str, good: pa.Table, planned_at: str) -> None:
    """Mark the rows that are good now as resolved."""
    places = {
        (g["source_file"], g["position"] & ROW_MASK, "load" if g["op"] == "R" else "change")
        for g in good.column(GDDL).to_pylist()
    }

    def now_good(rows: pa.Table) -> pa.Array:
        columns = [rows.column(n).to_pylist() for n in ("source_file", "position", "kind", "record")]
        return pa.array([record is not None and (f, p, k) in places for f, p, k, record in zip(*columns, strict=True)])

    stamp(tables, path, now_good, planned_at)


def resolve_files(tables: Tables, path: str, files: Sequence[str], plan: BatchPlan, app: tuple[str, int]) -> None:
    """Mark what earlier versions of `files` left in the quarantine as resolved: the new version takes their place."""
    named = pa.array(files, pa.string())

    def older(rows: pa.Table) -> pa.Array:
        return pc.and_(pc.is_in(rows.column("source_file"), value_set=named),
                       pc.less(rows.column("batch_id"), plan.batch_id))  # fmt: skip

    stamp(tables, path, older, plan.planned_at, app)


def forget(tables: Tables, path: str, batch_id: str) -> None:
    """Remove a batch's rows."""
    snapshot = tables.existing(path)
    added, removed = [], []
    for file in snapshot.files:
        rows = tables.read_files(snapshot, [file])
        left = rows.filter(pc.not_equal(rows.column("batch_id"), batch_id))
        if left.num_rows < rows.num_rows:
            removed.append(file)
            added += [left] if left.num_rows else []
    if removed:
        tables.commit(path, Write(added=added, removed=removed))


def forget_records(tables: Tables, path: str, batch_id: str) -> None:
    """Empty the records of all batches but this one: they hold values that may no longer be stored."""
    snapshot = tables.existing(path)
    added, removed = [], []
    for file in snapshot.files:
        rows = tables.read_files(snapshot, [file])
        older = pc.and_(rows.column("record").is_valid(), pc.not_equal(rows.column("batch_id"), batch_id))
        if pc.any(older).as_py():
            for name in ("record", "record_schema"):
                values = pc.if_else(older, pa.scalar(None, pa.string()), rows.column(name))
                rows = rows.set_column(rows.schema.get_field_index(name), name, values)
            added.append(rows)
            removed.append(file)
    if removed:
        tables.commit(path, Write(added=added, removed=removed))


def groups_to_replay(tables: Tables, path: str, planned_at: str) -> list[ReplayGroup]:
    """Rows to decode once more. Those that this very batch resolved before it died are among them."""
    if not tables.exists(path):
        return []
    now = datetime.fromisoformat(planned_at)
    rows = [r for r in tables.read(path).to_pylist() if r["record"] is not None and r["resolved_at"] in (None, now)]
    return replayed(rows, {file: i for i, file in enumerate(sorted({r["source_file"] for r in rows}))})
