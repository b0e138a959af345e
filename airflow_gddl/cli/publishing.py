"""Published columns of replicas, for `gddl views` and `gddl query`."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.published import Publication
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.view_sql import PublishedTable
from airflow_gddl.runtime.delta_tables import replica_schema

DATABASE = "{schema}"


def published_table(roots: Roots, spec: TableSpec, environ: Mapping[str, str]) -> PublishedTable:
    """The table with the columns that its replica has now.

    Raises:
        FatalError: `TABLE_NOT_PUBLISHED`: disabled by its row; `REPLICA_MISSING`: nothing was loaded yet;
            `PUBLISHED_COLUMN_MISSING`; `DELTALAKE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    if not spec.published:
        what, remedy = "its row has published: []", 'drop `published` from the row, or write published: ["*"]'
        raise FatalError("TABLE_NOT_PUBLISHED", what, where=spec.table, remedy=remedy)
    path = Layout.of(roots, spec).replica
    schema = replica_schema(path, environ)
    if schema is None:
        what, remedy = f"{spec.table} has no replica yet", f"load it: gddl run --table '{spec.table}'"
        raise FatalError("REPLICA_MISSING", what, where=path, remedy=remedy)
    try:
        columns = Publication.of(spec).columns_of(schema)
    except FatalError as error:
        raise FatalError(error.code, error.what, where=spec.table, remedy=error.remedy) from error
    return PublishedTable(path=path, columns=columns, marks_deletes=schema.marks_deletes)
