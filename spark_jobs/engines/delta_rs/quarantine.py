"""The errors table: bad rows and unreadable files, kept with reason and original record until they are resolved."""

from __future__ import annotations

from collections.abc import Callable

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
    _change(tables, path, lambda rows: resolved(rows, chosen, now), transaction)


def forget(tables: Tables, path: str, batch_id: str) -> None:
    """Remove a batch's rows."""
    remove_rows(tables, path, lambda rows: pc.equal(rows.column("batch_id"), batch_id))


def forget_records(tables: Tables, path: str, batch_id: str) -> None:
    """Clear the records of all batches except this one: they hold values that must no longer be stored."""

    def cleared(rows: pa.Table) -> pa.Table | None:
        older = pc.and_(rows.column("record").is_valid(), pc.not_equal(rows.column("batch_id"), batch_id))
        if not pc.any(older).as_py():
            return None
        for name in ("record", "record_schema"):
            values = pc.if_else(older, pa.scalar(None, pa.string()), rows.column(name))
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows

    _change(tables, path, cleared, ("", 0))


def _change(
    tables: Tables, path: str, change: Callable[[pa.Table], pa.Table | None], transaction: tuple[str, int]
) -> None:
    """Replace the rows of each file, in one commit; where `change` gives none, the file is unchanged."""
    snapshot = tables.existing(path)
    added, removed = [], []
    for file in snapshot.files:
        rows = change(tables.read_files(snapshot, [file]))
        if rows is not None:
            added.append(rows)
            removed.append(file)
    if removed:
        tables.commit(path, Write(app=transaction[0], version=transaction[1], added=added, removed=removed))
