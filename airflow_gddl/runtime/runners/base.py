"""Interface of all runners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runtime.runners.platform import Handle

T = TypeVar("T")


def settings_of(runner: str, cls: type[T], own: Mapping[str, Any]) -> T:
    """
    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    try:
        return decode(cls, dict(own))
    except FatalError as error:
        where = f"gddl.yaml, runners.{runner}{error.where.removeprefix(cls.__name__)}"
        remedy = f"correct `runners: {{{runner}: …}}`; docs/metadata.md has every field"
        raise MetadataError("RUNNER_SETTINGS_INVALID", error.what, where=where, remedy=remedy) from error


STARTING_SPARK = "starting Spark"
"""The step of a table that waits for the Java process of the job."""


@dataclass(frozen=True, kw_only=True)
class ProgressEvent:
    """Progress of one table in a running job.

    Attributes:
        step: as the job names it: `discover`, `starting Spark`, `plan`, `append`, `merge`, … `done`.
        batch: number of the current batch, from 1 in this run; 0 before the first.
        batches: batches of this run; null while unknown.
        rows: rows read so far in this run.
    """

    table: str
    step: str
    batch: int = 0
    batches: int | None = None
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """A remote run that has not ended.

    Attributes:
        number: of its attempt, see `runners.attempts`.
    """

    number: int
    handle: Handle


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """A finished job.

    Attributes:
        results: one a table of the spec, in the order they ended; tables without a result from the job come last, as
            failed.
        exit_status: the job's own, 0 to 255; 128 plus the signal's number when a signal ended it.
        cancelled_by: number of the signal that stopped it; null when it was not stopped.
        log: where the job's log was written, or the page of its run; null when the runner keeps none.
        waiting: a remote run for the caller to wait for: results are incomplete, and the same call made later resumes
            it. Null when the job has ended.
    """

    results: tuple[JobResult, ...]
    exit_status: int
    cancelled_by: int | None = None
    log: str | None = None
    waiting: WaitPolicy | None = None


class Listener(Protocol):
    """Callbacks during a job, in the caller's thread."""

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None: ...


class Runner(Protocol):
    """Runs a job to its end."""

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """Every table of the spec has a result in the outcome, and the listener was called with each.

        Raises:
            GddlError: nothing was started, and why.
        """
        ...
