"""Rows of a table on its page: its first rows, and what happened to one key; values that the row hides are left out."""

from __future__ import annotations

import importlib
import json
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.python_command import JOB
from airflow_gddl.contract.result import STARTING_SPARK, JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.page.detail import HiddenColumns, layout_of, part, shown_record, shown_value
from airflow_gddl.page.responses import Board
from airflow_gddl.runners.interface import ProgressEvent
from airflow_gddl.runners.this_machine import JobProcess
from airflow_gddl.runtime.delta_tables import opened
from airflow_gddl.runtime.snapshot import PipelineDocument
from airflow_gddl.runtime.state.board import BoardRow

PREVIEWED = 20
"""Rows of a preview."""
_GDDL = "_gddl"
LONGEST_SECONDS = 60.0
"""How long the page waits for what happened to a key."""
AT_ONCE = 2
_GRACE_SECONDS = 2.0
_REMEDY = "run the command gddl explain where it may start Spark and take its time"
slots = threading.BoundedSemaphore(AT_ONCE)


def in_replica(board: Board, roots: Roots, one: BoardRow, spec: TableSpec | None) -> dict[str, Any]:
    """`preview` as `found`; or `error`, why not.

    Args:
        spec: the table's row in full; null where it is not known, and then no values are shown.
    """
    path = layout_of(roots, one).replica
    return part(lambda: preview(path, HiddenColumns(spec), board.environ))


def explained(
    board: Board, one: BoardRow, document: PipelineDocument | None, key: Mapping[str, str], *, quarantine: bool
) -> dict[str, Any]:
    """`shown_history` as `found`; or `error`, why not.

    Args:
        document: of the pipeline that loads the table; null: there is none.
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
        FatalError: `DELTALAKE_MISSING`.
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
    tiers = {name: replace(tier, engine="delta_rs", spread="processes") for name, tier in document.tiers.items()}
    job = JobSpec(
        run_id=f"page-{uuid.uuid4().hex}",
        roots=document.roots,
        tables=(spec,),
        tiers=tiers,
        options=JobOptions(action="explain", key=key),
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
    found = details["quarantine"]
    records = [{**one, "values": shown_record(one["record"], hidden)} for one in found["records"]]
    parts = {"changes": changes, "replica": [_without_record(one) for one in held]}
    kept = {**found, "records": [_without_record(one) for one in records]} if quarantine else None
    names = ("outcome", "verdict", "left_out", "tombstone", "generation", "swept", "may_be_stale", "erased_at",
             "changes_cut_before", "batch_unfinished")  # fmt: skip
    return {**{name: details.get(name) for name in names}, **parts, "quarantine": kept}


def _without_record(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "record"}
