"""Columns that were renamed at the source: what the catalog of PostgreSQL shows by their numbers, which stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.names import clean_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores.storage import read_document
from airflow_gddl.tools.onboarding.database import NumberedColumns


@dataclass(frozen=True, kw_only=True)
class FirstColumns:
    """The columns of a source's tables as they were first seen, by `schema.name`."""

    tables: Mapping[str, NumberedColumns] = field(default_factory=dict)


def look(
    store: Storage, path: str, now: Mapping[str, NumberedColumns], specs: Iterable[TableSpec]
) -> dict[str, dict[str, str]]:
    """By table, the new name of a column to the one that the table in the lake has, without those that rows say.

    Args:
        path: of what was first seen, which is written where that grows.
        specs: rows of the source.
    """
    first = read_document(store, path, FirstColumns) or FirstColumns()
    kept = FirstColumns(tables={name: _first(first.tables.get(name), columns) for name, columns in now.items()})
    if kept != first:
        store.write(path, to_json(kept).encode())
    rows = {spec.name_in_source: {clean_name(name).lower() for name in spec.rename} for spec in specs}
    found = {name: _renamed(kept.tables[name], columns, rows.get(name, set())) for name, columns in now.items()}
    return {name: renamed for name, renamed in found.items() if renamed}


def _first(before: NumberedColumns | None, now: NumberedColumns) -> NumberedColumns:
    """The first names of the columns that are there; a table that was made again has new ones."""
    known = before.names if before is not None and before.oid == now.oid else {}
    return NumberedColumns(oid=now.oid, names={number: known.get(number, name) for number, name in now.names.items()})


def _renamed(first: NumberedColumns, now: NumberedColumns, said: set[str]) -> dict[str, str]:
    pairs = {name: first.names[number] for number, name in now.names.items()}
    return {new: old for new, old in pairs.items() if new != old and clean_name(new).lower() not in said}
