"""Hints of a pipeline during a task: changed in memory, written periodically."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.landing import hints
from airflow_gddl.runtime.landing.hints import Hints, StageEnd, TableHint
from airflow_gddl.stores import open_store

WRITE_EVERY = 1.0


class HintBook:
    """View of a single writer. If it crashes, the job finds lost hints again by listing.

    Args:
        clock: seconds, monotonic.
        environ: says how S3 is reached.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`.
    """

    def __init__(
        self,
        roots: Roots,
        dag_id: str,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._store, self._lake, self._dag_id, self._clock = open_store(environ), roots.lake, dag_id, clock
        self._hints = hints.read(self._store, self._lake, dag_id)
        self._written, self._dirty = clock(), False

    def is_done(self, table: str, mark: str, run: str) -> bool:
        """Whether this run has already loaded the same files."""
        hint = self._hints.tables.get(table)
        return hint is not None and hint.run == run and hint.mark == mark

    def is_cleared(self, stage: str, run: str, max_tries: int) -> bool:
        """Whether this run had finished the stage and its task was cleared.

        A retry of a finished stage is not a clearing: Airflow lost the worker between the load and its report.

        Args:
            max_tries: of the task instance, see `StageEnd`.
        """
        end = self._hints.end_of(stage, run)
        return self._hints.finished.get(stage) == run and (end is None or max_tries > end.max_tries)

    def reopen(self, stage: str, tables: Iterable[str]) -> None:
        """Drop the mark that a run loaded these tables, so that it loads them again."""
        open_ = {name: replace(self._hints.tables[name], run="") for name in tables if name in self._hints.tables}
        finished = {name: run for name, run in self._hints.finished.items() if name != stage}
        ends = {name: end for name, end in self._hints.ends.items() if name != stage}
        self._hints = replace(self._hints, tables={**self._hints.tables, **open_}, finished=finished, ends=ends)
        self.write()

    def take(self, table: str, hint: TableHint) -> None:
        """Record a loaded table; a pending event is kept if this load has none.

        A cleared task of an older run never overwrites what a later poll found.
        """
        self._change(lambda known: _with_taken(known, table, hint))

    def announce(self, table: str, extra: Mapping[str, Any] | None) -> None:
        """Add an event for a table that changed although none of its files was loaded."""
        if extra is not None:
            self._change(lambda known: _with_event(known, table, extra))

    def fail(self, table: str, run: str) -> None:
        """Record a table that failed to load."""
        self._change(lambda known: known.not_taken(table, run))

    def _change(self, change: Callable[[Hints], Hints]) -> None:
        self._hints, self._dirty = change(self._hints), True
        if self._clock() - self._written >= WRITE_EVERY:
            self.write()

    def finish(self, stage: str, run: str, max_tries: int = 0) -> dict[str, Mapping[str, Any]]:
        """Mark the stage as finished; return the events to send, by table.

        A retry of a finished stage sends the events of the try before it again: Airflow takes them from a task that
        succeeds.

        Args:
            max_tries: see `StageEnd`.
        """
        before = self._hints.end_of(stage, run)
        events = {**(before.events if before is not None else {}), **self._hints.pending}
        self._hints = self._hints.announced().after(stage, run, StageEnd(max_tries=max_tries, events=events))
        self.write()
        return events

    def pass_by(self, stage: str, run: str, max_tries: int = 0) -> None:
        """Mark a stage without work as finished; its task is skipped, so that it can send no event."""
        self._hints = self._hints.after(stage, run, StageEnd(max_tries=max_tries))
        self.write()

    def write(self) -> None:
        hints.write(self._store, self._lake, self._dag_id, self._hints)
        self._written, self._dirty = self._clock(), False

    def flush(self) -> None:
        """Write pending changes."""
        if self._dirty:
            self.write()


class SharedHintBook(HintBook):
    """The hints for a task that loads one table while others of its run load theirs: every change is written at once,
    merged with the changes of the others.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """

    def _change(self, change: Callable[[Hints], Hints]) -> None:
        self._hints = hints.update(self._store, self._lake, self._dag_id, change)

    def finish_table(self, table: str) -> dict[str, Mapping[str, Any]]:
        """Take the table's pending event, by table."""
        hint = self._hints.tables.get(table)
        if hint is None or hint.announce is None:
            return {}
        self._change(lambda known: known.taken(table, replace(known.tables[table], announce=None)))
        return {table: hint.announce}


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
