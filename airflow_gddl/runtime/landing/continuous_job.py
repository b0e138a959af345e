"""Monitoring of a continuous job: records results as they arrive and keeps the desired state. No Airflow."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.codec import to_document
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import desired_path, standing_folder
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DesiredState, Roots
from airflow_gddl.runners.interface import Listener, ProgressEvent
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_runs import TableHint, extra_of
from airflow_gddl.stores import open_store

FRESH_SECONDS = 10.0
_LOG = logging.getLogger(__name__)


@dataclass
class DesiredStateKeeper:
    """Writes the desired state when it changes. One writer at a time, since a pipeline has one run at a time.

    Attributes:
        name: of the pipeline.
        fetch: the desired state by the current metadata; None: the metadata can't be read, or lacks the tables, so that
            the last written state holds. May raise any GddlError, which is logged.
        now: seconds, monotonic.
    """

    roots: Roots
    name: str
    fetch: Callable[[], DesiredState | None]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    now: Callable[[], float] = time.monotonic
    _written: DesiredState | None = None
    _next: float = float("-inf")

    @property
    def folder(self) -> str:
        return standing_folder(self.roots.lake, self.name)

    @property
    def tables(self) -> frozenset[str] | None:
        """Tables of the last written state; None: none was written."""
        return None if self._written is None else frozenset(spec.table for spec in self._written.tables)

    def put(self, desired: DesiredState) -> None:
        """
        Raises:
            GddlError: as `Storage`.
        """
        open_store(self.environ).write(desired_path(self.folder), to_document(desired).encode())
        self._written, self._next = desired, self.now() + FRESH_SECONDS

    def refresh(self) -> None:
        """Fetch, and write changes; rate-limited, and never raises."""
        if self.now() < self._next:
            return
        self._next = self.now() + FRESH_SECONDS
        try:
            desired = self.fetch()
            if desired is not None and desired != self._written:
                self.put(desired)
        except GddlError as error:
            _LOG.warning("the desired state of %s could not be updated: %s", self.name, error)

    def remove(self) -> None:
        """Remove all objects: there will be no other job of this name. Failures are logged."""
        try:
            store = open_store(self.environ)
            store.delete(*(item.path for item in store.list(self.folder)))
        except GddlError as error:
            _LOG.warning("%s could not be removed: %s", self.folder, error)


FLUSH_SECONDS = 15.0
ALERT_SECONDS = 60.0


@dataclass
class ContinuousJobMonitor:
    """A `Listener` for one job, with bounded memory. If the store does not respond, writes are retried later.

    Attributes:
        run, task: Airflow's ids; empty where Airflow did not start the job.
        state: receives a hint for every table, so that dependent tables of other pipelines see that it is loaded.
        alert: called once a minute, after the state was written.
        last: each table's newest result.
    """

    standing: DesiredStateKeeper
    state: StateRecorder
    listener: Listener
    run: str = ""
    task: str = ""
    alert: Callable[[], None] = lambda: None
    now: Callable[[], float] = time.monotonic
    last: dict[str, JobResult] = field(default_factory=dict)
    _flushed: float = float("-inf")
    _alerted: float = float("-inf")

    def on_progress(self, event: ProgressEvent) -> None:
        self.listener.on_progress(event)

    def on_result(self, result: JobResult) -> None:
        before = self.last.get(result.table)
        self.last[result.table] = result
        hint, event = None, None
        if result.status != "failed":
            hint = TableHint(mark="", looked_at=result.started_at or "", run=self.run)
            event = extra_of(result)
        self.state.take(result, (self.run, self.task), hint=hint, event=event)
        if result.status != "skipped" or (before is not None and before.status == "failed"):
            self.listener.on_result(result)

    def tick(self) -> None:
        """Call periodically."""
        self.standing.refresh()
        now = self.now()
        if now - self._flushed >= FLUSH_SECONDS:
            self._flushed = now
            self.state.flush()
        if now - self._alerted >= ALERT_SECONDS:
            self._alerted = now
            self.alert()

    @property
    def failing(self) -> list[JobResult]:
        """Tables whose newest turn failed, without those removed from the metadata since."""
        kept = self.standing.tables
        failed = [result for result in self.last.values() if result.status == "failed"]
        return [result for result in failed if kept is None or result.table in kept]
