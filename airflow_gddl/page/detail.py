"""All about one table, from the lake: its runs, its ledger, its Delta tables, its quarantine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.page import delta, ledger
from airflow_gddl.page import responses as answers
from airflow_gddl.page.source import Board
from airflow_gddl.runtime.state.board import BoardRow
from airflow_gddl.runtime.state.records import read_records
from airflow_gddl.stores import open_store

_RUNS, _FILES, _SAMPLES = 300, 100, 50


def about(board: Board, roots: Roots, one: BoardRow, names: Collection[str]) -> dict[str, Any]:
    """Its row of the list, and its runs; what can't be read is told in `troubles`.

    Args:
        names: tables that the user may see.
    """
    facts = one.record.facts if one.record is not None else ()
    troubles = [{"what": trouble.what, "since": trouble.since} for trouble in answers.troubles_of(board, [one])]
    try:
        found = read_records(roots, one.row.table, _RUNS, board.environ)
    except GddlError as error:
        troubles.append({"what": str(error), "since": None})
        runs = {"runs": [answers.run(fact) for fact in reversed(facts)], "schema_changes": [], "totals": None}
    else:
        runs = answers.history(found.results, facts)
        troubles += [{"what": f"the record {name} is damaged", "since": None} for name in found.damaged]
    return {"now": board.now, "table": answers.row(one, names), "troubles": troubles, **runs}


def in_lake(board: Board, roots: Roots, one: BoardRow, *, data: bool) -> dict[str, Any]:
    """Schema, versions, files and quarantine; each part is told, or why it can't be.

    Args:
        data: whether rows in quarantine may be shown.
    """
    # Only the name counts for where things are.
    layout = Layout.of(roots, TableSpec(table=one.row.table, keys=()))
    parts: dict[str, Callable[[], Any]] = {
        "replica": lambda: delta.describe(layout.replica, board.environ),
        "ledger": lambda: ledger.newest_files(open_store(board.environ), layout.state, _FILES),
    }
    if data:
        parts["quarantine"] = lambda: delta.quarantined(layout.errors, _SAMPLES, board.environ)
    answer = {name: _part(call) for name, call in parts.items()}
    return {"place": layout.replica, "quarantine": {"refused": True}, **answer}


def _part(call: Callable[[], Any]) -> Any:
    try:
        return {"found": call()}
    except (GddlError, ValueError, OSError) as error:
        return {"error": str(error)}
