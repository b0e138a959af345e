"""Full loads of a table before its newest one: from which moment on each is known, and until when it is proven whole.

A reload often follows lost changes, so that nothing later tells of an earlier load: neither a heartbeat nor the end of
what was read of the log, but the load's own changes, up to the last batch that met no later load (`LoadNote`). Of a log
that jobs read it is how far that batch had read it: changes that were loaded later may follow what no log tells, as an
altered table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.completeness import DELIVERY_SECONDS
from airflow_gddl.contract.consistent_cut import CutKind, EarlierLoad, time_place
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.source_logs import LOGS, LogName, epoch_of, number_in
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.stores import Storage
from spark_jobs.actions.consistent_cut_rows import marks_of
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.cut_changes import last_cut
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import LoadNote, TableState
from spark_jobs.plan.sequence import COMMIT_AND_PLACE, OWN_COMMIT, place_in_log
from spark_jobs.plan.source_snapshots import SnapshotRun
from spark_jobs.rules.order import gddl_fields
from spark_jobs.tables.table_rows import by_file

if TYPE_CHECKING:
    from spark_jobs.tables.delta_tables import Tables

_CHANGES = "changes"
_NOT_NOTED = "no batch has noted that it was whole, as none does of an earlier release, nor a reload from the files"
_MOST_NAMED = 3


class _UnknownError(Exception):
    """Why nothing is known of a load."""


def by_any_clock(moment: str | None) -> str:
    """When a load had ended by every clock, where one has said when it ended; ISO 8601 UTC, empty: not known."""
    return iso(moment_of(moment) + timedelta(seconds=DELIVERY_SECONDS)) if moment else ""


def place_of_files(modified: str) -> str:
    """When a load had ended whose newest file was modified then, as a commit time that is a place."""
    return time_place(datetime.fromisoformat(by_any_clock(modified)))


def place_of_snapshot(snapshot: SnapshotRun, log: LogName) -> EarlierLoad:
    """The full load that a snapshot of Debezium is, as if its rows were those of its place (`SourceLog.is_exact`).

    Nothing of it says how far it is complete.
    """
    position = snapshot.position
    least = place_in_log(position) if LOGS[log].is_own else epoch_of(position) + position.rpartition(".")[2]
    return EarlierLoad(
        generation=snapshot.generation, least=least, complete="", above=position, number=number_in(position),
        loaded_at=by_any_clock(snapshot.since),
    )  # fmt: skip


def _named(generations: Sequence[int]) -> str:
    """Generations, newest first, for people; of many the newest ones and their number."""
    shown = ", ".join(f"generation {one}" for one in generations[:_MOST_NAMED])
    more = len(generations) - _MOST_NAMED
    return f"{shown} and {more} earlier ones" if more > 0 else shown


@dataclass(frozen=True, kw_only=True)
class KnownTable:
    """What says something of earlier loads.

    Attributes:
        log: whose positions the places are; of `kind` time without a meaning.
        lowest: bound before which nothing is that the tables lack; None: they lack nothing.
        before: bound before which nothing can be in a file.
    """

    run: TableRun
    ledger: Ledger
    kind: CutKind
    log: LogName
    lowest: str | None
    before: Callable[[str], str]

    @property
    def state(self) -> TableState:
        return self.ledger.state

    def earlier(self, tables: Tables) -> tuple[tuple[EarlierLoad, ...], str]:
        """`CutFacts.earlier` and `unknown`."""
        limits = {one: self._limit(one) for one in range(self.state.generation - 1, 0, -1)}
        newest = self._newest(tables, limits)
        known: list[EarlierLoad] = []
        unknown: dict[str, list[int]] = {}
        for generation in limits:
            try:
                known.append(self._load(generation, newest.get(generation, "")))
            except _UnknownError as error:
                unknown.setdefault(str(error), []).append(generation)
        return tuple(known), "; ".join(f"{_named(those)}: {why}" for why, those in unknown.items())

    def _limit(self, generation: int) -> _Limit:
        if (snapshot := self._snapshot(generation)) is not None:
            return _Limit(behind=snapshot.position)
        note = self.state.note_of(generation)
        return _Limit(applied_by="" if note is None else note.at)

    def _snapshot(self, generation: int) -> SnapshotRun | None:
        """The last one that the generation has begun with."""
        runs = () if self.state.snapshots is None else self.state.snapshots.runs
        return next((one for one in reversed(runs) if one.generation == generation), None)

    def _newest(self, tables: Tables, limits: Mapping[int, _Limit]) -> dict[int, str]:
        """By generation, the last commit that its changes name, or their newest commit time."""
        source = marks_of(tables, self.run.layout.changes, self.run.spec.shard)
        newest: dict[int, str] = {}
        for report in by_file(tables, {_CHANGES: source}, _Newest(self.kind, self.log, limits)):
            for generation, place in json.loads(report).items():
                newest[int(generation)] = max(place, newest.get(int(generation), ""))
        return newest

    def _load(self, generation: int, newest: str) -> EarlierLoad:
        note, snapshot = self.state.note_of(generation), self._snapshot(generation)
        if note is None and (snapshot is None or generation > 1):  # of the first snapshot nothing is to be swept
            raise _UnknownError(_NOT_NOTED)
        if snapshot is not None:
            if self.state.snapshots is None or self.state.snapshots.merged:
                raise _UnknownError("its snapshot was merged with others")
            if not LOGS[self.log].is_exact:
                raise _UnknownError("its snapshot was read later than its place says")
            load = place_of_snapshot(snapshot, self.log)
        elif note is not None:
            load = self._noted(note)
        if reads_of(self.run.spec) == "log":
            newest = "" if note is None else note.read
        given_up = [self.before(path) for path in self.ledger.given_up("change", generation)]
        complete = min([newest, *given_up, *([] if self.lowest is None else [self.lowest])])
        if complete <= max(load.least, load.above):
            raise _UnknownError(f"no change behind its end proves that all before it has come{self._removed()}")
        return replace(load, complete=complete)

    def _removed(self) -> str:
        cut = last_cut(self.run.runtime.storage, self.run.layout.state)
        return "" if cut is None else "; changes_retention has removed some"

    def _noted(self, note: LoadNote) -> EarlierLoad:
        if self.kind == "time":
            if not note.landed:
                raise _UnknownError("it began without a file of a full load")
            return EarlierLoad(generation=note.generation, least=place_of_files(note.landed), complete="")
        if not note.until:
            raise _UnknownError("it has not noted where the log was when it ended")
        return EarlierLoad(
            generation=note.generation, least=note.until, complete="", number=number_in(note.until),
            loaded_at=by_any_clock(note.ended),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Limit:
    """Which changes of a generation count; sent to tasks.

    Attributes:
        applied_by: those of batches that were planned by then, ISO 8601 UTC; empty: none; None: of all batches.
        behind: those behind this place, where a snapshot begins the generation.
    """

    applied_by: str | None = None
    behind: str = ""


@dataclass(frozen=True)
class _Newest:
    """See `KnownTable._newest`, of a file; sent to tasks."""

    kind: CutKind
    log: LogName
    limits: Mapping[int, _Limit]

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        gddl = gddl_fields(rows[_CHANGES])
        found = {one: self._of(gddl, one, limit) for one, limit in self.limits.items()}
        return json.dumps({one: place for one, place in found.items() if place}).encode()

    def _of(self, gddl: Mapping[str, pa.Array], generation: int, limit: _Limit) -> str:
        if limit.applied_by == "":
            return ""
        counts = pc.and_(pc.equal(gddl["generation"], generation), pc.not_equal(gddl["op"], "R"))
        if limit.applied_by is not None:
            by = pa.scalar(datetime.fromisoformat(limit.applied_by), gddl["applied_at"].type)
            counts = pc.and_(counts, pc.less_equal(gddl["applied_at"], by))
        if self.kind == "time":
            newest = pc.max(gddl["commit_ts"].filter(counts)).as_py()
            return "" if newest is None else time_place(newest)
        sequence = gddl["sequence"].filter(counts)
        sequence = sequence.filter(pc.greater(sequence, limit.behind))
        if LOGS[self.log].is_own:
            return pc.max(pc.struct_field(pc.extract_regex(sequence, OWN_COMMIT), "commit")).as_py() or ""
        parts = pc.extract_regex(sequence, COMMIT_AND_PLACE)
        log, commit, own = (pc.struct_field(parts, name) for name in ("log", "commit", "own"))
        place = pc.binary_join_element_wise(log, commit, "").filter(pc.not_equal(commit, own))
        return pc.max(place).as_py() or ""
