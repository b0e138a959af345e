"""The errors table: bad rows and unreadable files, kept with reason and original record until they are resolved."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines import table_definition
from spark_jobs.engines.delta_rs.removal import remove_rows
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.rules.quarantine import Chosen, resolved


def append(tables: Tables, path: str, rows: pa.Table, app: str, version: int) -> None:
    """Append rows, creating the table if missing."""
    tables.create(table_definition.errors(path))
    tables.commit(path, Write(app=app, version=version, added=[rows]))


def resolve(tables: Tables, path: str, chosen: Chosen, now: str, transaction: tuple[str, int] = ("", 0)) -> None:
    """Set `resolved_at` of the chosen unresolved rows; other files are unchanged."""
    snapshot = tables.existing(path)
    app, version = transaction
    added, removed = [], []
    for file in snapshot.files:
        rows = resolved(tables.read_files(snapshot, [file]), chosen, now)
        if rows is not None:
            added.append(rows)
            removed.append(file)
    if removed:
        tables.commit(path, Write(app=app, version=version, added=added, removed=removed))


def forget(tables: Tables, path: str, batch_id: str) -> None:
    """Remove a batch's rows."""
    remove_rows(tables, path, lambda rows: pc.equal(rows.column("batch_id"), batch_id))


def forget_records(tables: Tables, path: str, batch_id: str) -> None:
    """Clear the records of all batches except this one: they hold values that must no longer be stored."""
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
