"""Changes for tests of the rules: rows of a change table of two columns, written down in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.order import events

IN_ORDER, LATER = "/l/s/t/20240101-000000001.parquet", "/l/s/t/20240102-000000001.parquet"
"""Change files whose names tell their order."""


def table_schema(**spec: Any) -> TableSchema:
    """Of a table with key `id` and column `v`, ordered by a number."""
    columns = (Column("id", parse_type("bigint")), Column("v", parse_type("string")))
    keys = tuple(spec.pop("keys", ("id",)))
    return TableSchema(
        spec=TableSpec(table="s.t", keys=keys, **spec),
        keys=keys,
        data=columns,
        sequence=("seq",),
        sequence_type="bigint",
    )


@dataclass(frozen=True, kw_only=True)
class Change:
    op: str
    id: int = 1
    v: str | None = None
    seq: int | None = 5
    file: str = IN_ORDER
    position: int = 0
    batch: str = "000000000001"
    generation: int = 1
    hour: int | None = None

    @property
    def committed(self) -> datetime | None:
        """The hour of the first of January."""
        return None if self.hour is None else datetime(2024, 1, 1, self.hour, tzinfo=UTC)

    def row(self) -> Mapping[str, Any]:
        gddl = {
            "sequence": self.seq, "op": self.op, "commit_ts": self.committed, "source_file": self.file,
            "position": self.position,
            "batch_id": self.batch, "generation": self.generation, "applied_at": None, "schema": 0,
        }  # fmt: skip
        return {"id": self.id, "v": self.v, GDDL: gddl}


def in_file(*changes: Change) -> list[Change]:
    """Changes as rows of one file, in this order."""
    return [replace(change, position=at) for at, change in enumerate(changes)]


def table(changes: Iterable[Change], schema: TableSchema) -> pa.Table:
    kinds = {"id": pa.int64(), "v": pa.string(), GDDL: arrow_type(parse_type(schema.gddl_type))}
    rows = [change.row() for change in changes]
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def states(changes: Iterable[Change], schema: TableSchema) -> dict[int, str | None]:
    """Keys and values that the changes lead to; a deleted key is absent."""
    net = net_changes(events(table(changes, schema), schema), schema, partial=schema.partial)
    return {row["id"]: row["v"] for row in net.to_pylist() if row[GDDL]["op"] != "D"}
