"""Splits a request for tables by the DAGs that load them now; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_gddl.contract.table_names import TableNames
from airflow_gddl.runtime.landing.run_request import FIELDS, from_params, invalid_request
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
        raise invalid_request("no table is named", "name tables, e.g. shop.orders")
    by_dag: defaultdict[str, list[str]] = defaultdict(list)
    for table, dag_id in loaded_by(asked.tables, directory).items():
        by_dag[dag_id].append(table)
    # Without the keys that Airflow added for its own purposes: it adds them again, for the runs that are triggered.
    given = {name: params[name] for name in FIELDS if params.get(name) not in (None, False, [], "")}
    return {dag_id: {**given, "tables": tables} for dag_id, tables in sorted(by_dag.items())}


def loaded_by(tables: Iterable[str], directory: Directory | None) -> dict[str, str]:
    """Target to the DAG that loads it, sorted; of all of the named tables.

    Args:
        directory: see `requests_of`.

    Raises:
        MetadataError: `TABLE_AMBIGUOUS`; `REQUEST_INVALID`: a table that the metadata does not have, or that no DAG
            loads, since its row is disabled or invalid.
    """
    rows = {row.table: row for row in directory.rows} if directory is not None else {}
    names = TableNames(rows.values())
    found = {table: names.find(table) for table in tables}
    unknown = sorted(table for table, target in found.items() if target is None)
    if unknown:
        raise invalid_request(f"no table of the metadata: {', '.join(unknown)}", "see `gddl validate` for the names")
    homes = {}
    for table in sorted({target for target in found.values() if target is not None}):
        dag_id = rows[table].dag_id
        if rows[table].problems:
            raise invalid_request(f"no DAG loads {table}: its row is invalid", "run `gddl validate` and fix the row")
        if dag_id is None:
            raise invalid_request(f"no DAG loads {table}: its row is disabled", "set enabled to true")
        homes[table] = dag_id
    return homes
