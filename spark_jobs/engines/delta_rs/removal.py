"""Removes rows from a table, or replaces them, in one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs.outputs import Output, deleted, output_of, written
from spark_jobs.engines.delta_rs.row_search import AT_FILE, AT_ROW
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.key_ranges import Source, by_file

Hit = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Mask of the rows of a file to remove; null: keep. Sent to tasks."""
Change = Callable[[pa.Table], tuple[pa.Table, pa.Table, Any]]
"""From rows of a file: those that go, with the numbers that they came with; rows that come instead; and what the caller
wants to know, as JSON. Sent to tasks."""
_ROWS, _NOTE = "rows", "note"


def remove_rows(tables: Tables, path: str, hit: Hit, *, dry_run: bool = False) -> int:
    """Remove the rows of the mask; returns their number. Files without any are unchanged.

    Args:
        dry_run: only count.
    """
    return sum(change_rows(tables, path, _Hits(hit), dry_run=dry_run))


def change_rows(tables: Tables, path: str, change: Change, *, dry_run: bool = False) -> list[Any]:
    """Remove rows and add others; returns the notes of all files. Files without any are unchanged."""
    source = Source.of(tables.existing(path), lambda rows: rows)
    rule = _Change(change, output_of(tables, path, (), tables.moment * 1000))
    reports = [json.loads(report) for report in by_file(tables, {_ROWS: source}, rule)]
    gone = deleted(reports, source)
    if gone and not dry_run:
        tables.commit(path, Write(written=written(reports)[0], deleted=gone))
    return [report[_NOTE] for report in reports]


@dataclass(frozen=True)
class _Hits:
    """Rows that go, counted."""

    hit: Hit

    def __call__(self, rows: pa.Table) -> tuple[pa.Table, pa.Table, int]:
        gone = rows.filter(pc.fill_null(self.hit(rows.drop_columns([AT_FILE, AT_ROW])), False))
        return gone, gone.slice(0, 0), gone.num_rows


@dataclass(frozen=True)
class _Change:
    change: Change
    output: Output

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        gone, instead, note = self.change(rows[_ROWS])
        return json.dumps({**self.output.report(storage, instead, gone, gone), _NOTE: note}).encode()
