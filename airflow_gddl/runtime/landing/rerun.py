"""Splits a request for tables by the DAGs that load them now; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.table_names import TableNames
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.runtime.snapshot import Directory


def requests_of(params: Mapping[str, Any], directory: Directory | None) -> dict[str, dict[str, Any]]:
    """DAG id to the `conf` of the run to trigger, sorted.

    Args:
        params: fields of the trigger form; `tables` names at least one.
        directory: every table of the metadata; null: it can't be read.

    Raises:
        MetadataError: `REQUEST_INVALID`, `TABLE_AMBIGUOUS`.
    """
    asked = from_params(params)
    if not asked.tables:
        raise _wrong("no table is named", "name tables, e.g. shop.orders")
    homes = {row.table: row.dag_id for row in directory.rows} if directory is not None else {}
    broken = {row.table for row in directory.rows if row.problems} if directory is not None else set()
    names = TableNames(directory.rows if directory is not None else ())
    found = {table: names.find(table) for table in asked.tables}
    unknown = sorted(table for table, target in found.items() if target is None)
    if unknown:
        raise _wrong(f"no table of the metadata: {', '.join(unknown)}", "see `gddl validate` for the names")
    by_dag: defaultdict[str, list[str]] = defaultdict(list)
    for table in sorted({target for target in found.values() if target is not None}):
        dag_id = homes[table]
        if table in broken:
            raise _wrong(f"no DAG loads {table}: its row is broken", "run `gddl validate` and fix the row")
        if dag_id is None:
            raise _wrong(f"no DAG loads {table}: its row is disabled", "set enabled to true")
        by_dag[dag_id].append(table)
    given = {name: value for name, value in params.items() if value not in (None, False, [], "")}
    return {dag_id: {**given, "tables": tables} for dag_id, tables in sorted(by_dag.items())}


def _wrong(what: str, remedy: str) -> MetadataError:
    return MetadataError("REQUEST_INVALID", what, where="params", remedy=remedy)
