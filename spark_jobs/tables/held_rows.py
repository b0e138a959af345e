"""Rows that tables and views of cuts hold now, with their digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_gddl.stores import Storage
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.row_digest import rows_digest, together
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.table_rows import Source, by_file, without_places

HISTORY, _TABLE = "history", "table"


@dataclass(frozen=True, kw_only=True)
class HeldRows:
    """Rows of a table or a view of a cut.

    Attributes:
        digest: see `rows_digest`.
        version: of the Delta table that was read.
        of_key: rows of the key that was asked for.
    """

    rows: int
    digest: str
    version: int
    of_key: int = 0

    @classmethod
    def of(cls, reports: list[Any], version: int) -> HeldRows:
        """The sum of reports of parts."""
        digest = together(["0" * 32, *(one["digest"] for one in reports)])
        return cls(
            rows=sum(one["rows"] for one in reports), digest=digest, version=version,
            of_key=sum(one.get("of_key", 0) for one in reports),
        )  # fmt: skip


def held(tables: Tables, path: str) -> HeldRows:
    """The rows of a table of a cut."""
    snapshot = tables.existing(path)
    source = Source.of(snapshot, without_places, [name for name in snapshot.schema.names if name != GDDL])
    reports = [json.loads(report) for report in by_file(tables, {_TABLE: source}, _Held())]
    return HeldRows.of(reports, snapshot.log.version)


@dataclass(frozen=True)
class _Held:
    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        return report_of(rows[_TABLE])


def report_of(rows: pa.Table, **others: Any) -> bytes:
    """What `HeldRows.of` reads, as JSON."""
    return json.dumps({"rows": rows.num_rows, "digest": rows_digest(rows), **others}).encode()
