"""Details of one table from the lake: runs, ledger, Delta tables, quarantine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import Any

from airflow_gddl.contract.catalogs import CatalogSpec, entry_name
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.registration import RegistrationState, full_name, relation_of
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.page import delta, ledger, queries
from airflow_gddl.page import responses as answers
from airflow_gddl.page.quarantine import HiddenColumns, shown_row
from airflow_gddl.page.source import Board
from airflow_gddl.runtime.state.board import BoardRow
from airflow_gddl.runtime.state.records import Records
from airflow_gddl.stores import open_store
from airflow_gddl.stores.registrations import RegistrationStore

_FILES, _SAMPLES = 100, 50


def about(board: Board, one: BoardRow, names: Collection[str], read: Callable[[], Records]) -> dict[str, Any]:
    """Its row of the list, and its runs; unreadable parts are named in `troubles`.

    Args:
        names: tables that the user may see.
        read: gives the records of its runs; may raise a GddlError.
    """
    facts = one.record.facts
    troubles = answers.troubles_of(board, [one])
    try:
        found = read()
    except GddlError as error:
        troubles.append({"what": str(error), "since": None})
        runs = {"runs": [answers.run(fact) for fact in reversed(facts)], "schema_changes": [], "totals": None}
    else:
        runs = answers.history(found.results, facts)
        troubles += [{"what": f"the record {name} is damaged", "since": None} for name in found.damaged]
    return {"now": board.now, "table": answers.row(one, names), "troubles": troubles, **runs}


def in_lake(
    board: Board, roots: Roots, one: BoardRow, spec: TableSpec | None, catalog: CatalogSpec | None
) -> dict[str, Any]:
    """Schema, versions, files and registration; each part, or its error.

    Args:
        spec: the table's row in full; null where it is not known.
        catalog: that the row names; null: none.
    """
    layout = _layout(roots, one)
    parts: dict[str, Callable[[], Any]] = {
        "replica": lambda: delta.describe(layout.replica, board.environ),
        "ledger": lambda: ledger.newest_files(open_store(board.environ), layout.state, _FILES),
    }
    answer = {name: _part(call) for name, call in parts.items()}
    known = _part(
        lambda: (
            RegistrationStore(open_store(board.environ), roots.lake).get(spec)
            if spec and catalog
            else RegistrationState()
        )
    )
    state = known.get("found", RegistrationState())
    copied = queries.of_replica(
        one.row, layout.replica, answer["replica"].get("found"), lambda reader: relation_of(catalog, state, reader)
    )
    registered = known if "error" in known else {"found": _registered(spec, catalog, state)}
    return {"place": layout.replica, **answer, "registration": registered, "queries": copied}


def _registered(spec: TableSpec | None, catalog: CatalogSpec | None, state: RegistrationState) -> dict[str, Any] | None:
    """The catalog, its entries of this table, and what is wrong; null where the row names no catalog.

    Args:
        spec: the table's row in full; null where no pipeline loads it.
    """
    if spec is None or catalog is None:
        return None
    kinds = [kind for kind in catalog.tables if kind != "history" or spec.history]
    entries = []
    for kind in kinds:
        held = state.tables.get(kind)
        name = held.name if held is not None else str(entry_name(catalog, spec, kind))
        entries.append({"table": kind, "name": ".".join(full_name(catalog, name)), "registered": held is not None})
    entries += [{"table": "former name", "name": name, "registered": True} for name in state.former]
    return {
        "catalog": spec.catalog,
        "kind": catalog.kind,
        "entries": entries,
        "synced_at": state.synced_at,
        "version": state.version if state.synced_at else None,
        "problem": None if state.problem is None else asdict(state.problem),
    }


def in_quarantine(board: Board, roots: Roots, one: BoardRow, spec: TableSpec | None, code: str) -> dict[str, Any]:
    """Unresolved rows of the quarantine: `found` has `unresolved`, `codes`, `rows` and `limit`; or `error`, why not.

    Args:
        spec: the table's row in full; null where it is not known, and then no values are shown.
        code: of which rows are wanted; empty: of all.
    """
    hidden = HiddenColumns.of(spec)

    def read() -> dict[str, Any]:
        found = delta.quarantined(_layout(roots, one).errors, code, _SAMPLES, board.environ)
        rows = [shown_row(row, hidden) for row in found["rows"]]
        return {**found, "unresolved": sum(found["codes"].values()), "rows": rows, "limit": _SAMPLES}

    return _part(read)


def _layout(roots: Roots, one: BoardRow) -> Layout:
    # The paths depend only on the name.
    return Layout.of(roots, TableSpec(table=one.row.table, keys=()))


def _part(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"found": call()}
    except (GddlError, ValueError, OSError) as error:
        return {"error": str(error)}
