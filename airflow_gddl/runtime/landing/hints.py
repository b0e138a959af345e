"""Last loaded state of each table on the Airflow side: one small object for each pipeline in the lake.

Only hints: the job's ledger is authoritative. Without hints every table with files counts as having work, and the job
finds that there is none. A pipeline's runs never overlap (`max_active_runs=1`), so it has one writer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.codec import from_json_or_none, to_json
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import Storage, read_document

_TRIES = 50


@dataclass(frozen=True, kw_only=True)
class TableHint:
    """Last load of a table.

    Attributes:
        mark: of the files and the row that were loaded, see `work.mark`; empty: the next run has work in any case.
        looked_at: ISO 8601 UTC: every file that existed by then is loaded.
        run: Airflow's id of the run that loaded it.
        announce: extra of the asset event that is still to be sent; null when there is none.
    """

    mark: str
    looked_at: str
    run: str
    announce: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """How a task ended its stage.

    Attributes:
        max_tries: Airflow's limit of the task instance's tries. Clearing the instance raises it, a retry does not.
        events: extras of the asset events that it sent, by table; lost when Airflow never heard that it succeeded.
    """

    max_tries: int
    events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Hints:
    """Hints of a pipeline.

    Attributes:
        tables: those that were loaded, which therefore have a replica.
        failed: tables whose first load failed, and the run in which it did.
        finished: stage (`initial`, `increments`) to the last run in which it was done with all its tables.
        ends: stage to how it ended in that run; older versions kept none.
    """

    tables: Mapping[str, TableHint] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    finished: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, StageEnd] = field(default_factory=dict)
    format: int = 1

    def taken(self, table: str, hint: TableHint) -> Hints:
        failed = {name: run for name, run in self.failed.items() if name != table}
        return replace(self, tables={**self.tables, table: hint}, failed=failed)

    def not_taken(self, table: str, run: str) -> Hints:
        """Record a failed table."""
        return self if table in self.tables else replace(self, failed={**self.failed, table: run})

    def announced(self) -> Hints:
        """All events sent."""
        return replace(self, tables={name: replace(hint, announce=None) for name, hint in self.tables.items()})

    def after(self, stage: str, run: str, end: StageEnd) -> Hints:
        return replace(self, finished={**self.finished, stage: run}, ends={**self.ends, stage: end})

    def end_of(self, stage: str, run: str) -> StageEnd | None:
        """Null when this run is not the last one that ended the stage, or an older version noted no end."""
        return self.ends.get(stage) if self.finished.get(stage) == run else None

    @property
    def pending(self) -> dict[str, Mapping[str, Any]]:
        """Pending asset events, by table."""
        return {name: hint.announce for name, hint in sorted(self.tables.items()) if hint.announce is not None}


def place(lake: str, dag_id: str) -> str:
    return join(lake, STATE, "airflow", f"{dag_id}.json")


def read(store: Storage, lake: str, dag_id: str) -> Hints:
    """Empty when there are none, or when they are damaged.

    Raises:
        RetriableError: the store does not answer.
    """
    return read_document(store, place(lake, dag_id), Hints) or Hints()


def write(store: Storage, lake: str, dag_id: str, hints: Hints) -> None:
    store.write(place(lake, dag_id), to_json(hints).encode())


def update(store: Storage, lake: str, dag_id: str, change: Callable[[Hints], Hints]) -> Hints:
    """Change the hints while other tasks of the same run may; return the new hints.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    path = place(lake, dag_id)
    for _ in range(_TRIES):
        try:
            data, tag = store.read_tagged(path)
            before, found = from_json_or_none(Hints, data) or Hints(), tag
        except FileNotFoundError:
            before, found = Hints(), None
        after = change(before)
        if store.swap(path, to_json(after).encode(), found):
            return after
    what = f"other tasks kept changing it, {_TRIES} times"
    raise RetriableError("STATE_CONTENDED", what, where=path, remedy="no data is lost; the next try writes it")
