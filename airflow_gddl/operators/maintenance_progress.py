"""Progress of a maintenance task in this run: a retry or a resumed task continues with the remaining tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.runners.attempts import TaskKey
from airflow_gddl.stores import open_store, read_document


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of one task.

    Attributes:
        run: Airflow's run id.
        cleared: how often the finished run was cleared; each time all tables are processed again.
        shares: number of finished jobs.
        done: tables that succeeded.
    """

    run: str
    cleared: int
    shares: int = 0
    done: tuple[str, ...] = ()
    format: int = 1

    def after(self, done: Iterable[str]) -> Progress:
        """Add a finished job."""
        return replace(self, shares=self.shares + 1, done=tuple(sorted({*self.done, *done})))


@dataclass(frozen=True)
class ProgressFile:
    """Storage of the progress: one small object for each task, of its last run only.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`.
    """

    lake: str
    key: TaskKey
    environ: Mapping[str, str]

    def read(self, cleared: int) -> Progress:
        """Progress of this run; empty where none is stored."""
        found = read_document(open_store(self.environ), self._path, Progress)
        if found is None or (found.run, found.cleared) != (self.key.run, cleared):
            return Progress(run=self.key.run, cleared=cleared)
        return found

    def write(self, progress: Progress) -> None:
        open_store(self.environ).write(self._path, to_json(progress).encode())

    @property
    def _path(self) -> str:
        return join(self.lake, STATE, "airflow", "maintenance", f"{self.key.pipeline}.{self.key.task}.json")
