"""Last loaded state of each table on the Airflow side: one small object for each pipeline in the lake.

Only hints: the job's ledger is authoritative. Without hints every table with files counts as having work, and the job
finds that there is none. Tasks that load at the same time, of one run or of several, write them by compare-and-swap.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from airflow_gddl.contract.codec import from_json_or_none, to_json
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.stores import Storage, open_store, read_document, update_object

_ENDS, _ENDS_WITH_EVENTS = 8, 2


@dataclass(frozen=True, kw_only=True)
class TableHint:
    """Last load of a table.

    Attributes:
        mark: of the files and the row that were loaded, see `tables_with_work.mark`; empty: the next run has
            work in any case.
        looked_at: ISO 8601 UTC: every file that existed by then is loaded.
        run: Airflow's id of the run that loaded it.
        announce: extra of the asset event that is still to be sent; null when there is none.
    """

    mark: str
    looked_at: str
    run: str
    announce: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """How a task of a run ended its stage.

    Attributes:
        stage, run: what ended.
        max_tries: Airflow's limit of the task instance's tries. Clearing the instance raises it, a retry does not.
        events: extras of the asset events that it sent, by table; lost when Airflow never heard that it succeeded.
    """

    stage: str
    run: str
    max_tries: int
    events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Hints of a pipeline.

    Attributes:
        tables: those that were loaded, which therefore have a replica.
        ended: stages (`initial`, `increments`) that were done with all their tables, the newest first; the events of
            the newest two of a stage alone.
    """

    tables: Mapping[str, TableHint] = field(default_factory=dict)
    ended: tuple[StageEnd, ...] = ()
    format: int = 1

    def taken(self, table: str, hint: TableHint) -> Hints:
        return replace(self, tables={**self.tables, table: hint})

    def announced(self) -> Hints:
        """All events sent."""
        return replace(self, tables={name: replace(hint, announce=None) for name, hint in self.tables.items()})

    def after(self, end: StageEnd) -> Hints:
        others = [one for one in self.ended if (one.stage, one.run) != (end.stage, end.run)]
        kept = [end]
        for one in others:
            newer = sum(known.stage == one.stage for known in kept)
            if newer < _ENDS:
                kept.append(one if newer < _ENDS_WITH_EVENTS else replace(one, events={}))
        return replace(self, ended=tuple(kept))

    def end_of(self, stage: str, run: str) -> StageEnd | None:
        """Null when this run did not end the stage, or long ago."""
        return next((one for one in self.ended if (one.stage, one.run) == (stage, run)), None)

    def reopened(self, stage: str, run: str, tables: Iterable[str]) -> Hints:
        """Without the note that this run has loaded these tables, so that it loads them again."""
        known = ((name, self.tables.get(name)) for name in tables)
        open_ = {name: replace(hint, run="") for name, hint in known if hint is not None and hint.run == run}
        ended = tuple(one for one in self.ended if (one.stage, one.run) != (stage, run))
        return replace(self, tables={**self.tables, **open_}, ended=ended)

    @property
    def pending(self) -> dict[str, Mapping[str, Any]]:
        """Pending asset events, by table."""
        return {name: hint.announce for name, hint in sorted(self.tables.items()) if hint.announce is not None}


def place(lake: str, dag_id: str) -> str:
    return join(lake, STATE, "airflow", f"{dag_id}.json")


def read_hints(store: Storage, lake: str, dag_id: str) -> Hints:
    """Empty when there are none, or when they are damaged.

    Raises:
        RetriableError: the store does not answer.
    """
    return read_document(store, place(lake, dag_id), Hints) or Hints()


def update(store: Storage, lake: str, dag_id: str, change: Callable[[Hints], Hints]) -> Hints:
    """Change the hints while other tasks may; return the new hints.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """

    def changed(data: bytes | None) -> Hints:
        return change((None if data is None else from_json_or_none(Hints, data)) or Hints())

    return update_object(store, place(lake, dag_id), changed, lambda after: to_json(after).encode())


def extra_of(result: JobResult) -> Mapping[str, Any] | None:
    """Extra of a result's asset event; None: the run changed nothing."""
    if result.status != "succeeded" or result.version is None:
        return None
    expectations = {one.name: {"checked": one.checked, "failed": one.failed} for one in result.expectations}
    return {
        **({"expectations": expectations} if expectations else {}),
        "rows": result.main.rows,
        "inserted": result.main.inserted,
        "updated": result.main.updated,
        "deleted": result.main.deleted,
        "changes": result.changes_written,
        "quarantined": result.quarantined,
        "version": result.version,
        "commit_ts": result.freshness.commit_ts,
        "lag_seconds": result.freshness.lag_seconds,
        "complete_until": result.freshness.complete_until,
        "waiting_since": result.freshness.waiting_since,
        "mode": result.mode,
        "gddl_run_id": result.run_id,
    }


WRITE_EVERY = 1.0


class HintBook:
    """A task's view of the hints. Changes are collected for a second, then merged with what other tasks wrote.

    If the task crashes, the job finds lost hints again by listing.

    Args:
        clock: seconds, monotonic.
        environ: says how S3 is reached.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """

    def __init__(
        self,
        roots: Roots,
        dag_id: str,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._store, self._lake, self._dag_id, self._clock = open_store(environ), roots.lake, dag_id, clock
        self._hints = read_hints(self._store, self._lake, dag_id)
        self._written = clock()
        self._changes: list[Callable[[Hints], Hints]] = []

    def is_done(self, table: str, mark: str, run: str, looked_at: str) -> bool:
        """Whether this run has already loaded the files of this listing; a cleared sensor makes another one."""
        hint = self._hints.tables.get(table)
        return hint is not None and (hint.run, hint.mark, hint.looked_at) == (run, mark, looked_at)

    def is_loaded_by_another(self, table: str, mark: str, run: str) -> bool:
        """Whether another run than this one was the last to load the table, and loaded these files and this row.

        A table that was reopened was loaded by none.
        """
        hint = self._hints.tables.get(table)
        return hint is not None and hint.mark == mark and hint.run not in ("", run)

    def is_cleared(self, stage: str, run: str, max_tries: int) -> bool:
        """Whether this run had finished the stage and its task was cleared.

        A retry of a finished stage is not a clearing: Airflow lost the worker between the load and its report.

        Args:
            max_tries: of the task instance, see `StageEnd`.
        """
        end = self._hints.end_of(stage, run)
        return end is not None and max_tries > end.max_tries

    def reopen(self, stage: str, run: str, tables: Iterable[str]) -> None:
        """See `Hints.reopened`."""
        names = tuple(tables)
        self._change(lambda known: known.reopened(stage, run, names))
        self.flush()

    def take(self, table: str, hint: TableHint) -> None:
        """Record a loaded table; a pending event is kept if this load has none.

        A cleared task of an older run never overwrites what a later poll found.
        """
        self._change(lambda known: _with_taken(known, table, hint))

    def announce(self, table: str, extra: Mapping[str, Any] | None) -> None:
        """Add an event for a table that changed although none of its files was loaded."""
        if extra is not None:
            self._change(lambda known: _with_event(known, table, extra))

    def _change(self, change: Callable[[Hints], Hints]) -> None:
        self._hints = change(self._hints)
        self._changes.append(change)
        if self._clock() - self._written >= WRITE_EVERY:
            self.flush()

    def finish(self, stage: str, run: str, max_tries: int = 0) -> dict[str, Mapping[str, Any]]:
        """Mark the stage as finished; return the events to send, by table.

        A retry of a finished stage sends the events of the try before it again: Airflow takes them from a task that
        succeeds.

        Args:
            max_tries: see `StageEnd`.
        """

        def ended(known: Hints) -> Hints:
            before = known.end_of(stage, run)
            events = {**(before.events if before is not None else {}), **known.pending}
            return known.announced().after(StageEnd(stage=stage, run=run, max_tries=max_tries, events=events))

        self._change(ended)
        self.flush()
        end = self._hints.end_of(stage, run)
        return dict(end.events) if end is not None else {}

    def flush(self) -> None:
        """Write pending changes."""
        if not self._changes:
            return
        changes = tuple(self._changes)
        self._hints = update(
            self._store,
            self._lake,
            self._dag_id,
            lambda known: reduce(lambda after, change: change(after), changes, known),
        )
        self._changes = []
        self._written = self._clock()

    def finish_table(self, table: str) -> dict[str, Mapping[str, Any]]:
        """Take the table's pending event, by table; for a task that loads one table while others load theirs."""
        hint = self._hints.tables.get(table)
        if hint is None or hint.announce is None:
            return {}
        self._change(lambda known: _with_sent(known, table))
        self.flush()
        return {table: hint.announce}


def _with_sent(known: Hints, table: str) -> Hints:
    hint = known.tables.get(table)
    return known if hint is None else known.taken(table, replace(hint, announce=None))


def _with_taken(known: Hints, table: str, hint: TableHint) -> Hints:
    before = known.tables.get(table)
    if before is not None and before.looked_at > hint.looked_at:
        hint = replace(hint, mark=before.mark, looked_at=before.looked_at)
    if hint.announce is None and before is not None:
        hint = replace(hint, announce=before.announce)
    return known.taken(table, hint)


def _with_event(known: Hints, table: str, extra: Mapping[str, Any]) -> Hints:
    hint = known.tables.get(table)
    return known if hint is None else known.taken(table, replace(hint, announce=extra))
