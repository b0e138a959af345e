"""The hints of a pipeline while one of its tasks works: changed in memory, written often enough."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.landing import hints
from airflow_gddl.runtime.landing.hints import Hints, TableHint
from airflow_gddl.stores import open_store

WRITE_EVERY = 1.0


class HintBook:
    """One writer's view. What is lost when it dies is found out again by the job, at the cost of a look.

    Args:
        clock: seconds, monotonic.
        environ: tells how S3 is reached.

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
        """Whether this run has loaded these very files already."""
        hint = self._hints.tables.get(table)
        return hint is not None and hint.run == run and hint.mark == mark

    def is_finished(self, stage: str, run: str) -> bool:
        return self._hints.finished.get(stage) == run

    def reopen(self, stage: str, tables: Iterable[str]) -> None:
        """Forget that a run did these tables, so that it does them again."""
        open_ = {name: replace(self._hints.tables[name], run="") for name in tables if name in self._hints.tables}
        finished = {name: run for name, run in self._hints.finished.items() if name != stage}
        self._hints = replace(self._hints, tables={**self._hints.tables, **open_}, finished=finished)
        self.write()

    def take(self, table: str, hint: TableHint) -> None:
        """Remember a loaded table; an event that still waits is kept when this time there is none.

        What a later look found is never forgotten for what an earlier one did: a task of an older run was cleared.
        """
        self._change(lambda known: _with_taken(known, table, hint))

    def announce(self, table: str, extra: Mapping[str, Any] | None) -> None:
        """An event of a table that changed though no file of it was taken."""
        if extra is not None:
            self._change(lambda known: _with_event(known, table, extra))

    def fail(self, table: str, run: str) -> None:
        """Remember a table that could not be loaded."""
        self._change(lambda known: known.not_taken(table, run))

    def _change(self, change: Callable[[Hints], Hints]) -> None:
        self._hints, self._dirty = change(self._hints), True
        if self._clock() - self._written >= WRITE_EVERY:
            self.write()

    def finish(self, stage: str, run: str) -> dict[str, Mapping[str, Any]]:
        """The stage is done with all its tables; the events to be sent, by table."""
        pending = self._hints.pending
        self._hints = self._hints.announced().after(stage, run)
        self.write()
        return pending

    def pass_by(self, stage: str, run: str) -> None:
        """The stage had nothing to do; its task is skipped, so that no event can be sent with it."""
        self._hints = self._hints.after(stage, run)
        self.write()

    def write(self) -> None:
        hints.write(self._store, self._lake, self._dag_id, self._hints)
        self._written, self._dirty = self._clock(), False

    def flush(self) -> None:
        """Write what is not written yet."""
        if self._dirty:
            self.write()


class SharedHintBook(HintBook):
    """The hints for a task that loads one table while others of its run load theirs: every change is written at once,
    on top of what the others wrote.

    Raises (every method):
        RetriableError: `LANDING_UNREACHABLE`, or `STATE_CONTENDED`.
    """

    def _change(self, change: Callable[[Hints], Hints]) -> None:
        self._hints = hints.update(self._store, self._lake, self._dag_id, change)

    def finish_table(self, table: str) -> dict[str, Mapping[str, Any]]:
        """The table's event that is to be sent, by table; it no longer waits."""
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
