"""Removal of erased keys from tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.engines.delta_rs.removal import remove_rows
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.erased_rows import ErasedMatches, as_deletes, emptied, key_texts, with_images
from spark_jobs.rules.figures import ChangesErased

_SAMPLE = 5


@dataclass(frozen=True)
class DeltaRsEraser:
    """See `Eraser`."""

    tables: Tables

    def remove_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> int:
        def hit(rows: pa.Table) -> pa.Array:
            return pa.array([texts == key for texts in key_texts(rows, table_schema)], pa.bool_())

        return remove_rows(self.tables, path, hit)

    def remove_changes(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> ChangesErased:
        snapshot, done = self.tables.existing(path), ChangesErased()
        added, removed = [], []
        for file in snapshot.files:
            rows = self.tables.read_files(snapshot, [file])
            matches = ErasedMatches.of(rows, table_schema, lambda _, texts: tuple(texts) == key)
            gone = matches.own & ~matches.turned
            images = matches.old & ~matches.own & with_images(rows, table_schema)
            if (matches.own | images).any():
                rows = emptied(
                    as_deletes(rows, table_schema, matches.turned), table_schema, images | matches.turned
                ).filter(pa.array(~gone))
                added.append(rows)
                removed.append(file)
                done = ChangesErased(
                    removed=done.removed + int(matches.own.sum()), images=done.images + int(images.sum()),
                    others=tuple(dict.fromkeys((*done.others, *matches.others)))[:_SAMPLE],
                )  # fmt: skip
        if removed:
            self.tables.commit(path, Write(added=added, removed=removed))
        return done

    def remove_records(self, path: str, holds: Callable[[str], bool]) -> int:
        def hit(rows: pa.Table) -> pa.Array:
            records = rows.column("record").to_pylist()
            return pa.array([record is not None and holds(record) for record in records], pa.bool_())

        return remove_rows(self.tables, path, hit)
