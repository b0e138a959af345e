"""Monitoring of a continuous job: records results as they arrive and keeps the desired state. No Airflow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.landing.desired_state import DesiredStateKeeper
from airflow_gddl.runtime.landing.hint_book import HintBook
from airflow_gddl.runtime.landing.hints import TableHint
from airflow_gddl.runtime.landing.loading import ProgressListener
from airflow_gddl.runtime.runners.base import ProgressEvent
from airflow_gddl.runtime.state.recording import StateRecorder

FLUSH_SECONDS = 15.0
ALERT_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


@dataclass
class ContinuousJobMonitor:
    """A `Listener` for one job, with bounded memory. If the store does not respond, writes are retried later.

    Attributes:
        run, task: Airflow's ids.
        book: receives a hint for every table, so that dependent tables of other pipelines see that it is loaded.
        alert: called once a minute, after the state was written.
        last: each table's newest result.
    """

    standing: DesiredStateKeeper
    state: StateRecorder
    book: HintBook
    listener: ProgressListener
    run: str
    task: str
    alert: Callable[[], None] = lambda: None
    now: Callable[[], float] = time.monotonic
    last: dict[str, JobResult] = field(default_factory=dict)
    _taken: dict[str, TableHint] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)
    _flushed: float = float("-inf")
    _alerted: float = float("-inf")

    def on_progress(self, event: ProgressEvent) -> None:
        self.listener.on_progress(event)

    def on_result(self, result: JobResult) -> None:
        before = self.last.get(result.table)
        self.last[result.table] = result
        self.state.take(result, (self.run, self.task))
        if result.status == "failed":
            self._failed.add(result.table)
        else:
            extra = self.listener.event_of(result)
            waiting = self._taken.get(result.table)
            extra = extra if extra is not None or waiting is None else waiting.announce
            moment = result.started_at or ""
            self._taken[result.table] = TableHint(mark="", looked_at=moment, run=self.run, announce=extra)
        if result.status != "skipped" or (before is not None and before.status == "failed"):
            self.listener.on_result(result)

    def tick(self) -> None:
        """Call periodically."""
        self.standing.refresh()
        now = self.now()
        if now - self._flushed >= FLUSH_SECONDS:
            self._flushed = now
            self.flush()
        if now - self._alerted >= ALERT_SECONDS:
            self._alerted = now
            self.alert()

    def flush(self) -> None:
        """Write the collected results."""
        self.state.flush()
        try:
            for table in sorted(self._failed):
                self.book.fail(table, self.run)
            for table, hint in self._taken.items():
                self.book.take(table, hint)
            self.book.flush()
        except GddlError as error:
            _LOG.warning("the hints of %s could not be written: %s", self.standing.name, error)
        else:
            self._taken, self._failed = {}, set()

    @property
    def failing(self) -> list[JobResult]:
        """Tables whose newest turn failed, without those removed from the metadata since."""
        kept = self.standing.tables
        failed = [result for result in self.last.values() if result.status == "failed"]
        return [result for result in failed if kept is None or result.table in kept]
