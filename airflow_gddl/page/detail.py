"""Details of one table from the lake: runs, ledger, Delta tables, quarantine.

Rows, too: the first ones, and what happened to one key; values that the row hides are left out.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from airflow_gddl.contract.actions import Explain
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec, entry_name
from airflow_gddl.contract.features import folders as folders_of_features
from airflow_gddl.contract.layout import DatasetName, LandingFolder, Layout, join
from airflow_gddl.contract.names import is_kept, mask_method, renamed
from airflow_gddl.contract.published import (
    MARK,
    MARKS,
    READERS,
    PublishedTable,
    Reader,
    RegistrationState,
    ReplicaSchema,
    ViewName,
    full_name,
    query,
    relation_of,
)
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.result import STARTING_SPARK, JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.page import responses as answers
from airflow_gddl.page.responses import Board
from airflow_gddl.runners.interface import ProgressEvent
from airflow_gddl.runners.this_machine import JobProcess
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.delta_tables import opened, unresolved
from airflow_gddl.runtime.state.recording import Records
from airflow_gddl.runtime.state.table_status import TableStatus
from airflow_gddl.stores import Storage, open_store
from airflow_gddl.stores.lake_files import RegistrationStore
from airflow_gddl.topology.table_row import TableRow

_VERSIONS = 20
_SHOWN = ("occurred_at", "code", "reason", "column", "source_file", "batch_id", "record")


def describe(path: str, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Columns with types, the newest versions, rows and bytes; null when there is no table.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return None
        columns = [
            {"name": field["name"], "type": _type_text(field["type"]), "nullable": field["nullable"]}
            for field in json.loads(table.schema().to_json())["fields"]
        ]
        versions = [_version(one) for one in table.history(_VERSIONS)]
        return {"version": table.version(), "columns": columns, "versions": versions}


def quarantined(path: str, code: str, limit: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """Unresolved rows of an errors table: `codes`, how many rows each has, and the first `rows` of one code.

    Args:
        code: of which rows are wanted; empty: of all.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        codes: Counter[str] = Counter()
        rows: list[dict[str, Any]] = []
        for batch in [] if table is None else unresolved(table, _SHOWN):
            part = importlib.import_module("pyarrow").record_batch(batch)
            names = part.column("code").to_pylist()
            codes.update(map(str, names))
            wanted = [at for at, name in enumerate(names) if not code or name == code][: limit - len(rows)]
            rows += [part.slice(at, 1).to_pylist()[0] for at in wanted]
        return {"codes": dict(sorted(codes.items())), "rows": rows}


def _version(entry: dict[str, Any]) -> dict[str, Any]:
    moment = entry.get("timestamp")
    return {
        "version": entry.get("version"),
        "operation": str(entry.get("operation", "")),
        "at": moment / 1000 if isinstance(moment, int) else None,
    }


def _type_text(kind: Any) -> str:
    """Type names as in Delta: `integer`, `array<string>`, `struct<a: integer>`."""
    if isinstance(kind, str):
        return kind
    match kind["type"]:
        case "array":
            return f"array<{_type_text(kind['elementType'])}>"
        case "map":
            return f"map<{_type_text(kind['keyType'])}, {_type_text(kind['valueType'])}>"
        case _:
            fields = (f"{field['name']}: {_type_text(field['type'])}" for field in kind["fields"])
            return f"struct<{', '.join(fields)}>"


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


@dataclass(frozen=True)
class HiddenColumns:
    """Columns whose values are not shown.

    The job masks values before it writes them. They are also hidden here, since a row that was quarantined before its
    column got a mask keeps the value until the next rebuild.

    Attributes:
        spec: None: the row is invalid or disabled, so that its masks are not known, and no value is shown.
    """

    spec: TableSpec | None

    def hides(self, column: str) -> bool:
        """As the job decides it, for the name in the record and the one that `rename` gives it."""
        spec = self.spec
        return spec is None or any(
            mask_method(name, spec) is not None or not is_kept(name, spec) for name in {column, renamed(column, spec)}
        )

    @property
    def any(self) -> bool:
        spec = self.spec
        return spec is None or bool(spec.mask or spec.exclude_columns) or spec.columns is not None


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
        described: see `describe`; None: there is no replica, or it can't be read.
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


def in_lake(
    board: Board, roots: Roots, one: TableStatus, spec: TableSpec | None, catalog: CatalogSpec | None
) -> dict[str, Any]:
    """Schema, versions, files and registration; each part, or its error.

    Args:
        spec: the table's row in full; null where it is not known.
        catalog: that the row names; None: none.
    """
    layout = layout_of(roots, one)
    parts: dict[str, Callable[[], Any]] = {
        "replica": lambda: describe(layout.replica, board.environ),
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
    state = known.get("found", RegistrationState())
    copied = of_replica(
        one.row, layout.replica, answer["replica"].get("found"), lambda reader: relation_of(catalog, state, reader)
    )
    registered = known if "error" in known else {"found": _registered(spec, catalog, state)}
    return {"place": layout.replica, **answer, "registration": registered, "queries": copied}


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
        "problem": None if state.problem is None else asdict(state.problem),
    }


def in_quarantine(board: Board, roots: Roots, one: TableStatus, spec: TableSpec | None, code: str) -> dict[str, Any]:
    """Unresolved rows of the quarantine: `found` has `unresolved`, `codes`, `rows` and `limit`; or `error`, why not.

    Args:
        spec: the table's row in full; null where it is not known, and then no values are shown.
        code: of which rows are wanted; empty: of all.
    """
    hidden = HiddenColumns(spec)

    def read() -> dict[str, Any]:
        quarantine = quarantined(layout_of(roots, one).errors, code, _SAMPLES, board.environ)
        rows = [shown_row(row, hidden) for row in quarantine["rows"]]
        return {**quarantine, "unresolved": sum(quarantine["codes"].values()), "rows": rows, "limit": _SAMPLES}

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
_GDDL = "_gddl"
LONGEST_SECONDS = 60.0
"""How long the page waits for what happened to a key."""
AT_ONCE = 2
_GRACE_SECONDS = 2.0
_REMEDY = "run the command gddl explain where it may start Spark and take its time"
slots = threading.BoundedSemaphore(AT_ONCE)


def in_replica(board: Board, roots: Roots, one: TableStatus, spec: TableSpec | None) -> dict[str, Any]:
    """`preview` as `found`; or `error`, why not.

    Args:
        spec: the table's row in full; null where it is not known, and then no values are shown.
    """
    path = layout_of(roots, one).replica
    return part(lambda: preview(path, HiddenColumns(spec), board.environ))


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


def preview(path: str, hidden: HiddenColumns, environ: Mapping[str, str]) -> dict[str, Any]:
    """The first `rows` of a replica, lists of values as `shown_value` makes them; whether it `exists`.

    Columns whose values are not shown are not read.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return {"exists": False, "rows": [], "limit": PREVIEWED}
        names = [field["name"] for field in json.loads(table.schema().to_json())["fields"] if field["name"] != _GDDL]
        read = [name for name in names if not hidden.hides(name)]
        rows = _first(table, read or names[:1], PREVIEWED)
        shown = [[shown_value(name, _plain(row.get(name)), masked=name not in read) for name in names] for row in rows]
        return {"exists": True, "rows": shown, "limit": PREVIEWED}


def _first(table: Any, columns: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """Stops after the batch that completes them."""
    rows: list[dict[str, Any]] = []
    for batch in table.scan(columns=list(columns)):
        rows += importlib.import_module("pyarrow").record_batch(batch).slice(0, limit - len(rows)).to_pylist()
        if len(rows) == limit:
            break
    return rows


def _plain(value: Any) -> Any:
    """As JSON has it; moments, decimals and bytes as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict):
        return json.loads(json.dumps(value, default=str))
    return str(value).lower() if isinstance(value, bool) else str(value)


def key_history(
    document: PipelineDocument, spec: TableSpec, key: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """What `gddl explain` finds, as details of its result: the job that the command starts, in a process of its own.

    The job writes nothing. It reads the key from a file of this machine, which is then removed.

    Args:
        document: of the pipeline that loads the table.
        key: key column to its value as text.

    Raises:
        FatalError: `EXPLAIN_NEEDS_SPARK`, `JOB_NOT_STARTED`, or the job's error.
        RetriableError: `EXPLAIN_BUSY`, `EXPLAIN_TOO_LONG`.
    """
    # Without Spark, whatever the tier says: this server need not have Java.
    tiers = {name: replace(tier, tasks="processes", commit="direct") for name, tier in document.tiers.items()}
    job = JobSpec(
        run_id=f"page-{uuid.uuid4().hex}",
        roots=document.roots,
        tables=(replace(spec, commit=None),),
        tiers=tiers,
        options=JobOptions(action=Explain(key=key)),
    )
    if not slots.acquire(blocking=False):
        what = f"{AT_ONCE} histories of keys are being read"
        raise RetriableError("EXPLAIN_BUSY", what, where=spec.table, remedy="try again in some seconds")
    try:
        limits = KeyJobLimits(spec.table)
        process = JobProcess(command=JOB, environ=environ, grace_seconds=_GRACE_SECONDS, tick=limits.tick)
        result = process.ask(job, limits)
    finally:
        slots.release()
    if result.error is not None:
        code, message = result.error.code, result.error.message
        raise FatalError(code, message.removeprefix(f"[{code}] "))
    return dict(result.details) if isinstance(result.details, Mapping) else {}


@dataclass(frozen=True)
class KeyJobLimits:
    """Listener of a job that ends it when it takes too long, or starts Spark."""

    table: str
    began: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        if time.monotonic() - self.began > LONGEST_SECONDS:
            what = f"the history of the key was not read within {LONGEST_SECONDS:.0f} s"
            raise RetriableError("EXPLAIN_TOO_LONG", what, where=self.table, remedy=_REMEDY)

    def on_progress(self, event: ProgressEvent) -> None:
        if event.step == STARTING_SPARK:
            what = "only Spark can read this table, and the page starts none"
            raise FatalError("EXPLAIN_NEEDS_SPARK", what, where=self.table, remedy=_REMEDY)

    def on_result(self, result: JobResult) -> None:
        """`key_history` reads it."""


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
