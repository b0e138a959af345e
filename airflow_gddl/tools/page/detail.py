"""Details of one table from the lake: runs, ledger, Delta tables, quarantine.

Rows, too: the first ones, and what happened to one key; values that the row hides are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from airflow_gddl.contract.codec import given
from airflow_gddl.contract.documentation import of_quarantined
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import CatalogSpec, entry_name
from airflow_gddl.contract.features import folders as folders_of_features
from airflow_gddl.contract.layout import DatasetName, LandingFolder, Layout, join
from airflow_gddl.contract.names import HiddenColumns
from airflow_gddl.contract.registrations import RegistrationState, full_name
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.state.recording import Records
from airflow_gddl.runtime.state.table_status import TableStatus
from airflow_gddl.stores import Storage, open_store
from airflow_gddl.stores.lake_files import RegistrationStore
from airflow_gddl.tools.page import responses as answers
from airflow_gddl.tools.page.reading import TableReader, key_history
from airflow_gddl.tools.page.responses import Board

_FILES_SHOWN = (
    "path",
    "kind",
    "state",
    "size",
    "modified",
    "rows",
    "quarantined",
    "batch",
    "generation",
    "max_commit_ts",
)
_USUAL = {"state": "committed", "rows": None, "quarantined": 0, "max_commit_ts": None}
"""What rows leave out: the defaults of the job's class."""


def newest_files(store: Storage, state: str, limit: int) -> dict[str, Any]:
    """The files of the newest batches, newest first, and how many batches there are; `batch` 0: none yet.

    Args:
        state: the table's ledger folder.

    Raises:
        RetriableError: `STORAGE_BUSY`.
        ValueError: it is not as expected.
    """
    commits = sorted(item.name for item in store.list(join(state, "commits")))
    if not commits:
        return {"batch": 0, "files": []}
    try:
        _, head, _, files, tail = store.read(join(state, "commits", commits[-1])).decode(errors="replace").split("\n")
        snapshot = json.loads(head).get("snapshot", {})
        rows = [*_rows(tail), *_rows(files)]
        if len(rows) < limit and snapshot.get("recent") is not None:
            rows += _rows(store.read(join(state, snapshot["recent"])).decode(errors="replace"))
        newest = sorted(rows, key=lambda row: (row["batch"], row["path"]), reverse=True)
        return {"batch": json.loads(head)["number"], "files": newest[:limit]}
    except (KeyError, TypeError, AttributeError, FileNotFoundError) as error:
        raise ValueError(f"not a ledger of this version: {error!r}") from error


def _rows(text: str) -> list[dict[str, Any]]:
    data = json.loads(text)
    records = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    return [
        {name: row.get(name, _USUAL[name]) if name in _USUAL else row[name] for name in _FILES_SHOWN} for row in records
    ]


_LONGEST = 2000
_TEXTS = ("occurred_at", "code", "reason", "column", "source_file", "batch_id")


def shown_row(row: Mapping[str, Any], hidden: HiddenColumns) -> dict[str, Any]:
    """A row of the errors table: its texts, and `values`, a list of `name`, `value` and `hidden`.

    `value` is null where the record has null, and where it is hidden. A record that is no JSON object, such as a line
    of a file that can't be split into columns, is one value without a name; it is hidden where any column is.
    """
    shown: dict[str, Any] = {name: None if row[name] is None else str(row[name]) for name in _TEXTS}
    return {**shown, "values": shown_record(row["record"], hidden)}


def shown_record(record: str | None, hidden: HiddenColumns) -> list[dict[str, Any]]:
    """The `values` of `shown_row`."""
    if record is None:
        return []
    try:
        values = json.loads(record, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return [shown_value("", str(record), masked=hidden.any)]
    return [shown_value(name, value, masked=hidden.hides(name)) for name, value in values.items()]


def shown_value(name: str, value: Any, *, masked: bool) -> dict[str, Any]:
    """`name`, `value` (null where it is null or hidden) and `hidden`."""
    name = _encodable(name)
    if masked or value is None:
        return {"name": name, "value": None, "hidden": masked}
    text = _encodable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    more = len(text) - _LONGEST
    return {"name": name, "value": f"{text[:_LONGEST]} ({more} more characters)" if more > 0 else text, "hidden": False}


def _encodable(text: str) -> str:
    """JSON may contain lone surrogates, which a response can't."""
    return text.encode("utf-8", "backslashreplace").decode()


_FILES, _SAMPLES = 100, 50


def about(board: Board, one: TableStatus, names: Collection[str], read: Callable[[], Records]) -> dict[str, Any]:
    """Its row of the list, and its runs; unreadable parts are named in `troubles`.

    Args:
        names: tables that the user may see.
        read: gives the records of its runs; may raise a GddlError.
    """
    facts = one.record.runs
    troubles = answers.troubles_of(board, [one])
    try:
        records = read()
    except GddlError as error:
        troubles.append({"what": str(error), "since": None})
        runs = {"runs": [answers.run(fact) for fact in reversed(facts)], "schema_changes": [], "totals": None}
    else:
        runs = answers.history(records.results, facts)
        troubles += [{"what": f"the record {name} is damaged", "since": None} for name in records.damaged]
    return {"now": board.now, "table": answers.row(one, names), "troubles": troubles, **runs}


def in_lake(board: Board, roots: Roots, reader: TableReader, catalog: CatalogSpec | None) -> dict[str, Any]:
    """Schema, versions, files and registration; each part, or its error.

    Args:
        catalog: that the row names; None: none.
    """
    layout, spec = reader.layout, reader.spec
    parts: dict[str, Callable[[], Any]] = {
        "replica": reader.described,
        "ledger": lambda: newest_files(open_store(board.environ), layout.state, _FILES),
    }
    answer = {name: part(call) for name, call in parts.items()}
    known = part(
        lambda: (
            RegistrationStore(open_store(board.environ), roots.lake).get(spec)
            if spec and catalog
            else RegistrationState()
        )
    )
    registered = known if "error" in known else {"found": _registered(spec, catalog, known["found"])}
    return {"place": layout.replica, **answer, "registration": registered}


def lineage_of(
    board: Board, roots: Roots, one: TableStatus, spec: TableSpec | None, names: Collection[str]
) -> dict[str, Any]:
    """Where a table comes from and what the lake makes of it; Airflow knows its consumers.

    `sources` have `source`, `table` and `landing`; `tables` have `kind` and `path`; both have the `dataset` of
    OpenLineage, with `namespace` and `name`. `after` and `before` are tables that are loaded in this order.

    Args:
        spec: the table's row in full; null where it is not known: then its landing folders are not known either.
        names: tables that the user may see.
    """
    row = one.row
    folders = LandingFolder.all_of(roots, spec) if spec else ()
    shards = (spec.shards if spec else ()) or (row.source,)
    layout = layout_of(roots, one)
    kinds = {"replica": layout.replica, "changes": layout.changes}
    kinds |= {"history": layout.history} if spec and spec.history and spec.keys else {}
    kinds |= {"errors": layout.errors}
    kinds |= folders_of_features(roots.lake, spec, "replica") if spec else {}
    return {
        "sources": [
            {"source": source, "table": folder.table, "landing": folder.path, "dataset": _dataset(folder.path)}
            for source, folder in zip(shards, folders, strict=True)
        ]
        if folders
        else [{"source": row.source, "table": row.name_in_source, "landing": None, "dataset": None}],
        "tables": [{"kind": kind, "path": path, "dataset": _dataset(path)} for kind, path in kinds.items()],
        "after": [name for name in row.depends_on if name in names],
        "before": [
            other.row.table
            for other in board.statuses
            if row.table in other.row.depends_on and other.row.table in names
        ],
    }


def _dataset(path: str) -> dict[str, str]:
    named = DatasetName.of(path)
    return {"namespace": named.namespace, "name": named.name}


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
        "problem": None if state.problem is None else given(state.problem),
    }


def in_quarantine(reader: TableReader, code: str) -> dict[str, Any]:
    """Unresolved rows of the quarantine: `found` has `unresolved`, `codes`, their `remedies`, `rows` and `limit`; or
    `error`, why not.

    Args:
        code: of which rows are wanted; empty: of all.
    """
    hidden = HiddenColumns(reader.spec)

    def read() -> dict[str, Any]:
        quarantine = reader.quarantined(code, _SAMPLES)
        rows = [shown_row(row, hidden) for row in quarantine["rows"]]
        name = "T" if reader.spec is None else reader.spec.table
        remedies = {code: of_quarantined(code, name) for code in quarantine["codes"]}
        return {
            **quarantine,
            "remedies": remedies,
            "unresolved": sum(quarantine["codes"].values()),
            "rows": rows,
            "limit": _SAMPLES,
        }

    return part(read)


def layout_of(roots: Roots, one: TableStatus) -> Layout:
    """The table's paths."""
    # They depend only on the name.
    return Layout.of(roots, TableSpec(table=one.row.table, keys=()))


def part(call: Callable[[], Any]) -> dict[str, Any]:
    """What it returns as `found`; or `error`, why not."""
    try:
        return {"found": call()}
    except (GddlError, ValueError, OSError) as error:
        return {"error": str(error)}


PREVIEWED = 20
"""Rows of a preview."""


def in_replica(reader: TableReader) -> dict[str, Any]:
    """`preview` as `found`; or `error`, why not."""
    return part(lambda: preview(reader))


def preview(reader: TableReader) -> dict[str, Any]:
    """The first `rows` of a replica, lists of values as `shown_value` makes them; whether it `exists`.

    Raises:
        GddlError: as `TableReader`.
    """
    found = reader.first_rows(PREVIEWED)
    if found is None:
        return {"exists": False, "rows": [], "limit": PREVIEWED}
    shown = [
        [shown_value(name, value, masked=hidden) for (name, hidden), value in zip(found["columns"], row, strict=True)]
        for row in found["rows"]
    ]
    return {"exists": True, "rows": shown, "limit": PREVIEWED}


def explained(
    board: Board, one: TableStatus, document: PipelineDocument | None, key: Mapping[str, str], *, quarantine: bool
) -> dict[str, Any]:
    """`shown_history` as `found`; or `error`, why not.

    Args:
        document: of the pipeline that loads the table; None: there is none.
    """
    spec = None if document is None else document.spec_of(one.row.table)
    if document is None or spec is None:
        return {"error": "No pipeline loads this table, so that its keys and masks are not known."}

    def read() -> dict[str, Any]:
        details = key_history(document, spec, key, board.environ)
        return shown_history(details, spec.keys, HiddenColumns(spec), quarantine=quarantine)

    return part(read)


def shown_history(
    details: Mapping[str, Any], keys: Sequence[str], hidden: HiddenColumns, *, quarantine: bool
) -> dict[str, Any]:
    """Details of a key's history as far as they may be seen.

    Args:
        keys: the key columns.
        quarantine: whether rows in quarantine may be seen; else `quarantine` is null.
    """
    masked = any(hidden.hides(name) for name in keys)
    changes = [{**one, "moved_from": None, "moved_to": None} if masked else one for one in details["changes"]]
    held = [{**one, "values": shown_record(one["record"], hidden)} for one in details["replica"]]
    quarantine_details = details["quarantine"]
    records = [{**one, "values": shown_record(one["record"], hidden)} for one in quarantine_details["records"]]
    parts = {"changes": changes, "replica": [_without_record(one) for one in held]}
    kept = {**quarantine_details, "records": [_without_record(one) for one in records]} if quarantine else None
    names = ("outcome", "verdict", "left_out", "tombstone", "generation", "swept", "may_be_stale", "erased_at",
             "changes_cut_before", "batch_unfinished")  # fmt: skip
    return {**{name: details.get(name) for name in names}, **parts, "quarantine": kept}


def _without_record(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "record"}
