"""Removes rows from a table in one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_rs.outputs import Output, deleted, output_of, written
from spark_jobs.engines.delta_rs.row_search import AT_FILE, AT_ROW
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.key_ranges import Source, by_file

Hit = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Mask of the rows of a file to remove; null: keep. Sent to tasks."""
_ROWS = "rows"


def remove_rows(tables: Tables, path: str, hit: Hit, *, dry_run: bool = False) -> int:
    """Remove the rows of the mask; returns their number. Files without any are unchanged.

    Args:
        dry_run: only count.
    """
    source = Source.of(tables.existing(path), lambda rows: rows)
    rule = _Remove(hit, output_of(tables, path, (), tables.moment * 1000))
    reports = [json.loads(report) for report in by_file(tables, {_ROWS: source}, rule)]
    gone = deleted(reports, source)
    if gone and not dry_run:
        tables.commit(path, Write(written=written(reports)[0], deleted=gone))
    return sum(len(rows) for _, rows in gone)


@dataclass(frozen=True)
class _Remove:
    hit: Hit
    output: Output

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        found = rows[_ROWS]
        gone = found.filter(pc.fill_null(self.hit(found.drop_columns([AT_FILE, AT_ROW])), False))
        return json.dumps(self.output.report(storage, gone.slice(0, 0), gone, gone)).encode()
