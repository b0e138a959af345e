"""Up to which moment a table is complete, with each transaction whole, and from which one on its full load is known.

A table of which that can't be proven is refused. Places, bounds and moments: `contract.consistent_cut`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.codes import CUT_REFUSED
from airflow_gddl.contract.completeness import DELIVERY_SECONDS, HeartbeatFacts, complete_until
from airflow_gddl.contract.consistent_cut import (
    AskedMoment,
    CutFacts,
    CutKind,
    FoundPlaces,
    asked_moment,
    key_forms,
    time_place,
)
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.postgresql_log import epoch_of, number_in, place_in
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.stores import Storage
from spark_jobs.batch import notices
from spark_jobs.batch.own_tables import has_all_changes, has_foreign_changes, require_loaded_tables
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.load_progress import number_of_log
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import FileEntry, TableState
from spark_jobs.plan.sequence import COMMIT_AND_PLACE, place_in_log
from spark_jobs.plan.sharding import rebuild_of, refreshed
from spark_jobs.plan.source_snapshots import is_alone, is_whole, text_of
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.actions.consistent_cut_rows import VOID, least, most, reports
from spark_jobs.rooms.sources import LogEnd, reader_of
from spark_jobs.rules.order import ARCHIVED, gddl_fields
from spark_jobs.tables.engine import Engine

_OF_STATEMENT = "ar_h_timestamp"
_COMMIT_TIMES = ("ar_h_commit_timestamp", _OF_STATEMENT, "dms_timestamp")
"""Columns of commit times in the order in which they are taken, and one whose time may be that of a statement."""
_NOTHING = ""
"""A bound before every place."""
_LEAVE_OUT = "leave it out, by --table"


def facts_of(run: TableRun, at: str) -> CutFacts:
    """What is known of the table now.

    Args:
        at: the moment that is asked for, as the user has written it.

    Raises:
        FatalError: `CUT_REFUSED`, `BATCH_UNFINISHED`; as `SourceReader.log_end`.
        RetriableError: `TABLE_BUSY`.
    """
    asked = asked_moment(at)
    if run.spec.shards:
        raise _refused(run, "it has rows of several sources, each with commits of its own", _LEAVE_OUT)
    with run.claim():
        ledger = run.ledger()
        _require_loaded_table(run, ledger)
        context = run.context()
        known = _Known(run, context, ledger, _kind_of(run, context.stored_schema(ledger.state), ledger.state))
        found = known.facts()
        if asked.time is not None or asked.position is not None:
            found = replace(found, found=known.places(asked, found))
        return found


def _require_loaded_table(run: TableRun, ledger: Ledger) -> None:
    spec, state = run.spec, ledger.state
    if state.keys is None:
        raise _refused(run, "it is not loaded", f"`gddl run --table {spec.table}`")
    notices.require_finished(run, ledger, then="make the cut")
    require_same_identity(spec, state)
    if not state.keys:
        raise _refused(run, "it has no keys", _LEAVE_OUT)
    if not has_all_changes(run, ledger):
        raise _refused(run, "its change table lacks changes that its ledger knows", rebuild_of(spec))
    if has_foreign_changes(run, ledger):
        what = (
            "another writer has changed its change table, so that changes may be missing or wrong, also after a rebuild"
        )
        raise _refused(run, what, refreshed(spec, f"`gddl reload --from-files --table {spec.table}`"))
    if state.adopted or state.baseline is not None:
        raise _refused(run, "it was adopted: no full load of it is known", _LEAVE_OUT)
    require_loaded_tables(run.context(), state)


def _refused(run: TableRun, what: str, remedy: str) -> FatalError:
    return FatalError(
        CUT_REFUSED, f"{run.title} can't be shown as of a moment: {what}", where=run.spec.table, remedy=remedy
    )


def _kind_of(run: TableRun, schema: TableSchema, state: TableState) -> CutKind:
    """How the table's transactions are told apart.

    Raises:
        FatalError: `CUT_REFUSED`.
    """
    remedy = f"{_LEAVE_OUT}; {documented('as-of.md')} lists the sources whose transactions are known"
    if run.spec.mode != "changes":
        raise _refused(run, f"mode: {run.spec.mode} knows no transactions", remedy)
    if schema.forces:
        raise _refused(run, "force_update applies changes whatever their place", remedy)
    newest = text_of(state.max_sequence)
    if schema.log_positions:
        if not schema.follows_snapshots:
            raise _refused(run, "other columns order its changes beside the positions of the log", remedy)
        if newest is not None and not re.match(COMMIT_AND_PLACE, newest):
            raise _refused(run, "its events have no places of commits in PostgreSQL's log", remedy)
        return "log"
    has_changes = state.max_sequence is not None
    if not has_changes and reads_of(run.spec) == "log" and not run.spec.sequence_by:
        return "log"
    if run.spec.dialect == "dms" and (not has_changes or _has_commit_times(run, state)):
        return "time"
    raise _refused(run, "its changes have no commit time, nor the place of their commit", remedy)


def _has_commit_times(run: TableRun, state: TableState) -> bool:
    """Whether the commit time of changes is one, and in no file the time of a statement."""
    order = _time_columns(run)
    files = [{name.lower() for name, kind in schema.items() if kind != VOID} for schema in state.schemas]
    kinds = {next((one for one in order if one in names), None) for names in (*files, {*map(str.lower, state.found)})}
    return _OF_STATEMENT not in kinds and bool(kinds - {None})


def _time_columns(run: TableRun) -> tuple[str, ...]:
    named = getattr(run.dialect.options, "timestamp_column", None)
    return (named.lower(), *_COMMIT_TIMES) if named else _COMMIT_TIMES


@dataclass(frozen=True)
class _Known:
    """What ledger, quarantine, landing folder and log say of a table, under its claim."""

    run: TableRun
    context: Engine
    ledger: Ledger
    kind: CutKind

    @property
    def state(self) -> TableState:
        return self.ledger.state

    def facts(self) -> CutFacts:
        run, state = self.run, self.state
        log = reader_of(run.spec).log_end(run) if self.kind == "log" else None
        connector = self._connector() if self.kind == "log" and log is None else ""
        facts = self._with_load(CutFacts(
            table=run.spec.table, kind=self.kind, generation=state.generation, version=0, complete="", until="",
            whole=False, least="", newest=state.max_commit_ts, connector=connector, keys=key_forms(run.spec),
        ))  # fmt: skip
        listed_at = run.runtime.clock()  # what lands meanwhile is not known
        floors = tuple(self._gaps())
        facts = self._with_end(facts, log, None if floors else listed_at)
        for floor, reason in floors:
            if floor < facts.complete:
                facts = replace(facts, complete=floor, until=floor, whole=False, lacking=reason, known_at=None)
        return replace(facts, version=self.context.tables.version(run.layout.changes) or 0)

    def _connector(self) -> str:
        """The one of Debezium's connectors whose events the table has, in one partition of a topic.

        Another connector passes over commits that have no change of its tables, so that its events name other ones.

        Raises:
            FatalError: `CUT_REFUSED`.
        """
        if reads_of(self.run.spec) == "log":
            return ""
        known = self.state.snapshots
        if known is None or len(known.partitions) != 1:
            what = "names of its files tell several partitions of a topic, or none: their order is not that of the log"
            raise _refused(self.run, what, "let the topic have one partition; or leave the table out")
        if len(known.sources) != 1 or not known.sources[0]:
            named = ", ".join(filter(None, known.sources)) or "none is named"
            what = f"its events have to come from one connector ({named}): each names other commits (source.name)"
            raise _refused(self.run, what, f"{_LEAVE_OUT}; or ingest one connector's events")
        return known.sources[0]

    def _with_load(self, facts: CutFacts) -> CutFacts:
        """With what is known of the newest full load.

        Raises:
            FatalError: `CUT_REFUSED`.
        """
        run, state = self.run, self.state
        if state.swept < state.generation or run.is_loading:
            what = "its full load has not ended, or rows that it lacks were not removed yet"
            raise _refused(run, what, f"`gddl run --table {run.spec.table}`")
        loads = [
            one for one in self.ledger.entries().values()
            if one.kind == "load" and one.state == "committed" and one.generation == state.generation
        ]  # fmt: skip
        if self.kind == "time":
            if not loads:
                what = "no file of a full load was ingested, so that its rows from before its changes are not known"
                raise _refused(run, what, f"{_LEAVE_OUT}; or let the task load it")
            by = _by_any_clock(max(one.modified for one in loads))
            return replace(facts, least=time_place(datetime.fromisoformat(by)))
        load = run.source_load
        if load is None or not loads:
            return self._with_snapshot(facts)
        if not load.place:
            what = "its full load has not noted where the log was when it ended"
            raise _refused(run, what, f"load it again: `gddl load --again --table {run.spec.table}`")
        ended = _by_any_clock(load.ended)
        return replace(facts, least=load.place, number=number_of_log(load.log), loaded_at=ended)

    def _with_snapshot(self, facts: CutFacts) -> CutFacts:
        """With the load, by the snapshot of Debezium that the generation begins with."""
        known = self.state.snapshots
        runs = [] if known is None else [one for one in known.runs if one.generation == self.state.generation]
        if known is None or not runs or known.merged or not is_whole(known, runs[-1], self.state.max_sequence):
            what = "no full load of it is known that begins what it holds, and that has ended"
            raise _refused(self.run, what, f"{_LEAVE_OUT}; or let the connector take a snapshot")
        position = runs[-1].position
        return replace(
            facts, least=epoch_of(position) + position.rpartition(".")[2], above=position, number=number_in(position),
            loaded_at=_by_any_clock(runs[-1].since),
        )  # fmt: skip

    def _with_end(self, facts: CutFacts, log: LogEnd | None, listed_at: datetime | None) -> CutFacts:
        """With up to where changes have come.

        Args:
            listed_at: when the landing folder was listed; None: something of the table is missing.
        """
        if self.kind == "time":
            return self._with_end_by_time(facts, listed_at)
        if log is not None:
            complete, until = (place_in(log.number, place) for place in (log.commit or 0, log.until))
            return replace(facts, complete=complete, until=until, whole=True, known_at=log.read_at or None)
        if reads_of(self.run.spec) == "log":
            raise _refused(self.run, "its log was not read yet", f"`gddl run --table {self.run.spec.table}`")
        newest = _commit_before(text_of(self.state.max_sequence))
        return replace(facts, complete=newest, until=newest, lacking="it has no newer change")

    def _with_end_by_time(self, facts: CutFacts, listed_at: datetime | None) -> CutFacts:
        newest = self.state.max_commit_ts
        commit = None if newest is None else moment_of(newest).timestamp()
        as_of = None if listed_at is None else listed_at.timestamp()
        self._require_clocks()
        until = complete_until(commit, as_of, self._heartbeat(listed_at))
        if until is None:
            has_changes = self.state.max_sequence is not None
            why = "none of its changes has a commit time" if has_changes else "it has no change yet"
            return replace(facts, complete=_NOTHING, until=_NOTHING, lacking=why)
        place = time_place(datetime.fromtimestamp(until, UTC))
        why = "it has no newer change, and its source no newer row of a heartbeat"
        return replace(facts, complete=place, until=place, lacking=why)

    def _require_clocks(self) -> None:
        """Require that no commit time is later than its file: all else is told by comparing the two.

        Raises:
            FatalError: `CUT_REFUSED`.
        """
        for entry in _changes_of(self.ledger.all_entries().values()):
            if moment_of(str(entry.max_commit_ts)) > moment_of(entry.modified) + timedelta(seconds=DELIVERY_SECONDS):
                what = (
                    f"a commit time is later than its file, {entry.max_commit_ts} in {entry.path}: a clock was wrong, "
                    "or times are those of a zone that they do not state"
                )
                raise _refused(self.run, what, f"{_LEAVE_OUT}; or let the times be of UTC")

    def _heartbeat(self, listed_at: datetime | None) -> HeartbeatFacts | None:
        """Its newest commit in files that landed so long ago that all before it has landed; see `_with_end`."""
        name = self.run.spec.heartbeat
        if name is None or listed_at is None:
            return None
        spec = replace(self.run.spec, table=name, target=None, source_table=None)
        ledger = Ledger.open(self.run.runtime.storage, Layout.of(self.run.job.roots, spec).state)
        if landed := _landed(ledger, listed_at):
            return HeartbeatFacts(commit=max(moment_of(str(one.max_commit_ts)) for one in landed).timestamp())
        return None

    def _gaps(self) -> Iterable[tuple[str, str]]:
        """Bounds before which nothing can be that the tables lack, each with the reason."""
        discovery = self.run.discover(self.ledger)
        if discovery.root_missing:
            raise _refused(self.run, "its landing root is not there", "mount or correct it")
        if discovery.refused:
            what = f"{discovery.refused} files of its landing folder must not be read: {discovery.refused_sample[0]}"
            raise _refused(self.run, what, "remove them, or let them land in another way")
        waiting = [(one.path, one.kind) for one in (*discovery.waiting, *discovery.held)]
        for path, kind in waiting:
            if kind == "load":
                raise _refused(self.run, f"a file of a full load waits: {path}", "run the table")
            yield self._before(path), f"a file waits to be loaded: {path}"
        for name in discovery.unsettled:
            yield self._before(name), f"a file may still be written: {name}"
        yield from self._unapplied()

    def _unapplied(self) -> Iterable[tuple[str, str]]:
        """As `_gaps`, of what is in quarantine or was dismissed."""
        quarantine = self.context.quarantine
        count, _ = quarantine.counts()
        for row in quarantine.unresolved(count).rows if count else ():
            path = row["source_file"]
            yield self._before_row(path, row["record"]), f"rows of it, or files, are in quarantine: {path}"
        for path in self.ledger.given_up("change"):
            yield self._before(path), f"a file that could not be read was dismissed: {path}"
        for path in self.ledger.given_up("load"):
            what = f"a file of its full load could not be read, and was dismissed: {path}"
            raise _refused(self.run, what, "deliver the file again, or have the table loaded again")

    def _before(self, path: str) -> str:
        """The bound before which nothing can be in a file: what files before it hold, in the order of names."""
        order, entry = self.run.dialect.file_order, self.ledger.entries().get(path)
        place = order(path)
        if place is None or (entry is not None and entry.kind == "load"):
            return _NOTHING
        before = [
            one for name, one in self.ledger.all_entries().items()
            if one.kind == "change" and one.state == "committed" and (order(name) or place) < place
        ]  # fmt: skip
        if self.kind == "log":
            return max((_commit_before(text_of(one.max_sequence)) for one in before), default=_NOTHING)
        times = (one.max_commit_ts for one in before if one.max_commit_ts is not None)
        return max((time_place(moment_of(time)) for time in times), default=_NOTHING)

    def _before_row(self, path: str, record: str | None) -> str:
        """The bound before which a quarantined row can't be: by commit time, one may be late in its file."""
        bound = self._before(path)
        if record is None or self.kind == "log" or not bound:
            return bound
        values = {name.lower(): value for name, value in json.loads(record).items()}
        time = next((values[name] for name in _time_columns(self.run) if values.get(name)), None)
        try:
            return min(bound, time_place(moment_of(str(time))))
        except ValueError:  # it has none
            return _NOTHING

    def places(self, asked: AskedMoment, facts: CutFacts) -> FoundPlaces:
        """What the changes say of the moment; nothing of commit times, which compare as they are."""
        if self.kind == "time":
            return FoundPlaces()
        path = self.run.layout.changes
        until = None if asked.position is None else place_in(facts.number, asked.position)
        rule = _Places(until=until, time=None if asked.time is None else iso(asked.time))
        found = [*reports(self.context.whole_tables_of(path), path, rule), self._truncates(rule)]
        before = most(found, "before")
        own = most([one for one in found if one["before"] == before], "own")
        return FoundPlaces(
            after=least(found, "after"), before=before, own=own, behind=least(found, "behind"),
            reached=most(found, "reached"),
        )  # fmt: skip

    def _truncates(self, rule: _Places) -> Mapping[str, Any]:
        """What truncates of the source say, which no change table has."""
        known = self.state.truncates
        times = [None if one.commit_ts is None else moment_of(one.commit_ts) for one in known]
        sequences = pa.array([text_of(one.sequence) for one in known], pa.string())
        return rule.found(sequences, pa.array(times, pa.timestamp("us", "UTC")))


def _by_any_clock(moment: str | None) -> str:
    """When a load had ended by every clock, where one has said when it ended; ISO 8601 UTC, empty: not known."""
    return iso(moment_of(moment) + timedelta(seconds=DELIVERY_SECONDS)) if moment else ""


def _commit_before(sequence: str | None) -> str:
    """The commit that a change names: it and all transactions before it have come."""
    return _NOTHING if sequence is None or is_alone(sequence) else place_in_log(sequence)


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


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Places of the commits that changes name, of a file; sent to tasks.

    Attributes:
        until: a place, `before`, `own` and `behind` are of it; None: not asked for.
        time: `after` is the first place of changes that were committed later, `reached` the last of changes that were
            committed by then; None: not asked for.
    """

    until: str | None = None
    time: str | None = None

    def __call__(self, storage: Storage, rows: pa.Table) -> dict[str, str | None]:  # noqa: ARG002 - writes nothing
        gddl = gddl_fields(rows)
        counts = pc.and_(pc.is_valid(gddl["sequence"]), pc.greater(gddl["generation"], ARCHIVED))
        return self.found(gddl["sequence"].filter(counts), gddl["commit_ts"].filter(counts))

    def found(self, sequence: pa.Array, times: pa.Array) -> dict[str, str | None]:
        """What `FoundPlaces` has, of these changes."""
        parts = pc.extract_regex(sequence, COMMIT_AND_PLACE)
        place, own = pc.struct_field(parts, "commit"), pc.struct_field(parts, "own")
        logs = pc.struct_field(parts, "log")
        alone, is_change = pc.equal(place, own), pc.equal(pc.struct_field(parts, "is_change"), "1")
        place = pc.binary_join_element_wise(logs, place, "")
        own = pc.binary_join_element_wise(logs, own, "")
        around = self._around(pc.if_else(alone, _NOTHING, place), own)
        if self.time is None:
            return {**around, "after": None, "reached": None}
        moment = pa.scalar(datetime.fromisoformat(self.time), times.type)
        by = pc.and_(pc.less_equal(times, moment), is_change)  # rows of a snapshot have the time of their reader
        after, reached = pc.min(place.filter(pc.greater(times, moment))), pc.max(own.filter(by))
        return {**around, "after": after.as_py(), "reached": reached.as_py()}

    def _around(self, place: pa.Array, own: pa.Array) -> dict[str, str | None]:
        """`before` is empty where only the first transaction of the log, which names no commit, is before."""
        if self.until is None:
            return {"before": None, "own": None, "behind": None}
        before = pc.max(place.filter(pc.less_equal(place, self.until)))
        mine = pc.max(own.filter(pc.equal(place, before)))
        behind = pc.min(place.filter(pc.greater(place, self.until)))
        return {"before": before.as_py(), "own": mine.as_py(), "behind": behind.as_py()}
