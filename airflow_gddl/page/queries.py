"""Queries to copy from a table's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.published import MARK, MARKS, ReplicaSchema
from airflow_gddl.contract.view_sql import READERS, PublishedTable, Reader, ViewName, query
from airflow_gddl.metadata.topology.rows import TableRow

_TITLES = {
    "spark": "Spark",
    "databricks": "Databricks",
    "athena": "Athena",
    "duckdb": "DuckDB",
    "python": "Python",
    "polars": "Polars",
}


def of_replica(
    row: TableRow, path: str, described: Mapping[str, Any] | None, relation: Callable[[Reader], str]
) -> dict[str, Any]:
    """A query of the published columns for each reader, or why there is none.

    Args:
        described: see `delta.describe`; null: there is no replica, or it can't be read.
        relation: how a reader names the replica in its catalog, quoted; empty: it reads it by its path.
    """
    if described is None:
        return {"found": []}
    kinds = {column["name"]: column["type"] for column in described["columns"]}
    schema = ReplicaSchema(columns=tuple(kinds), marks_deletes=f" {MARK}: boolean" in kinds.get(MARKS, ""))
    try:
        columns = row.publication.columns_of(schema)
    except FatalError as error:
        return {"error": str(error)}
    if not columns:
        return {"found": []}
    table = PublishedTable(path=path, columns=columns, marks_deletes=schema.marks_deletes)
    view = ViewName.of(row.table, "{schema}")
    return {"found": [{"reader": _TITLES[name], "query": query(table, view, name, relation(name))} for name in READERS]}
