"""What a task of maintenance has done in this run: a retry, and a task that waited, does what is left."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_gddl.contract.codec import decode, to_json
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.runners.attempts import TaskKey
from airflow_gddl.stores import open_store


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Of one task.

    Attributes:
        run: Airflow's run id.
        cleared: how often a person cleared the run when it had ended; each time all is done again.
        shares: jobs that have ended.
        done: tables that are done and had no fault.
    """

    run: str
    cleared: int
    shares: int = 0
    done: tuple[str, ...] = ()
    format: int = 1

    def after(self, done: Iterable[str]) -> Progress:
        """One more job has ended."""
        return replace(self, shares=self.shares + 1, done=tuple(sorted({*self.done, *done})))


@dataclass(frozen=True)
class ProgressFile:
    """Where it is kept: one small object for each task, of its last run alone.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`.
    """

    lake: str
    key: TaskKey
    environ: Mapping[str, str]

    def read(self, cleared: int) -> Progress:
        """Of this run; as at its start where nothing is known of it."""
        fresh = Progress(run=self.key.run, cleared=cleared)
        try:
            found = decode(Progress, json.loads(open_store(self.environ).read(self._path)))
        except (FileNotFoundError, ValueError):
            return fresh
        except GddlError as error:
            if error.code != "SPEC_INVALID":
                raise
            return fresh
        return found if (found.run, found.cleared) == (fresh.run, fresh.cleared) else fresh

    def write(self, progress: Progress) -> None:
        open_store(self.environ).write(self._path, to_json(progress).encode())

    @property
    def _path(self) -> str:
        return join(self.lake, STATE, "airflow", "maintenance", f"{self.key.pipeline}.{self.key.task}.json")
