"""Where a table is registered, for its page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow_gddl.contract.catalogs import CatalogSpec, entry_name
from airflow_gddl.contract.registration import RegistrationState, full_name
from airflow_gddl.contract.spec import TableSpec


def shown(spec: TableSpec | None, catalog: CatalogSpec | None, state: RegistrationState) -> dict[str, Any] | None:
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
        name = held.name if held is not None and held.name else str(entry_name(catalog, spec, kind))
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
