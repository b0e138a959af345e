"""Removal of erased keys from tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.engines.delta_rs.removal import change_rows, remove_rows
from spark_jobs.engines.delta_rs.row_search import AT_FILE, AT_ROW
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.erased_rows import ErasedMatches, as_deletes, emptied, with_images
from spark_jobs.rules.figures import ChangesErased
from spark_jobs.rules.key_rows import with_key

_SAMPLE = 5


@dataclass(frozen=True)
class TablesEraser:
    """See `Eraser`.

    Attributes:
        purge: makes sure that no file of a table holds removed rows.
    """

    tables: Tables
    purge: Callable[[str], None]

    def remove_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> int:
        removed = change_rows(self.tables, path, _Rows(table_schema, key))
        self.purge(path)
        return sum(removed)

    def remove_changes(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> ChangesErased:
        done = ChangesErased()
        for removed, images, others in change_rows(self.tables, path, _Changes(table_schema, key)):
            named = dict.fromkeys((*done.others, *map(tuple, others)))
            done = ChangesErased(removed=done.removed + removed, images=done.images + images,
                                 others=tuple(named)[:_SAMPLE])  # fmt: skip
        self.purge(path)
        return done

    def remove_records(self, path: str, holds: Callable[[str], bool]) -> int:
        def hit(rows: pa.Table) -> pa.Array:
            records = rows.column("record").to_pylist()
            return pa.array([record is not None and holds(record) for record in records], pa.bool_())

        removed = remove_rows(self.tables, path, hit)
        self.purge(path)
        return removed


@dataclass(frozen=True)
class _Rows:
    """Rows of a key; sent to tasks."""

    schema: TableSchema
    key: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, pa.Table, int]:
        gone = with_key(rows, self.schema, self.key)
        return gone, gone.slice(0, 0), gone.num_rows


@dataclass(frozen=True)
class _Changes:
    """Changes of a key, and those that had it before; sent to tasks."""

    schema: TableSchema
    key: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, pa.Table, Any]:
        found = with_key(rows, self.schema, self.key)
        matches = ErasedMatches.of(found, self.schema, lambda _, texts: tuple(texts) == self.key)
        images = matches.old & ~matches.own & with_images(found, self.schema)
        instead = emptied(as_deletes(found, self.schema, matches.turned), self.schema, images | matches.turned)
        kept = instead.filter(pa.array(images | matches.turned)).drop_columns([AT_FILE, AT_ROW])
        gone = found.filter(pa.array(matches.own | images))
        return gone, kept, [int(np.sum(matches.own)), int(np.sum(images)), matches.others]
