"""Results of tables that run in tasks of a cluster: JSON, below `lake/_gddl/jobs/<run_id>/` and back to the driver.

Others can write to the lake: only expected names are read, and their content is validated.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, count

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import STATE, answer_name, join
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.table.outcome import Declined, RunTotals, TableOutcome

Found = TableOutcome | Declined
_STARTED = ".begun-"


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A table's outcome; or null, with the reason for which the engine declined the table, and what was done before."""

    table: str
    outcome: TableOutcome | None = None
    reason: str = ""
    totals: RunTotals | None = None

    @classmethod
    def of(cls, found: Found) -> TaskResult:
        if isinstance(found, Declined):
            return cls(table=found.spec.table, reason=found.reason, totals=found.totals)
        return cls(table=found.result.table, outcome=found)

    def found(self, spec: TableSpec) -> Found:
        """
        Args:
            spec: of this table.
        """
        return self.outcome or Declined(spec, self.reason, self.totals or RunTotals())


def to_bytes(found: Found) -> bytes:
    return codec.to_json(TaskResult.of(found)).encode()


def from_bytes(data: bytes) -> TaskResult:
    """
    Raises:
        FatalError: `SPEC_INVALID`: it is no result.
    """
    return codec.from_json(TaskResult, data.decode(errors="replace"))


@dataclass(frozen=True)
class TaskResultStore:
    """Results of a job's tables, written by its tasks."""

    storage: Storage
    folder: str

    @classmethod
    def of(cls, job: JobSpec, storage: Storage) -> TaskResultStore:
        return cls(storage, join(job.roots.lake, STATE, "jobs", job.run_id))

    def put(self, found: Found) -> None:
        result = TaskResult.of(found)
        self.storage.write(self._path(result.table), codec.to_json(result).encode())

    def get(self, spec: TableSpec) -> Found | None:
        """Null where there is no valid result of this table."""
        try:
            result = from_bytes(self.storage.read(self._path(spec.table)))
        except FileNotFoundError:
            return None
        except GddlError as error:
            if error.code != "SPEC_INVALID":
                raise
            return None
        return result.found(spec) if result.table == spec.table else None

    def begin(self, spec: TableSpec, number: int) -> None:
        """Record that a task starts the table, with its process; `tries` counts these records."""
        self.storage.write(self._note(spec, number), f"{socket.gethostname()} {os.getpid()}".encode())

    def tries(self, spec: TableSpec) -> int:
        """Number of tasks that started the table and left no result."""
        return next(n for n in count() if not self.storage.exists(self._note(spec, n + 1)))

    def all(self, specs: Iterable[TableSpec]) -> list[Found]:
        """Existing results of these tables; after a transient error of the store they are read later."""
        try:
            there = {item.path for item in self.storage.list(self.folder)}
            found = [self.get(spec) for spec in specs if self._path(spec.table) in there]
        except GddlError:
            return []
        return [result for result in found if result is not None]

    def clear(self, specs: Iterable[TableSpec]) -> None:
        """Delete what tasks wrote for these tables, none of which is running; others of a continuous job may be."""
        self.storage.delete(*chain.from_iterable(self._written(specs).values()))

    def forget_single_starts(self, specs: Iterable[TableSpec]) -> None:
        """Delete the record of a table's only start: its task may have ended because of another table."""
        written = self._written(specs).values()
        self.storage.delete(*(paths[0] for paths in written if len(paths) == 1 and _STARTED in paths[0]))

    def _written(self, specs: Iterable[TableSpec]) -> dict[str, list[str]]:
        """Paths of what tasks wrote, by the names of the tables' results."""
        found: dict[str, list[str]] = {answer_name(spec.table): [] for spec in specs}
        for item in self.storage.list(self.folder):
            found.get(_result_name(item.path), []).append(item.path)
        return found

    def _note(self, spec: TableSpec, number: int) -> str:
        return f"{self._path(spec.table)}{_STARTED}{number}"

    def _path(self, table: str) -> str:
        return join(self.folder, answer_name(table))


def _result_name(path: str) -> str:
    """Name of the result to which an object belongs: the result, its notes `….begun-1`, and `.….tmp` of either."""
    stem, end, _ = path.rpartition("/")[2].removeprefix(".").partition(".json")
    return stem + end
