"""Data of the page: current metadata and state of the lake, and both in plain values for its API.

Moments are seconds since the epoch, lengths seconds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_gddl.contract.errors import GddlError, Note
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.result import MAINTENANCE_COUNTS, JobResult
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.runtime.compiled.documents import Directory, PipelineDocument
from airflow_gddl.runtime.compiled.metadata import CompiledMetadata
from airflow_gddl.runtime.compiled.proposals import notes_of
from airflow_gddl.runtime.state.lake_state import LakeState, StateReader, Trouble, table_statuses
from airflow_gddl.runtime.state.overview import Span, overview
from airflow_gddl.runtime.state.status_list import TableQuery, choices, chosen, facets
from airflow_gddl.runtime.state.table_runs import RunFact, fact_of
from airflow_gddl.runtime.state.table_status import MOST_QUARANTINED, TableStatus, text_of_code
from airflow_gddl.runtime.table_directory import TableRow

PATIENCE = 3.0


@dataclass(frozen=True, kw_only=True)
class Board:
    """Every table as of `now`, seconds since the epoch. `roots` None: the metadata could never be read.

    Attributes:
        environ: environment for S3.
        problems: of the metadata that belong to no table, a line each.
        notes: what awaits a person, a line each.
    """

    statuses: tuple[TableStatus, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    roots: Roots | None = None
    now: float = 0.0
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def of(self, table: str) -> TableStatus | None:
        """Finds only tables of the metadata."""
        return next((one for one in self.statuses if one.row.table == table), None)


@dataclass
class PageSource:
    """Serves a board that is a few seconds old at most; thread-safe.

    Attributes:
        compiled: gives the metadata as it is now.
        environ_of: environment for S3 for the metadata's roots.
        quarantine_rate: see `table_status.judge`.
        clock: seconds since the epoch.
        patience: seconds for which a board is reused.
    """

    compiled: Callable[[], CompiledMetadata]
    environ_of: Callable[[Directory], Mapping[str, str]] = lambda _: os.environ
    quarantine_rate: Callable[[], float] = lambda: MOST_QUARANTINED
    clock: Callable[[], float] = time.time
    patience: float = PATIENCE
    _board: Board = field(default_factory=Board)
    _directory: tuple[object, Directory | None] = (None, None)
    _reader: StateReader | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def board(self) -> Board:
        """The newest board. While one thread reads a slow lake, the others get the previous one."""
        if not self._lock.acquire(blocking=self._board.roots is None):
            return self._board
        try:
            now = self.clock()
            if self._board.roots is None or not 0 <= now - self._board.now < self.patience:
                self._board = self._fresh(now)
            return self._board
        finally:
            self._lock.release()

    def settings(self, row: TableRow) -> tuple[TableSpec | None, CatalogSpec | None]:
        """The table's row in full, and the catalog that it names; None: as `pipeline`, it names none."""
        document = self.pipeline(row)
        spec = None if document is None else document.spec_of(row.table)
        return spec, None if document is None or spec is None else document.catalogs.get(spec.catalog or "")

    def pipeline(self, row: TableRow) -> PipelineDocument | None:
        """The pipeline that loads the table; None: there is none, or the metadata can't be read."""
        if row.dag_id is None or row.problems:
            return None
        try:
            return self.compiled().pipeline(row.dag_id)
        except (GddlError, OSError):
            return None

    def _fresh(self, now: float) -> Board:
        directory, troubles = self._known()
        if directory is None:
            return Board(troubles=troubles, now=now)
        environ: Mapping[str, str] = os.environ
        notes: tuple[Note, ...] = ()
        try:
            reader = self._reader_of(directory)
            environ, known = reader.environ, reader.read_or_last()
        except GddlError as error:
            known = LakeState(troubles=(Trouble(what=f"the lake can't be read: {error}", since=None),))
        with suppress(GddlError):  # which the state's reader names
            notes = notes_of(directory.proposals, environ)
        return Board(
            statuses=tuple(table_statuses(directory.rows, known, now, self.quarantine_rate())),
            problems=directory.problems,
            notes=tuple(note.line for note in notes),
            troubles=(*troubles, *known.troubles),
            roots=directory.roots,
            now=now,
            environ=environ,
        )

    def _reader_of(self, directory: Directory) -> StateReader:
        """
        Raises:
            GddlError: the S3 connection can't be read.
        """
        if self._reader is None or self._reader.lake != directory.roots.lake:
            self._reader = StateReader(directory.roots.lake, self.clock, environ=self.environ_of(directory))
        return self._reader

    def _known(self) -> tuple[Directory | None, tuple[Trouble, ...]]:
        try:
            serving = self.compiled()
        except (GddlError, OSError) as error:
            return self._directory[1], (Trouble(what=f"the metadata can't be read: {error}", since=None),)
        if self._directory[0] != serving.generation or self._directory[1] is None:
            self._directory = (serving.generation, serving.directory())
        why = serving.state.why
        stale = f" The last good copy, of {serving.state.built_at}, is used." if serving.generation else ""
        return self._directory[1], (Trouble(what=f"{why}{stale}", since=None),) if why else ()


_OF_ROW = ("table", "source", "tier", "priority", "owner", "freshness")
_OF_STATE = ("state", "last_state", "late", "failed", "running", "lag", "behind", "as_of", "complete_until", "waiting")


def table_list(
    board: Board, seen: Sequence[TableStatus], query: TableQuery, page: int, size: int, *, all_problems: bool
) -> dict[str, Any]:
    """One page of the tables, and unreadable state.

    Args:
        seen: the tables that the user may see. Other tables are not in the response.
        page: from 1.
        size: tables on a page.
        all_problems: whether the user may see problems of the metadata that belong to no table, and notes.
    """
    matching = chosen(seen, query)
    names = frozenset(one.row.table for one in seen)
    last = max(1, -(-len(matching) // size))
    number = min(page, last)
    first = (number - 1) * size
    return {
        "now": board.now,
        "troubles": troubles_of(board, seen),
        "choices": choices(seen, query),
        "broken": sum(one.state == "broken_row" for one in seen),
        "metadata_problems": list(board.problems) if all_problems else [],
        "notes": list(board.notes) if all_problems else [],
        "facets": facets(seen),
        "tables": len(seen),
        "matching": len(matching),
        "page": number,
        "pages": last,
        "rows": [row(one, names) for one in matching[first : first + size]],
    }


def overview_of(board: Board, seen: Sequence[TableStatus], query: TableQuery, span: Span) -> dict[str, Any]:
    """Figures of the tables that match the query, and how many these are; see `Overview`."""
    matching = chosen(seen, query)
    made = overview(matching, board.now, span)
    groups = {"source": made.sources, "owner": made.owners}
    return {
        "now": board.now,
        "matching": len(matching),
        "complete_since": made.complete_since,
        "periods": [{"start": start, **asdict(figures)} for start, figures in made.periods],
        "by": {
            kind: [{"name": name, **asdict(figures)} for name, figures in of_kind.items()]
            for kind, of_kind in groups.items()
        },
    }


def troubles_of(board: Board, seen: Sequence[TableStatus]) -> list[dict[str, Any]]:
    """Troubles that affect tables in `seen`."""
    pipelines = {one.row.dag_id for one in seen}
    general = bool(seen) or not board.statuses  # names of tables that the user may not see are hidden
    shown = [one for one in board.troubles if (general if one.pipeline is None else one.pipeline in pipelines)]
    return [{"what": one.what, "since": one.since} for one in shown]


def row(one: TableStatus, names: Collection[str]) -> dict[str, Any]:
    """One table, with its last runs, oldest first.

    Args:
        names: tables that may be named as those that it waits for.
    """
    record, poll = one.record, one.record.poll
    facts = record.runs
    shown = {name: getattr(one.row, name) for name in _OF_ROW}
    shown |= {name: getattr(one, name) for name in _OF_STATE}
    shown |= {"attention": list(one.attention), "remedies": {code: text_of_code(one, code) for code in one.attention}}
    shown |= {"problems": list(one.row.problems), "grace": one.row.grace}
    return {
        **shown,
        "dag_id": one.row.dag_id,
        # Empty where it must not be named.
        "heartbeat": one.row.heartbeat if one.row.heartbeat in {None, *names} else "",
        "rows": record.rows,
        "quarantined": record.quarantined,
        "late_ignored": record.late_ignored,
        "not_listed_days": facts[-1].not_listed_days if facts else 0,
        "listed": facts[-1].listed if facts else None,
        "last_run": facts[-1].started if facts else None,
        "last_success": record.succeeded,
        "polled": poll.polled if poll else None,
        "files": poll.files if poll else None,
        "held_by": [name for name in poll.held_by if name in names] if poll else [],
        "error": [facts[-1].error, record.error] if record.failed else None,
        "runs": [run(fact) for fact in facts],
    }


def run(fact: RunFact) -> dict[str, Any]:
    names = ("started", "status", "mode", "tasks", "place", "seconds", "files", "rows_read", "appended", "redelivered",
             "quarantined", "late_ignored", "rows", "lag", "error", "warnings", "run_id")  # fmt: skip
    shown = {name: getattr(fact, name) for name in names}
    return {**shown, "adds_up": fact.adds_up, "airflow": list(fact.airflow), "action": "run", "did": "", "dag_id": None}


def history(results: Iterable[JobResult], facts: Iterable[RunFact]) -> dict[str, Any]:
    """Runs, newest first, and what they changed of the schema.

    Args:
        results: records of runs.
        facts: digests of the last runs; they have Airflow's task ids, and include runs without a record.
    """
    known = {fact.key: fact for fact in facts}
    pairs = [(result, fact_of(result, 0.0)) for result in results]
    runs = [
        {
            **run(fact),
            "action": result.action,
            "did": did(result),
            "dag_id": result.origin[0] if result.origin else None,
            "airflow": list(known[fact.key].airflow if fact.key in known else result.origin[1:]),
            "version": result.version,
            "inserted": result.main.inserted,
            "updated": result.main.updated,
            "deleted": result.main.deleted,
            "message": None if result.error is None else result.error.message,
            "expectations": [
                {"name": one.name, "on": one.on, "checked": one.checked, "failed": one.failed}
                for one in result.expectations
            ],
            "warned": [
                {"code": one.code, "message": one.message, "count": one.count, "files": list(one.files)}
                for one in result.warnings
            ],
        }
        for result, fact in pairs
    ]
    kept = {fact.key for _, fact in pairs}
    runs += [run(fact) for key, fact in known.items() if key not in kept]
    runs.sort(key=lambda one: one["started"], reverse=True)
    changes = [
        {"started": fact.started, "changes": list(result.schema_changes)}
        for result, fact in pairs
        if result.schema_changes
    ]
    counted = ("files", "rows_read", "appended", "redelivered", "late_ignored", "quarantined")
    totals = {name: sum(one[name] for one in runs) for name in counted}
    return {"runs": runs, "schema_changes": changes, "totals": totals}


def did(result: JobResult) -> str:
    """Short summary of a run that loads nothing; empty for others, and where not known."""
    details = result.details if isinstance(result.details, Mapping) else {}
    match result.action:
        case "maintain":
            joined = details.get("compacted") or {}
            counts = {
                "tables with compacted files": len(joined),
                **{name: details.get(name) for name in MAINTENANCE_COUNTS},
            }
            return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        case "verify":
            return str(details.get("verdict") or "")
        case "errors_replay":
            return f"{result.rows_read - result.quarantined} of {result.rows_read} accepted" if result.rows_read else ""
        case "errors_dismiss":
            return f"{details['dismissed']} rows dismissed: {details['reason']}" if details else ""
        case "erase":
            removed = details.get("removed") or {}
            return f"{sum(removed.values())} rows of a key removed" if details else ""
        case _:
            return ""
