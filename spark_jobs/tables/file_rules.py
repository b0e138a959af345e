"""Rules over the rows of each file of a table: read, removed, replaced, written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import DeltaSchema, by_name
from spark_jobs.rules.erasure import ErasedMatches, as_deletes, emptied, with_images, with_key
from spark_jobs.tables.data_files import FileWriter, Target
from spark_jobs.tables.delta_log import Action
from spark_jobs.tables.delta_tables import DataFile, Tables, Write, Written
from spark_jobs.tables.row_ids import changed
from spark_jobs.tables.table_rows import (
    PLACES,
    KeyMatches,
    Source,
    by_file,
    by_row,
    without_places,
)


@dataclass(frozen=True, kw_only=True)
class ChangesErased:
    """What became of a key's changes.

    Attributes:
        removed: changes of the key; those that moved a row to it from another key are the other's deletes now.
        images: changes of other keys whose before images named it, and are empty now.
        others: a few of the keys from which rows were moved to it, as text.
    """

    removed: int = 0
    images: int = 0
    others: tuple[tuple[str, ...], ...] = ()


_TYPE_CHANGES = "delta.typeChanges"
"""Of a column, in Delta's protocol: the types that files of before have."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the rows of one table go; sent to tasks.

    Attributes:
        now: milliseconds since 1970.
        keys: by which the change data feed identifies updates; None: the table has no feed.
    """

    target: Target
    now: int
    keys: tuple[str, ...] | None

    def report(
        self, storage: Storage, rows: pa.Table, before: pa.Table | None = None, deleted: pa.Table | None = None
    ) -> dict[str, Any]:
        """Write rows; the report for `Written`.

        Args:
            before: rows that these replace, for the change data feed; None: none.
            deleted: `AT_FILE` and `AT_ROW` of stored rows to delete, which these come instead of; None: none.
        """
        rows = by_name(rows if deleted is None else changed(rows), self.target.schema)
        feed: list[Action] = []
        differs = True
        if self.keys is not None:
            stored = self.target.schema.empty_table() if before is None else by_name(before, self.target.schema)
            writer = FileWriter(storage, self.target, self.now)
            feed, differs = writer.feed(stored, rows, self.keys, partly=True)
        at = [[] if deleted is None else deleted.column(name).to_pylist() for name in PLACES]
        files = self.target.write(storage, rows, self.now)
        made = {"at": self.target.path, "files": files, "feed": feed, "differs": differs}
        return {**made, "rows": rows.num_rows, "deleted": at}

    def report_of(self, storage: Storage, stored: KeyMatches, outcome: pa.Table) -> dict[str, Any]:
        """Write what an outcome makes of stored rows, which it deletes.

        Args:
            stored: see `matches_of`.
            outcome: see `KeyMatches.written`.
        """
        before = None if self.keys is None else stored.touched(outcome)
        return self.report(storage, stored.written(outcome, self.target.schema), before, stored.places(outcome))


def output_of(tables: Tables, path: str, keys: Sequence[str], transaction: int) -> Output:
    """For rows that a table gets as it is."""
    feeds = tables.existing(path).feeds_changes
    return Output(target=tables.target(path), now=transaction // 1000, keys=tuple(keys) if feeds else None)


def written(reports: Sequence[Mapping[str, Any]]) -> tuple[Written, int]:
    """What tasks have written of one table, and the number of rows.

    Args:
        reports: see `Output.report`.
    """
    files, feed = ([action for report in reports for action in report[name]] for name in ("files", "feed"))
    differs = any(report["differs"] for report in reports)
    return Written(files=files, feed=feed, differs=differs), sum(report["rows"] for report in reports)


def deleted(reports: Iterable[Mapping[str, Any]], source: Source) -> list[tuple[DataFile, np.ndarray]]:
    """Stored rows that tasks have found to delete: files with the numbers of rows.

    Args:
        source: whose rows they are.
    """
    rows_by_file: dict[int, list[int]] = {}
    for report in reports:
        for file, row in zip(*report["deleted"], strict=True):
            rows_by_file.setdefault(file, []).append(row)
    return [(source.files[number], np.sort(np.array(rows, np.int64))) for number, rows in rows_by_file.items()]


def rewrite(tables: Tables, path: str, schema: DeltaSchema, rule: Callable[[pa.Table], pa.Table]) -> None:
    """Replace all rows of a table by those of a rule, and its schema, in one commit.

    Args:
        rule: from rows of a file to their columns in the schema; sent to tasks.
    """
    snapshot = tables.existing(path)
    metadata = {name: without_type_changes(one) for name, one in schema.metadata.items()}
    schema = replace(schema, metadata=metadata)
    keys = () if snapshot.feeds_changes else None
    output = Output(target=tables.target(path, schema), now=tables.moment, keys=keys)
    source = Source.of(snapshot, without_places, to_write=True)
    written_files, _ = written(by_row(tables, source, Rewriting(rule, output)))
    tables.commit(path, Write(removed=None, schema=schema, written=written_files))


@dataclass(frozen=True)
class Rewriting:
    """Writes what a rule makes of rows that it replaces; sent to tasks."""

    rule: Callable[[pa.Table], pa.Table]
    output: Output

    def __call__(self, storage: Storage, rows: pa.Table) -> dict[str, Any]:
        return self.output.report(storage, self.rule(rows), rows)


def without_type_changes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a column whose files are all written anew."""
    return {name: value for name, value in metadata.items() if name != _TYPE_CHANGES}


Hit = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Mask of the rows of a file to remove; None: keep. Sent to tasks."""
Change = Callable[[pa.Table], tuple[pa.Table, pa.Table, Any]]
"""From rows of a file: those that go, with the numbers that they came with; rows that come instead; and what the caller
wants to know. Sent to tasks."""


Counted = Callable[[list[Any]], None]
"""Gets the notes of all files before they are changed."""


def remove_rows(tables: Tables, path: str, hit: Hit, *, dry_run: bool = False, counted: Counted | None = None) -> int:
    """Remove the rows of the mask; returns their number. Files without any are unchanged.

    Args:
        dry_run: only count.
        counted: see `change_rows`.
    """

    def hits(rows: pa.Table) -> tuple[pa.Table, pa.Table, int]:
        return _removed(rows.filter(pc.fill_null(hit(without_places(rows)), False)))

    return sum(change_rows(tables, path, hits, dry_run=dry_run, counted=counted))


def change_rows(
    tables: Tables, path: str, change: Change, *, dry_run: bool = False, counted: Counted | None = None
) -> list[Any]:
    """Remove rows and add others; returns the notes of all files. Files without any are unchanged.

    Args:
        counted: called with the notes before the commit; None: nothing has to know them.
    """
    source = Source.of(tables.existing(path), to_write=True)
    output = output_of(tables, path, (), tables.moment * 1000)

    def rule(storage: Storage, rows: pa.Table) -> tuple[dict[str, Any], Any]:
        gone, instead, note = change(rows)
        return output.report(storage, instead, gone, gone), note

    made = by_file(tables, source, rule)
    reports, notes = [report for report, _ in made], [note for _, note in made]
    removed = deleted(reports, source)
    if counted is not None:
        counted(notes)
    if removed and not dry_run:
        tables.commit(path, Write(written=written(reports)[0], deleted=removed))
    return notes


def _removed(rows: pa.Table) -> tuple[pa.Table, pa.Table, int]:
    """Rows that go, none that come instead, and their number."""
    return rows, rows.slice(0, 0), rows.num_rows


_SAMPLE = 5


def _unheard(count: int) -> None:
    """For rows whose number nobody has to know before they go."""


@dataclass(frozen=True)
class Eraser:
    """Removes one key from tables. Idempotent; counts are rows, and `counted` gets them before they go.

    `key`: its parts as `erasure.key_text` writes them, in the order of `table_schema.keys`.

    Attributes:
        purge: makes sure that no file of a table holds removed rows.
    """

    tables: Tables
    purge: Callable[[str], None]

    def remove_key(
        self, path: str, table_schema: TableSchema, key: tuple[str, ...], counted: Callable[[int], None] = _unheard
    ) -> int:
        removed = change_rows(self.tables, path, lambda rows: _removed(with_key(rows, table_schema, key)),
                              counted=lambda notes: counted(sum(notes)))  # fmt: skip
        self.purge(path)
        return sum(removed)

    def remove_changes(
        self, path: str, table_schema: TableSchema, key: tuple[str, ...], counted: Callable[[ChangesErased], None]
    ) -> ChangesErased:
        """Remove a key's rows from the change table, in one commit.

        An update that moved a row to this key becomes the delete of its old key: without it the old
        row would reappear. Before images of rows that had this key are set to null.
        """
        found: list[ChangesErased] = []

        def sum_up(notes: list[Any]) -> None:
            done = ChangesErased()
            for removed, images, others in notes:
                named = dict.fromkeys((*done.others, *map(tuple, others)))
                done = ChangesErased(removed=done.removed + removed, images=done.images + images,
                                     others=tuple(named)[:_SAMPLE])  # fmt: skip
            found.append(done)
            counted(done)

        change_rows(self.tables, path, partial(_without_key, schema=table_schema, key=key), counted=sum_up)
        self.purge(path)
        return found[0]

    def remove_records(self, path: str, holds: Callable[[str], bool], counted: Callable[[int], None]) -> int:
        """Rows of the errors table whose record, JSON text, `holds` the key."""

        def hit(rows: pa.Table) -> pa.Array:
            records = rows.column("record").to_pylist()
            return pa.array([record is not None and holds(record) for record in records], pa.bool_())

        removed = remove_rows(self.tables, path, hit, counted=lambda notes: counted(sum(notes)))
        self.purge(path)
        return removed


def _without_key(
    rows: pa.Table, schema: TableSchema, key: tuple[str, ...]
) -> tuple[pa.Table, pa.Table, tuple[int, int, Sequence[tuple[str, ...]]]]:
    """Changes of a key, and those that had it before; see `Change`."""
    changes = with_key(rows, schema, key)
    matches = ErasedMatches.of(changes, schema, lambda _, texts: tuple(texts) == key)
    images = matches.old & ~matches.current & with_images(changes, schema)
    instead = emptied(as_deletes(changes, schema, matches.turned), schema, images | matches.turned)
    kept = without_places(instead.filter(pa.array(images | matches.turned)))
    removed = changes.filter(pa.array(matches.current | images))
    return removed, kept, (int(np.sum(matches.current)), int(np.sum(images)), matches.others)
