"""Up to which moment a table is complete, with each transaction whole, and from which one on its full load is known.

A table of which that can't be proven is refused. Places, bounds and moments: `contract.consistent_cut`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.completeness import DELIVERY_SECONDS, HeartbeatFacts, complete_until
from airflow_gddl.contract.consistent_cut import (
    CHANGES_CODE,
    INCOMPLETE_CODE,
    LOAD_CODE,
    UNKNOWN_CODE,
    AskedMoment,
    CutFacts,
    CutKind,
    EarlierLoad,
    FoundPlaces,
    asked_moment,
    key_forms,
    time_place,
)
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.source_logs import LOGS, POSTGRESQL, LogName, epoch_of, number_in, place_in
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.stores import Storage
from spark_jobs.actions.consistent_cut_rows import VOID, least, most, sources_of
from spark_jobs.batch import notices
from spark_jobs.batch.own_tables import (
    has_all_changes,
    has_foreign_changes,
    require_loaded_tables,
    require_newest_of_shard,
)
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.load_progress import number_of_log
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import FileEntry, TableState
from spark_jobs.plan.sequence import COMMIT_AND_PLACE, OWN_COMMIT, place_in_log
from spark_jobs.plan.sharding import rebuild_of, refreshed
from spark_jobs.plan.source_snapshots import UNREAD_LOG, KnownSnapshots, SnapshotRun, is_alone, is_whole, text_of
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.order import ARCHIVED, gddl_fields
from spark_jobs.sources import LogEnd, reader_of
from spark_jobs.tables.engine import TableContext
from spark_jobs.tables.table_rows import Source, by_file, without_places

if TYPE_CHECKING:
    from spark_jobs.tables.delta_tables import Tables
    from spark_jobs.tables.one_task import TablesEngine

_CHANGES = "changes"
_OF_STATEMENT = "ar_h_timestamp"
_COMMIT_TIMES = ("ar_h_commit_timestamp", _OF_STATEMENT, "dms_timestamp")
"""Columns of commit times in the order in which they are taken, and one whose time may be that of a statement."""
_NO_COMMITS = {
    "mysql": "the places of its events are those of changes, and nothing tells where a transaction begins",
    "mariadb": "the places of its events are those of changes, and nothing tells where a transaction begins",
    "mongodb": "a large transaction has several entries of the oplog, each with a place of its own",
    "db2": "its events have the time at which the connector read them, so that nothing tells how far its snapshot is",
}  # fmt: skip
"""Why connectors whose events have places are refused."""
_ZONE_SECONDS = 3600.0
"""By how much a commit time of SQL Server may be off around a change to or from daylight saving time: it is told by the
zone of the moment at which it is read."""
_NOTHING = ""
"""A bound before every place."""
_NO_NEWER = "it has no newer change, and its source no newer row of a heartbeat"
_NO_NEWER_OF_SHARD = "it has no newer change; a heartbeat says nothing of a table of several sources"


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


def tables_of(context: TableContext, *paths: str) -> Tables:
    """The tables of these paths, whose files are worked on where the table's tier says.

    Raises:
        DeclinedError: they are too large for one task.
    """
    return cast("TablesEngine", context.engine).whole_tables_of(context, *paths)


def facts_of(run: TableRun, at: str) -> tuple[CutFacts, ...]:
    """What is known of the table now, or of each of its sources.

    Args:
        at: the moment that is asked for, as the user has written it.

    Raises:
        FatalError: `CUT_TRANSACTIONS_UNKNOWN`, `CUT_NOT_COMPLETE`, `CUT_BEFORE_LOAD`, `CUT_CHANGES_MISSING`,
            `BATCH_UNFINISHED`, `SHARDS_CHANGED`, `LEDGER_BEHIND`; as `SourceReader.log_end`.
        RetriableError: `TABLE_BUSY`.
    """
    asked = asked_moment(at)
    with run.claim():
        run.ledger()  # which refuses a table that was loaded otherwise
        _require_no_former(run)
        return tuple(_facts_of(one, asked) for one in run.shard_runs() or (run,))


def _require_no_former(run: TableRun) -> None:
    """Require that the change table has no source that the row no longer names: nothing tells how far it has come.

    Ledgers don't tell: a batch may have broken off, or a ledger be gone.
    """
    if not run.spec.shards:
        return
    context, path = run.context(), run.layout.changes
    known = sources_of(tables_of(context, path), path) if context.engine.tables.exists(path) else set()
    if former := known - {*run.spec.shards}:
        named = ", ".join(sorted(former))
        what = f"the metadata row no longer names {named}, whose rows it has, and of which nothing more is read"
        raise _refused(INCOMPLETE_CODE, run, what, "name the source again, or leave the table out, by --table")


def _facts_of(run: TableRun, asked: AskedMoment) -> CutFacts:
    ledger = run.ledger()
    _require_loaded_table(run, ledger)
    context = run.context()
    schema = context.stored_schema(ledger.state)
    kind = _kind_of(run, schema, ledger.state)
    log = _log_of(run, ledger.state) if kind == "log" else POSTGRESQL
    known = _Known(run, context, ledger, schema, kind, log)
    found = known.facts()
    if asked.time is not None or asked.position is not None:
        found = replace(found, found=known.places(asked, found))
    return found


def _require_loaded_table(run: TableRun, ledger: Ledger) -> None:
    spec, state = run.spec, ledger.state
    if state.keys is None:
        raise _refused(LOAD_CODE, run, "it is not loaded", f"`gddl run --table {spec.table}`")
    notices.require_finished(run.title, ledger, run.layout.state, then="make the cut")
    require_same_identity(spec, state)
    if not state.keys:
        raise _refused(UNKNOWN_CODE, run, "it has no keys", "leave it out, by --table")
    if not has_all_changes(spec, run.runtime.storage, run.layout, ledger):
        what = "its change table lacks changes that its ledger knows"
        raise _refused(CHANGES_CODE, run, what, rebuild_of(spec))
    if run.shard:
        require_newest_of_shard(run.context(), ledger)
    if has_foreign_changes(spec, run.runtime.storage, run.layout, ledger):
        what = (
            "another writer has changed its change table, so that changes may be missing or wrong, also after a rebuild"
        )
        raise _refused(CHANGES_CODE, run, what, refreshed(spec, f"`gddl reload --from-files --table {spec.table}`"))
    if state.adopted or state.baseline is not None:
        raise _refused(LOAD_CODE, run, "it was adopted: no full load of it is known", "leave it out, by --table")
    require_loaded_tables(run.context(), state)


def _refused(code: str, run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(code, f"{run.title} can't be shown as of a moment: {what}", where=run.spec.table, remedy=remedy)


def _kind_of(run: TableRun, schema: TableSchema, state: TableState) -> CutKind:
    """How the table's transactions are told apart.

    Raises:
        FatalError: `CUT_TRANSACTIONS_UNKNOWN`.
    """
    kind = _kind_of_source(run, schema, state)
    if run.shard and kind == "log":
        what = "each of the table's sources has a log of its own, and a place in one says nothing of another"
        raise _refused(UNKNOWN_CODE, run, what, "leave it out, by --table; cuts of several sources are by commit time")
    return kind


def _kind_of_source(run: TableRun, schema: TableSchema, state: TableState) -> CutKind:
    remedy = f"leave it out, by --table; {documented('as-of.md')} lists the sources whose transactions are known"
    if run.spec.mode != "changes":
        raise _refused(UNKNOWN_CODE, run, f"mode: {run.spec.mode} knows no transactions", remedy)
    if schema.forces:
        raise _refused(UNKNOWN_CODE, run, "force_update applies changes whatever their place", remedy)
    if schema.log_positions:
        if schema.follows_snapshots:
            return "log"
        what = "other columns order its changes beside the positions of the log"
        raise _refused(UNKNOWN_CODE, run, what, remedy)
    has_changes = state.max_sequence is not None
    if not has_changes and reads_of(run.spec) == "log" and not run.spec.sequence_by:
        return "log"
    if run.spec.dialect == "dms" and (not has_changes or _has_commit_times(run, state)):
        return "time"
    raise _refused(UNKNOWN_CODE, run, "its changes have no commit time, nor the place of their commit", remedy)


def _log_of(run: TableRun, state: TableState) -> LogName:
    """The log whose commits place the table's transactions.

    Raises:
        FatalError: `CUT_TRANSACTIONS_UNKNOWN`.
    """
    newest, known = text_of(state.max_sequence), state.snapshots
    if newest is None or re.match(COMMIT_AND_PLACE, newest):
        return POSTGRESQL
    logs = () if known is None else known.logs
    connectors = {one.connector for one in logs}
    if lacks := next((one.lacks for one in logs or (UNREAD_LOG,) if one.lacks), ""):
        what = lacks
    elif len(connectors) > 1:
        what = f"its events are of several kinds of connectors: {', '.join(sorted(connectors))}"
    elif (name := cast("LogName", logs[0].connector)) in LOGS and name != POSTGRESQL:
        return name
    else:
        what = _NO_COMMITS.get(logs[0].connector, "its events don't have the place of a commit")
    remedy = f"leave it out, by --table; {documented('as-of.md', 'which-sources')} says what is known of connectors"
    raise _refused(UNKNOWN_CODE, run, what, remedy)


def _has_commit_times(run: TableRun, state: TableState) -> bool:
    """Whether the commit time of changes is one, and in no file the time of a statement."""
    named = getattr(run.dialect.options, "timestamp_column", None)
    order = (named.lower(), *_COMMIT_TIMES) if named else _COMMIT_TIMES
    files = [{name.lower() for name, kind in schema.items() if kind != VOID} for schema in state.schemas]
    kinds = {next((one for one in order if one in names), None) for names in (*files, {*map(str.lower, state.found)})}
    return _OF_STATEMENT not in kinds and bool(kinds - {None})


@dataclass(frozen=True)
class _End:
    """Up to where changes have come; see `CutFacts`."""

    complete: str
    until: str
    whole: bool
    lacking: str = ""
    known_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Gaps:
    """What the tables lack.

    Attributes:
        listed_at: when the landing folder was listed; what lands meanwhile is not known.
        floors: bounds before which nothing of it can be, each with the reason.
    """

    listed_at: datetime
    floors: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Known:
    """What ledger, quarantine, landing folder and log say of a table, under its claim."""

    run: TableRun
    context: TableContext
    ledger: Ledger
    schema: TableSchema
    kind: CutKind
    log: LogName

    @property
    def state(self) -> TableState:
        return self.ledger.state

    def facts(self) -> CutFacts:
        run, state = self.run, self.state
        log = reader_of(run.spec).log_end(run) if self.kind == "log" else None
        connector = self._connector() if self.kind == "log" and log is None else ""
        beats, why = self._beats(connector) if self.kind == "log" and log is None else (None, _NO_NEWER)
        load = self._load(beats)
        listed_at = run.runtime.clock()
        gaps = _Gaps(listed_at=listed_at, floors=tuple(self._gaps()))
        end = self._end(log, beats, why, gaps)
        version = self.context.engine.tables.version(run.layout.changes)
        return CutFacts(
            table=run.spec.table, kind=self.kind, generation=state.generation, batch=state.batch, version=version or 0,
            complete=end.complete, until=end.until, whole=end.whole, lacking=end.lacking, least=load.least,
            above=load.above, loaded_at=load.loaded_at, newest=state.max_commit_ts, known_at=end.known_at,
            number=load.number, log=self.log, connector=connector,
            parts=_parts(state.snapshots, None if beats is None else beats.known), keys=key_forms(run.spec),
            shard=run.shard,
        )  # fmt: skip

    def _connector(self) -> str:
        """The one of Debezium's connectors whose events the table has, in one partition of a topic.

        Another connector passes over commits that have no change of its tables, so that its events name other ones.

        Raises:
            FatalError: `CUT_TRANSACTIONS_UNKNOWN`.
        """
        if reads_of(self.run.spec) == "log":
            return ""
        known = self.state.snapshots
        if known is None or len(known.partitions) != 1:
            what = "names of its files tell several partitions of a topic, or none: their order is not that of the log"
            raise _refused(UNKNOWN_CODE, self.run, what, "let the topic have one partition; or leave the table out")
        if len(known.sources) != 1 or not known.sources[0]:
            named = ", ".join(filter(None, known.sources)) or "none is named"
            what = f"its events have to come from one connector ({named}): each names other commits (source.name)"
            raise _refused(UNKNOWN_CODE, self.run, what, "leave it out, by --table; or ingest one connector's events")
        return known.sources[0]

    def _load(self, beats: _Beats | None) -> EarlierLoad:
        """The newest full load; nothing of it says how far it is complete.

        Raises:
            FatalError: `CUT_BEFORE_LOAD`.
        """
        run, state = self.run, self.state
        if state.swept < state.generation or run.is_loading:
            what = "its full load has not ended, or rows that it lacks were not removed yet"
            raise _refused(LOAD_CODE, run, what, f"`gddl run --table {run.spec.table}`")
        if self.kind == "time":
            return EarlierLoad(generation=state.generation, least=self._loaded_by_time(), complete=_NOTHING)
        load = run.source_load
        if load is not None and self._loads():
            if not load.place:
                what = "its full load has not noted where the log was when it ended"
                raise _refused(LOAD_CODE, run, what, f"load it again: `gddl load --again --table {run.spec.table}`")
            return EarlierLoad(
                generation=state.generation, least=load.place, complete=_NOTHING, number=number_of_log(load.log),
                loaded_at=by_any_clock(load.ended),
            )  # fmt: skip
        return self._snapshot(beats)

    def _snapshot(self, beats: _Beats | None) -> EarlierLoad:
        """By the snapshot of Debezium that the generation begins with."""
        known = self.state.snapshots
        runs = [] if known is None else [one for one in known.runs if one.generation == self.state.generation]
        if known is None or not runs or known.merged or not is_whole(known, runs[-1], self.state.max_sequence):
            what = "no full load of it is known that begins what it holds, and that has ended"
            raise _refused(LOAD_CODE, self.run, what, "leave it out, by --table; or let the connector take a snapshot")
        load = place_of_snapshot(runs[-1], self.log)
        if LOGS[self.log].is_exact:
            return load
        if known.mixed == self.state.generation:
            what = "rows of another snapshot were merged like changes, and nothing tells when they were read"
            raise _refused(LOAD_CODE, self.run, what, "leave it out, by --table; or let the connector take a snapshot")
        return self._read_later(load, beats)

    def _read_later(self, load: EarlierLoad, beats: _Beats | None) -> EarlierLoad:
        """A snapshot whose rows were read later than their place says: before a commit that is known to be later than
        the last of them, and than all changes of the table that may be in them.

        Raises:
            FatalError: `CUT_BEFORE_LOAD`.
        """
        position = load.above
        files = [
            moment_of(one.modified) for one in self.ledger.all_entries().values()
            if one.kind == "change" and one.state == "committed"
            and (text_of(one.min_sequence) or "") <= position <= (text_of(one.max_sequence) or "")
        ]  # fmt: skip
        self._require_clocks(DELIVERY_SECONDS + _ZONE_SECONDS)
        read = max(files, default=self.run.runtime.clock())  # of files that are not known: now
        by = iso(read + timedelta(seconds=DELIVERY_SECONDS + _ZONE_SECONDS))
        rule = _Places(log=self.log, time=by)
        tables = tables_of(self.context, self.run.layout.changes)
        mine = [*_scanned(tables, self.run.layout.changes, rule), *self._truncates(rule)]
        others = [] if beats is None else beats.scanned(self.context, rule)
        after, upto = least([*mine, *others], "after"), most(mine, "upto")
        if after is None or after <= (upto or _NOTHING):
            what = f"rows of its snapshot were read until {iso(read)}, and no commit that is an hour later is known yet"
            raise _refused(LOAD_CODE, self.run, what, "run the tables later; a heartbeat of the source lets them go on")
        return replace(load, least=LOGS[self.log].until(after), loaded_at=by)

    def _loaded_by_time(self) -> str:
        loads = self._loads()
        if not loads:
            what = "no file of a full load was ingested, so that its rows from before its changes are not known"
            raise _refused(LOAD_CODE, self.run, what, "leave it out, by --table; or let the task load it")
        return place_of_files(max(one.modified for one in loads))

    def _loads(self) -> list[FileEntry]:
        """Files of the current full load."""
        return [
            one for one in self.ledger.entries().values()
            if one.kind == "load" and one.state == "committed" and one.generation == self.state.generation
        ]  # fmt: skip

    def _end(self, log: LogEnd | None, beats: _Beats | None, why: str, gaps: _Gaps) -> _End:
        heard = None if gaps.floors else gaps.listed_at
        end = self._end_in_log(log, beats, why, heard) if self.kind == "log" else self._end_by_time(heard)
        for floor, reason in gaps.floors:
            if floor < end.complete:
                end = self._up_to(floor, reason)
        return end

    def _up_to(self, complete: str, lacking: str) -> _End:
        until = LOGS[self.log].until(complete) if self.kind == "log" else complete
        return _End(complete=complete, until=until, whole=False, lacking=lacking)

    def _end_in_log(self, log: LogEnd | None, beats: _Beats | None, why: str, listed_at: datetime | None) -> _End:
        if log is not None:
            complete = place_in(log.number, log.commit or 0)
            return _End(complete, place_in(log.number, log.until), whole=True, known_at=log.read_at or None)
        if reads_of(self.run.spec) == "log":
            raise _refused(
                INCOMPLETE_CODE, self.run, "its log was not read yet", f"`gddl run --table {self.run.spec.table}`"
            )
        beat = _NOTHING
        if listed_at is None:
            why = _NO_NEWER
        elif beats is not None and reader_of(self.run.spec).has_work(self.run, RunTotals()):
            why = "it has no newer change that was read, and its topic has messages that were not"
        elif beats is not None:
            beat = max(map(self._newest_place, beats.landed(listed_at)), default=_NOTHING)
        return self._up_to(max(self._newest_place(text_of(self.state.max_sequence)), beat), why)

    @staticmethod
    def _newest_place(sequence: str | None) -> str:
        """The commit that a change names: all transactions before it have come; also that one itself, where it is not
        the change's own."""
        return _NOTHING if sequence is None or is_alone(sequence) else place_in_log(sequence)

    def _beats(self, connector: str) -> tuple[_Beats | None, str]:
        """The source's heartbeat, if it is of the table's connector and log; and why nothing is newer than the table.

        Args:
            connector: of the table.
        """
        spec = self._heartbeat_spec()
        if spec is None:
            return None, _NO_NEWER
        layout = Layout.of(self.run.job.roots, spec)
        if not self.context.engine.tables.exists(layout.changes):
            return None, _NO_NEWER
        ledger = Ledger.open(self.run.runtime.storage, layout.state)
        known = ledger.state.snapshots
        if known is None or known.sources != (connector,) or not self._is_of_log(known):
            return None, f"it has no newer change, and {spec.table}, its heartbeat, is not of its connector alone"
        return _Beats(layout.changes, ledger, known), _NO_NEWER

    def _is_of_log(self, known: KnownSnapshots) -> bool:
        """Whether places of another table's events are those of this one's log."""
        are_known = bool(known.logs) or self.log == POSTGRESQL
        told = known.logs if self.log != POSTGRESQL else [one for one in known.logs if one != UNREAD_LOG]
        are_same = all(one.connector == self.log and not one.lacks for one in told)
        return are_known and are_same and len(_parts(self.state.snapshots, known)) <= 1

    def _heartbeat_spec(self) -> Any:
        """The row of the heartbeat; that of a row with several sources says nothing of any of them."""
        name = None if self.run.shard else self.run.spec.heartbeat
        return None if name is None else replace(self.run.spec, table=name, target=None, source_table=None)

    def _end_by_time(self, listed_at: datetime | None) -> _End:
        newest = self.state.max_commit_ts
        commit = None if newest is None else moment_of(newest).timestamp()
        as_of = None if listed_at is None else listed_at.timestamp()
        self._require_clocks()
        until = complete_until(commit, as_of, self._heartbeat(listed_at))
        if until is None:
            has_changes = self.state.max_sequence is not None
            why = "none of its changes has a commit time" if has_changes else "it has no change yet"
            return _End(_NOTHING, _NOTHING, whole=False, lacking=why)
        why = _NO_NEWER_OF_SHARD if self.run.shard else _NO_NEWER
        return self._up_to(time_place(datetime.fromtimestamp(until, UTC)), why)

    def _require_clocks(self, most: float = DELIVERY_SECONDS) -> None:
        """Require that no commit time is later than its file: all else is told by comparing the two.

        Args:
            most: by how many seconds the clocks may differ.

        Raises:
            FatalError: `CUT_TRANSACTIONS_UNKNOWN`.
        """
        for entry in _changes_of(self.ledger.all_entries().values()):
            if moment_of(str(entry.max_commit_ts)) > moment_of(entry.modified) + timedelta(seconds=most):
                what = (
                    f"a commit time is later than its file, {entry.max_commit_ts} in {entry.path}: a clock was wrong, "
                    "or times are those of a zone that they do not state"
                )
                raise _refused(UNKNOWN_CODE, self.run, what, "leave it out, by --table; or let the times be of UTC")

    def _heartbeat(self, listed_at: datetime | None) -> HeartbeatFacts | None:
        """Its newest commit in files that landed so long ago that all before it has landed; see `_end`."""
        spec = self._heartbeat_spec()
        if spec is None or listed_at is None:
            return None
        ledger = Ledger.open(self.run.runtime.storage, Layout.of(self.run.job.roots, spec).state)
        if landed := _landed(ledger, listed_at):
            return HeartbeatFacts(commit=max(moment_of(str(one.max_commit_ts)) for one in landed).timestamp())
        return None

    def _gaps(self) -> Iterable[tuple[str, str]]:
        """Bounds before which nothing can be that the tables lack, each with the reason."""
        discovery = self.run.discover(self.ledger)
        if discovery.root_missing:
            raise _refused(INCOMPLETE_CODE, self.run, "its landing root is not there", "mount or correct it")
        if discovery.refused:
            what = f"{discovery.refused} files of its landing folder must not be read: {discovery.refused_sample[0]}"
            raise _refused(INCOMPLETE_CODE, self.run, what, "remove them, or let them land in another way")
        waiting = [(one.path, one.kind) for one in (*discovery.waiting, *discovery.held)]
        for path, kind in waiting:
            if kind == "load":
                raise _refused(LOAD_CODE, self.run, f"a file of a full load waits: {path}", "run the table")
            yield self._before(path), f"a file waits to be loaded: {path}"
        for name in discovery.unsettled:
            yield self._before(name), f"a file may still be written: {name}"
        yield from self._unapplied()

    def _unapplied(self) -> Iterable[tuple[str, str]]:
        """As `_gaps`, of what is in quarantine or was dismissed."""
        quarantine = self.context.engine.quarantine(self.context)
        count, _ = quarantine.counts()
        if count:
            rows = quarantine.unresolved(count).rows
            for row in rows:
                if self._is_own(row["batch_id"]):
                    path = row["source_file"]
                    yield self._before_row(path, row["record"]), f"rows of it, or files, are in quarantine: {path}"
        for path in self.ledger.given_up("change"):
            yield self._before(path), f"a file that could not be read was dismissed: {path}"
        for path in self.ledger.given_up("load"):
            what = f"a file of its full load could not be read, and was dismissed: {path}"
            raise _refused(LOAD_CODE, self.run, what, "deliver the file again, or have the table loaded again")

    def _is_own(self, batch_id: object) -> bool:
        """Whether a batch has files of this source; those of sources of a table are named by them."""
        return not self.run.shard or str(batch_id).rpartition("/")[0] == self.run.shard

    def _before(self, path: str) -> str:
        """The bound before which nothing can be in a file: what files before it hold, in the order of names."""
        order = self.run.dialect.file_order
        place = order(path)
        if place is None or self._is_of_load(path):
            return _NOTHING
        before = [
            one for name, one in self.ledger.all_entries().items()
            if one.kind == "change" and one.state == "committed" and (order(name) or place) < place
        ]  # fmt: skip
        if self.kind == "log":
            return max((self._newest_place(text_of(one.max_sequence)) for one in before), default=_NOTHING)
        times = (one.max_commit_ts for one in before if one.max_commit_ts is not None)
        return max((time_place(moment_of(time)) for time in times), default=_NOTHING)

    def _before_row(self, path: str, record: str | None) -> str:
        """The bound before which a quarantined row can't be: by commit time, one may be late in its file."""
        bound = self._before(path)
        if record is None or self.kind == "log" or not bound:
            return bound
        values = {name.lower(): value for name, value in json.loads(record).items()}
        named = getattr(self.run.dialect.options, "timestamp_column", None)
        order = (named.lower(), *_COMMIT_TIMES) if named else _COMMIT_TIMES
        time = next((values[name] for name in order if values.get(name)), None)
        try:
            return min(bound, time_place(moment_of(str(time))))
        except ValueError:  # it has none
            return _NOTHING

    def _is_of_load(self, path: str) -> bool:
        entry = self.ledger.entries().get(path)
        return entry is not None and entry.kind == "load"

    def places(self, asked: AskedMoment, facts: CutFacts) -> FoundPlaces:
        """What the changes say of the moment; nothing of commit times, which compare as they are."""
        if self.kind == "time":
            return FoundPlaces()
        path = self.run.layout.changes
        is_of_log = asked.position is not None and asked.log == self.log
        until = place_in(facts.number, asked.position or 0, self.log) if is_of_log else None
        rule = _Places(log=self.log, until=until, time=None if asked.time is None else iso(asked.time))
        found = [*_scanned(tables_of(self.context, path), path, rule), *self._truncates(rule)]
        before = most(found, "before")
        own = most([one for one in found if one["before"] == before], "own")
        return FoundPlaces(
            after=least(found, "after"), before=before, own=own, behind=least(found, "behind"),
            reached=most(found, "reached"),
        )  # fmt: skip

    def _truncates(self, rule: _Places) -> list[Mapping[str, Any]]:
        """What truncates of the source say, which no change table has."""
        known = self.state.truncates
        times = [None if one.commit_ts is None else moment_of(one.commit_ts) for one in known]
        sequences = pa.array([text_of(one.sequence) for one in known], pa.string())
        return [rule.found(sequences, pa.array(times, pa.timestamp("us", "UTC")))]


def _changes_of(entries: Iterable[FileEntry]) -> list[FileEntry]:
    """Those of change files that were read, and have commit times."""
    return [
        one for one in entries
        if one.kind == "change" and one.state == "committed" and one.max_commit_ts is not None
    ]  # fmt: skip


def _landed(ledger: Ledger, listed_at: datetime) -> list[FileEntry]:
    """Change files of a heartbeat that landed so long ago that all before them has landed, of all tables."""
    by = listed_at - timedelta(seconds=DELIVERY_SECONDS)
    for entries in (ledger.entries, ledger.all_entries):  # the archives only where the newest files are there
        landed = [one for one in _changes_of(entries().values()) if moment_of(one.modified) <= by]
        if landed:
            return landed
    return []


def _parts(*known: KnownSnapshots | None) -> tuple[str, ...]:
    """See `CutFacts.parts`."""
    logs = [log for one in known if one is not None for log in one.logs]
    return tuple(dict.fromkeys(one.part for one in logs if one.part))


@dataclass(frozen=True)
class _Beats:
    """The heartbeat of a source whose places are those of commits.

    Attributes:
        changes: path of its change table.
    """

    changes: str
    ledger: Ledger
    known: KnownSnapshots

    def landed(self, listed_at: datetime) -> list[str]:
        """The greatest place of each file that landed long ago. Rows of a snapshot say nothing of other tables: it may
        be taken while changes from before it are not sent yet."""
        read = {run.position for run in self.known.runs}
        places = [text_of(one.max_sequence) for one in _landed(self.ledger, listed_at)]
        return [place for place in places if place is not None and place not in read]

    def scanned(self, context: TableContext, rule: _Places) -> list[Mapping[str, Any]]:
        return _scanned(tables_of(context, self.changes), self.changes, rule)


def _scanned(tables: Tables, path: str, rule: _Places) -> list[Mapping[str, Any]]:
    source = Source.of(tables.existing(path), without_places, [GDDL])
    return [json.loads(report) for report in by_file(tables, {_CHANGES: source}, rule)]


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Places of the commits that changes name, of a file; sent to tasks.

    Attributes:
        log: of which they are.
        until: a place, `before`, `own` and `behind` are of it; None: not asked for.
        time: `after` is the first place of changes that were committed later, `upto` the last of the others, `reached`
            that of changes that were committed by then; None: not asked for.
    """

    log: LogName
    until: str | None = None
    time: str | None = None

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        gddl = gddl_fields(rows[_CHANGES])
        counts = pc.and_(pc.is_valid(gddl["sequence"]), pc.greater(gddl["generation"], ARCHIVED))
        found = self.found(gddl["sequence"].filter(counts), gddl["commit_ts"].filter(counts))
        return json.dumps(found).encode()

    def found(self, sequence: pa.Array, times: pa.Array) -> dict[str, str | None]:
        """`after` and `upto`, and what `FoundPlaces` has, of these changes."""
        if LOGS[self.log].is_own:
            place = pc.struct_field(pc.extract_regex(sequence, OWN_COMMIT), "commit")
            nothing = {"before": None, "own": None, "reached": None}
            return {**self._around_time(place, times), **nothing, "behind": self._behind(place)}
        parts = pc.extract_regex(sequence, COMMIT_AND_PLACE)
        place, own = pc.struct_field(parts, "commit"), pc.struct_field(parts, "own")
        logs = pc.struct_field(parts, "log")
        alone, is_change = pc.equal(place, own), pc.equal(pc.struct_field(parts, "is_change"), "1")
        place = pc.binary_join_element_wise(logs, place, "")
        own = pc.binary_join_element_wise(logs, own, "")
        around = self._around(pc.if_else(alone, _NOTHING, place), own)
        return {**self._around_time(place, times), **around, "reached": self._reached(own, times, is_change)}

    def _around_time(self, place: pa.Array, times: pa.Array) -> dict[str, str | None]:
        """A change without a commit time may have been committed at any."""
        if self.time is None:
            return {"after": None, "upto": None}
        later = pc.fill_null(pc.greater(times, pa.scalar(datetime.fromisoformat(self.time), times.type)), False)
        after, upto = pc.min(place.filter(later)), pc.max(place.filter(pc.invert(later)))
        return {"after": after.as_py(), "upto": upto.as_py()}

    def _reached(self, own: pa.Array, times: pa.Array, is_change: pa.Array) -> str | None:
        """Rows of a snapshot have the time of their reader, which is that of no commit."""
        if self.time is None:
            return None
        by = pc.less_equal(times, pa.scalar(datetime.fromisoformat(self.time), times.type))
        return cast("str | None", pc.max(own.filter(pc.and_(by, is_change))).as_py())

    def _around(self, place: pa.Array, own: pa.Array) -> dict[str, str | None]:
        """`before` is empty where only the first transaction of the log, which names no commit, is before."""
        if self.until is None:
            return {"before": None, "own": None, "behind": None}
        before = pc.max(place.filter(pc.less_equal(place, self.until)))
        mine = pc.max(own.filter(pc.equal(place, before)))
        return {"before": before.as_py(), "own": mine.as_py(), "behind": self._behind(place)}

    def _behind(self, place: pa.Array) -> str | None:
        if self.until is None:
            return None
        return cast("str | None", pc.min(place.filter(pc.greater(place, self.until))).as_py())
