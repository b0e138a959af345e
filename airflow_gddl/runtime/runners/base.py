"""What every runner offers, whatever machine it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runtime.runners.platform import Handle

Step = Literal["discover", "read", "append", "merge", "history", "commit", "done"]


@dataclass(frozen=True, kw_only=True)
class ProgressEvent:
    """Where one table of a running job is.

    Attributes:
        batch: number of the batch at work, counted from 1 in this run; 0 before the first.
        batches: batches of this run; null while unknown.
        rows: rows read so far in this run.
    """

    table: str
    step: Step
    batch: int = 0
    batches: int | None = None
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """A run elsewhere that goes on.

    Attributes:
        number: of the attempt it is, see `runners.attempts`.
    """

    number: int
    handle: Handle


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """A finished job.

    Attributes:
        results: one a table of the spec, in the order they ended; tables the job never answered for come last, failed.
        exit_status: the job's own, 0 to 255; 128 plus the signal's number when a signal ended it.
        cancelled_by: number of the signal that told it to stop; null when it was left alone.
        log: where the job's log was written, or the page of its run; null when the runner keeps none.
        waiting: a run that goes on elsewhere, for the caller to wait for: results are not complete, and the same call
            made again later goes on with it. Null when the job has ended.
    """

    results: tuple[JobResult, ...]
    exit_status: int
    cancelled_by: int | None = None
    log: str | None = None
    waiting: WaitPolicy | None = None


class Listener(Protocol):
    """Told of a job while it runs, in the caller's thread."""

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None: ...


class Runner(Protocol):
    """Runs a job to its end."""

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """Every table of the spec has a result in the outcome, and the listener was told of each.

        Raises:
            GddlError: nothing was started, and why.
        """
        ...
