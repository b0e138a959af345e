"""What has been taken, as far as the Airflow side remembers: a small object for each pipeline in the lake.

Only a hint: the job's ledger is the truth. Without it every table with files counts as having work, and the job finds
out that there is none. A pipeline's runs never overlap (`max_active_runs=1`), so it has one writer at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_gddl.contract.codec import decode, to_json
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import Storage

_TRIES = 50


@dataclass(frozen=True, kw_only=True)
class TableHint:
    """What was last taken of a table.

    Attributes:
        mark: of the files and the row that were loaded, see `work.mark`; empty: the next run has work in any case.
        looked_at: ISO 8601 UTC: every file that was there by then is loaded.
        run: Airflow's id of the run that did it.
        announce: extra of the asset event that is still to be sent; null when there is none.
    """

    mark: str
    looked_at: str
    run: str
    announce: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What is remembered of a pipeline.

    Attributes:
        tables: those that were loaded, which therefore have a replica.
        failed: tables whose first load failed, and the run in which it did.
        finished: stage (`initial`, `increments`) to the last run in which it was done with all its tables.
    """

    tables: Mapping[str, TableHint] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    finished: Mapping[str, str] = field(default_factory=dict)
    format: int = 1

    def taken(self, table: str, hint: TableHint) -> Hints:
        failed = {name: run for name, run in self.failed.items() if name != table}
        return replace(self, tables={**self.tables, table: hint}, failed=failed)

    def not_taken(self, table: str, run: str) -> Hints:
        """A table could not be loaded."""
        return self if table in self.tables else replace(self, failed={**self.failed, table: run})

    def announced(self) -> Hints:
        """All events sent."""
        return replace(self, tables={name: replace(hint, announce=None) for name, hint in self.tables.items()})

    def after(self, stage: str, run: str) -> Hints:
        return replace(self, finished={**self.finished, stage: run})

    @property
    def pending(self) -> dict[str, Mapping[str, Any]]:
        """Asset events to be sent, by table."""
        return {name: hint.announce for name, hint in sorted(self.tables.items()) if hint.announce is not None}


def place(lake: str, dag_id: str) -> str:
    return join(lake, STATE, "airflow", f"{dag_id}.json")


def read(store: Storage, lake: str, dag_id: str) -> Hints:
    """Empty when there are none, or when they are damaged.

    Raises:
        RetriableError: the store does not answer.
    """
    try:
        return _decoded(store.read(place(lake, dag_id)))
    except FileNotFoundError:
        return Hints()


def _decoded(data: bytes) -> Hints:
    """Empty when they are damaged."""
    try:
        return decode(Hints, json.loads(data))
    except (GddlError, ValueError) as error:
        if isinstance(error, GddlError) and error.code != "SPEC_INVALID":
            raise
        return Hints()


def write(store: Storage, lake: str, dag_id: str, hints: Hints) -> None:
    store.write(place(lake, dag_id), to_json(hints).encode())


def update(store: Storage, lake: str, dag_id: str, change: Callable[[Hints], Hints]) -> Hints:
    """Change the hints while other tasks of the same run do; what they are then.

    Raises:
        RetriableError: `LANDING_UNREACHABLE`, or `STATE_CONTENDED`.
    """
    path = place(lake, dag_id)
    for _ in range(_TRIES):
        try:
            data, tag = store.read_tagged(path)
            before, found = _decoded(data), tag
        except FileNotFoundError:
            before, found = Hints(), None
        after = change(before)
        if store.swap(path, to_json(after).encode(), found):
            return after
    what = f"other tasks kept changing it, {_TRIES} times"
    raise RetriableError("STATE_CONTENDED", what, where=path, remedy="nothing is lost; the next try writes it")
