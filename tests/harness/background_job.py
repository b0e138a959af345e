"""A continuous job in a thread of the test, while files land and rows change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.batch.runtime import Runtime
from spark_jobs.continuous import loop
from spark_jobs.continuous.loop import DesiredStateReader, Loop
from spark_jobs.job.stop import Stop
from tests.harness.waiting import wait_for

PATIENCE = 300.0


@dataclass
class BackgroundJob:
    """A context manager: it stops the job, waits for its end, and raises what the job raised."""

    job: JobSpec
    runtime: Runtime
    results: list[JobResult] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)
    _raised: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="loop")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.ask("the test is over")
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the loop does not end"
        if self._raised and error is None:
            raise self._raised[0]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds."""

        def holds() -> bool:
            assert not self._raised, self._raised
            return condition()

        try:
            wait_for(holds)
        except AssertionError as error:
            error.add_note(str([(r.table, r.status, r.error) for r in self.results[-20:]]))
            raise

    def results_of(self, table: str, status: str = "succeeded") -> int:
        """Number of results of this table and status."""
        return sum((result.table, result.status) == (table, status) for result in list(self.results))

    def _run(self) -> None:
        try:
            Loop(self.job, self.runtime, self.results.append, self.stop).run()
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test's own thread
            self._raised.append(error)


def known_tables(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The job's tables each time that it has read the desired state, which it then does at each turn of its loop."""
    found: list[tuple[str, ...]] = []
    poll = DesiredStateReader.poll

    def recorded(self: DesiredStateReader) -> bool:
        changed = poll(self)
        found.append(tuple(spec.table for spec in self.job.tables))
        return changed

    monkeypatch.setattr(loop, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(DesiredStateReader, "poll", recorded)
    return found
