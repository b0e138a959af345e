"""Reads the log of a row's source into change files, for all tables that it has.

Files first, then the offset behind their events, then the engine goes on: after a kill the same events are read again,
into files of other names, and their rows are known by their place in the log. One job at a time reads a log, once a
minute for all its tables, a continuous one once in ten seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_gddl.contract import codec, codes
from airflow_gddl.contract.codes import (
    SOURCE_LOG_LOST,
    SOURCE_LOG_REFUSED,
    SOURCE_LOG_RESTARTED,
    SOURCE_LOG_STOPPED,
    SOURCE_TABLE_MISSING,
    TABLE_BUSY,
    TABLES_LEFT_OUT,
)
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.file_names import PathFormat
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.postgresql_log import position_of
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.sources.capture import READ, capture_of, properties_of
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.rooms.dialects.debezium.topic_files import Message, TopicFiles
from spark_jobs.rooms.sources import LogEnd
from spark_jobs.rooms.sources.capture.catalog import read_catalog
from spark_jobs.rooms.sources.capture.engine import OF_ENGINE, Batch, Engine, Record
from spark_jobs.rooms.sources.capture.followed import (
    is_other,
    may_be_truncated,
    require_followed,
    require_not_renamed,
    require_still_followed,
    require_unaltered,
)
from spark_jobs.rooms.sources.capture.position import (
    Failure,
    FollowedTable,
    LogPosition,
    Mark,
    Positions,
    read_followed,
    write_followed,
)
from spark_jobs.rooms.sources.capture.postgresql import NO_UTF8, REPLACED, PostgreSQL
from spark_jobs.rooms.sources.capture.postgresql_types import Form, form_of
from spark_jobs.rooms.sources.capture.relation_messages import digest_of, is_altered
from spark_jobs.source_tables import SourceTable, connected, url_of

_WAIT_SECONDS, _FRESH_SECONDS = 600.0, 60.0
_TRIES = 5
_CONTINUOUS_SECONDS = 8.0
"""Less than `continuous.streams.LOG_SECONDS`, so that each table that is due by it reads."""
_RECOVERED = (SOURCE_LOG_LOST, SOURCE_LOG_RESTARTED)
_PROPERTIES = {
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "0",
    "tombstones.on.delete": "false",
    "skipped.operations": "none",
    "heartbeat.interval.ms": "10000",
    "poll.interval.ms": "100",
    "errors.max.retries": "1",
    "retriable.restart.connector.wait.ms": "2000",
    "max.batch.size": "8192",
    "max.queue.size": "16384",
    "max.queue.size.in.bytes": str(64 << 20),
}


def capture_log(run: TableRun, totals: RunTotals) -> None:
    """Write the changes that the source's log has now, of all its tables, as files of their landing folders.

    Raises:
        FatalError: `SOURCE_LOG_REFUSED`, `SOURCE_LOG_LOST`, `SOURCE_LOG_RESTARTED`, `NOT_PUBLISHED`, `JAVA_MISSING`,
            `PACKAGE_MISSING`, `SOURCE_TEXT_INVALID`; as `url_of`, `require_readable`, `require_unaltered`,
            `require_followed`.
        RetriableError: `SOURCE_UNREACHABLE`; `TABLE_BUSY`: another job reads the log for longer than ten minutes.
    """
    with _Source.opened(run) as source:
        totals.warn(source.log.require_ready(run.spec))
        now = source.followed()  # before the log is read: what has changed it is read then
        known = source.positions.read()
        if known is None or _is_to_read(run, source.at(known, now), known):
            with source.claim() as claim:
                known = source.known(opens=False)
                require_not_failed(run, known)
                if _is_to_read(run, source.at(known, now), known):  # else for another table, while this one waited
                    before = source.at(known, now)
                    captured = _Capture(run, source, claim, known)
                    known = captured.carry_out()
                    captured.tell(totals)
                    source.log.require_same_source(known)
                    now = require_unaltered(run, before, source.at(known, source.followed()))
        require_readable(run, known)
        warnings = require_followed(run, source.at(known, now))
        totals.warn(warnings)


def open_log(run: TableRun) -> str:
    """Open the log before the source's rows are read, so that no change is between them; anew where it was lost.

    Returns:
        What distinguishes this log, and the table in it.

    Raises:
        FatalError, RetriableError: as `capture_log`, but for a log that was lost or restarted.
    """
    with _Source.opened(run) as source, source.claim():
        source.log.require_ready(run.spec)
        now = source.followed()
        known = source.known(opens=True)
        if run.spec.name_in_source in known.stopped:  # what the load will have read needs no log
            rest = {name: why for name, why in known.stopped.items() if name != run.spec.name_in_source}
            known = replace(known, stopped=rest)
            source.positions.write(known)
    return f"{known.number} {codec.to_json(source.at(known, now))}"


def follow(run: TableRun, log: str) -> bool:
    """Note that the table is loaded anew, and follows this log (`open_log`) from now on; whether it did not before."""
    now = codec.from_json(FollowedTable, log.partition(" ")[2])
    before = read_followed(run)
    why = "" if before is None else before.unloaded or is_other(run.spec, before, now)
    is_loaded = run.ledger().state.keys is not None
    write_followed(run, replace(now, unloaded=why if is_loaded else ""))
    return before is None or bool(is_other(run.spec, before, now))


def log_end(run: TableRun) -> LogEnd | None:
    """See `SourceReader.log_end`; None: the log was never opened, or read.

    Raises:
        FatalError: `SOURCE_LOG_RESTARTED`, `SOURCE_TABLE_ALTERED`, `SOURCE_LOG_STOPPED`, `SOURCE_TABLE_MISSING`,
            `NOT_PUBLISHED`.
        RetriableError: `SOURCE_UNREACHABLE`.
    """
    if (known := Positions.of(run).read()) is None or not known.offsets:
        return None
    require_readable(run, known)
    with _Source.opened(run) as source:
        source.log.require_same_source(known)
        require_still_followed(run, source.at(known, source.followed()))
    commit = source.log.last_commit(known)
    marked = 0 if known.mark is None else position_of(known.mark.place)
    return LogEnd(number=known.number, commit=commit, until=max(commit or 0, marked), read_at=known.read_at)


def load_forms(run: TableRun, source_table: SourceTable) -> dict[str, Form]:
    """Columns that a load has to write otherwise than by the driver, so that they equal those of the log."""
    from sqlalchemy.dialects.postgresql import DOMAIN  # noqa: PLC0415 - `url_of` has said so if it is missing

    kinds = _log_by(run, source_table.connection).require_published(run.spec).columns
    domains = {column.name for column in source_table.table.columns if isinstance(column.type, DOMAIN)}
    forms = {name: form_of(kind, is_domain=name in domains) for name, kind in kinds.items()}
    return {name: form for name, form in forms.items() if form is not None}


@dataclass(frozen=True)
class _Source:
    """The source of a row, with a connection; `url`: an `sqlalchemy.engine.URL`; `log`: what is its database's own."""

    run: TableRun
    url: Any
    log: PostgreSQL
    positions: Positions

    @classmethod
    @contextmanager
    def opened(cls, run: TableRun) -> Iterator[_Source]:
        url = url_of(str(run.dialect.options.verify_connection), run.runtime.environ)
        connector = str((capture_of(run.spec) or {}).get("connector"))
        if not connector == url.get_backend_name() == READ:  # `gddl validate` has seen the connector alone
            what = (
                f"capture.connector is {connector}, the connection leads to {url.get_backend_name()}: jobs read {READ}"
            )
            remedy = "correct the two, or let Debezium's connector write files or a topic"
            raise FatalError(SOURCE_LOG_REFUSED, what, where=run.spec.source, remedy=remedy)
        with connected(url) as connection:
            yield cls(run, url, _log_by(run, connection), Positions.of(run))

    def followed(self) -> FollowedTable:
        """The row's table now, in no log yet."""
        spec = self.run.spec
        try:
            relation = self.log.require_published(spec).relation
        except FatalError as error:
            if error.code == SOURCE_TABLE_MISSING:
                require_not_renamed(self.run, self.log.sa, self.log.connection)
            raise
        catalog = read_catalog(self.log.sa, self.log.connection, relation, known=self._known_parts)
        return FollowedTable(log="", relation=relation, catalog=catalog)

    def _known_parts(self) -> Collection[str] | None:
        """Partitions of the row's table when it was followed last; None: it was not."""
        before = read_followed(self.run)
        return None if before is None else before.catalog.parts.keys()

    def at(self, known: LogPosition, now: FollowedTable) -> FollowedTable:
        """The same in the log that was read."""
        relations = {now.number, *map(int, now.catalog.parts)}
        name, described = self.run.spec.name_in_source, known.described.of(relations)
        truncates, by = known.truncates.get(name, 0), known.truncated_by.get(name, "")
        return replace(now, log=known.log, truncates=truncates, truncated_by=by, described=described)

    def claim(self) -> Claim:
        runtime, run_id = self.run.runtime, self.run.job.run_id
        return Claim.acquire(runtime.storage, self.positions.folder, run_id, runtime.clock, _WAIT_SECONDS)

    def known(self, *, opens: bool) -> LogPosition:
        """The position, once it is sure that the log goes on there; opened where it was never opened before.

        Args:
            opens: a log that was lost or restarted is opened anew.
        """
        former = self.positions.read()
        if former is None or not former.opened:  # a job was killed while it opened it
            return self._open(former)
        try:
            self.log.require_same(former)
        except FatalError as error:
            if not opens or error.code not in _RECOVERED:
                raise
            return self._open(replace(former, number=former.number + 1))
        return former

    def _open(self, former: LogPosition | None) -> LogPosition:
        number, last = (former.number, former.last) if former else (0, 0)
        server, published = self.log.server(), self.log.published()
        begun = LogPosition(number=number, server=server, opened="", published=published, last=last)
        if former is None:
            self.log.require_absent()
        self.positions.write(begun)  # first: a slot that a killed job has made is then known
        opened = replace(begun, opened=self.log.open())
        self.positions.write(opened)
        return opened


def _log_by(run: TableRun, connection: Any) -> PostgreSQL:
    import sqlalchemy as sa  # noqa: PLC0415 - `url_of` has said so if it is missing

    return PostgreSQL(sa, connection, properties_of(run.spec), run.runtime.limits.open_seconds)


def require_not_failed(run: TableRun, known: LogPosition) -> None:
    """Refuse a log whose reading has just failed, for another table of this job."""
    failure = known.failure
    if failure is None or failure.run != run.job.run_id or not _is_fresh(run, failure.at):
        return
    family = FatalError if failure.fatal else RetriableError
    raise family(codes.of(failure.code), failure.what, where=run.spec.source, remedy=failure.remedy)


def require_readable(run: TableRun, known: LogPosition) -> None:
    """
    Raises:
        FatalError: `SOURCE_LOG_STOPPED`: changes of the table were left out, for the engine could not read one.
    """
    if (why := known.stopped.get(run.spec.name_in_source)) is None:
        return
    what = f"a change of {run.spec.name_in_source} can't be read, and those after it were left out: {why}"
    remedy = f"correct the value in the source, then `gddl load --again --table {run.spec.table}`"
    raise FatalError(SOURCE_LOG_STOPPED, what, where=run.spec.name_in_source, remedy=remedy)


def _is_to_read(run: TableRun, now: FollowedTable, known: LogPosition) -> bool:
    """Whether the log is to be read for this table, as it is now: this job may just have read it for another."""
    is_read = known.read_by == run.job.run_id and known.read_at and _is_fresh(run, known.read_at)
    return not is_read or may_be_truncated(run, now)


def _is_fresh(run: TableRun, at: str) -> bool:
    age = (run.runtime.clock() - datetime.fromisoformat(at)).total_seconds()
    return age < (_FRESH_SECONDS if run.job.options.continuous is None else _CONTINUOUS_SECONDS)


@dataclass
class _Capture:
    run: TableRun
    source: _Source
    claim: Claim
    known: LogPosition
    changes: int = 0
    is_unencoded: bool = False
    unnamed: set[str] = field(default_factory=set)

    def carry_out(self) -> LogPosition:
        """Read until where the log is now, again where tables were altered meanwhile.

        Raises:
            RetriableError: `TABLE_BUSY`: they are altered each time.
        """
        began = iso(self.run.runtime.clock())
        self.is_unencoded = self.source.log.is_unencoded()
        if not any(self._read() for _ in range(_TRIES)):
            what = f"tables of the source were altered each of {_TRIES} times while its log was read"
            raise RetriableError(TABLE_BUSY, what, where=self.run.spec.source, remedy="run it again once they are not")
        self.known = replace(self.known, read_by=self.run.job.run_id, read_at=began, failure=None)
        self._store()
        return self.known

    def _read(self) -> bool:
        """Read until a mark, without tables of which the engine can't read a change; false: tables were altered."""
        log = self.source.log
        versions = log.versions()
        digest, mark = digest_of(versions), log.mark()
        if digest != self.known.versions:
            self.known = replace(self.known, described=log.described(self.known.described, versions, mark))
        while True:
            try:
                if not self._read_until(mark, lambda: not is_altered(versions, log.versions())):
                    return False
                break
            except GddlError as error:
                if error.code not in OF_ENGINE:
                    raise
                if not self._has_stopped(mark, error.what):
                    self._note_failure(error)
                    raise
        self.known = replace(self.known, versions=digest)
        return True

    def _read_until(self, mark: Mark, is_same: Callable[[], bool]) -> bool:
        """False: what comes with the mark was not taken, for `is_same` is false behind it."""
        held: list[Record] = []
        with self._engine() as engine:
            for batch in engine.batches():
                is_end = self.source.log.has_reached(batch, mark, self.run.spec.source)
                if is_end and not is_same():
                    break
                every = [*held, *batch.records]
                # A place is in one file: equal rows of it are as many as a file has. What is held is read again by the
                # next run, for the offset that is stored is before it.
                whole = len(held) + batch.whole if batch.whole else 0
                self._write(every[:whole])
                held = every[whole:]
                self._keep(batch, mark if is_end else None)
                if is_end:
                    engine.stop()
                    return True
        return False

    def _has_stopped(self, mark: Mark, said: str) -> bool:
        """Whether a change of one table has ended the engine; it is left out from now on."""
        table = self.source.log.table_of_failure(mark, said)
        if table is None or table in self.known.stopped:
            return False
        self.known = replace(self.known, stopped={**self.known.stopped, table: said})
        self._store()
        return True

    def _note_failure(self, error: GddlError) -> None:
        """Note why the engine has ended, so that the job's other tables do not start it once more in vain."""
        self.source.log.server()  # raises where the database does not respond
        run, at, is_fatal = self.run.job.run_id, iso(self.run.runtime.clock()), isinstance(error, FatalError)
        failure = Failure(run=run, at=at, code=error.code, what=error.what, remedy=error.remedy, fatal=is_fatal)
        self.known = replace(self.known, failure=failure)
        self._store()

    def tell(self, totals: RunTotals) -> None:
        """Report what was written, and what was not."""
        if self.unnamed:
            text = "changes of tables whose names no row can have were left out; rename the tables, or publish them not"
            names = tuple(sorted(self.unnamed)[:5])
            totals.warn([RunWarning(code=TABLES_LEFT_OUT, message=text, count=len(self.unnamed), sample=names)])
        if self.changes:
            self.run.report("changes of the source written", rows=self.changes)

    def _engine(self) -> Engine:
        properties, socket = self.source.log.properties(self.source.url, is_unencoded=self.is_unencoded)
        name = self.run.spec.source
        stopped = {"table.exclude.list": ",".join(map(_pattern, self.known.stopped))} if self.known.stopped else {}
        return Engine(
            properties={**_PROPERTIES, **properties, **stopped, "name": name, "topic.prefix": name},
            offsets=self.known.offsets, go_on=self.run.go_on, environ=self.run.runtime.environ, unix_socket=socket,
        )  # fmt: skip

    def _write(self, events: Sequence[Record]) -> None:
        """Write files of events, one of a table, under a number that is greater than all before."""
        number = max(self.known.last + 1, int(self.run.runtime.clock().timestamp() * 1_000_000))
        by_table: dict[str, list[Record]] = {}
        truncates: dict[str, list[str]] = {}
        for record in events:
            table, transaction = table_of(record.value)
            if table:
                by_table.setdefault(table, []).append(record)
            if transaction is not None:
                truncates.setdefault(table, []).append(transaction)
        for table, records in by_table.items():
            if table_name_fault(table):  # it can have no row
                self.unnamed.add(table)
                continue
            if table in truncates:
                self._note_truncates(table, truncates[table])
            self._write_table(table, records, number)
            self.changes += len(records)
        self.known = replace(self.known, last=number)

    def _note_truncates(self, table: str, transactions: Sequence[str]) -> None:
        count = self.known.truncates.get(table, 0) + len(transactions)
        self.known = replace(
            self.known, truncates={**self.known.truncates, table: count},
            truncated_by={**self.known.truncated_by, table: transactions[-1]},
        )  # fmt: skip

    def _write_table(self, table: str, records: Sequence[Record], number: int) -> None:
        topic, storage = records[0].topic, self.run.runtime.storage
        values = [unproven(one.value) if self.is_unencoded else one.value for one in records]
        messages = [
            Message(number + at, 0, one.key, value) for at, (one, value) in enumerate(zip(records, values, strict=True))
        ]
        log = f"_log{self.known.number:04d}" if self.known.number else ""
        for file in TopicFiles(topic, None).of(messages, follows=False):
            name = f"{topic}+0+{number:020d}_{number + len(records)}_{file.digest}{log}{file.ending}"
            path = join(self._folder(table), name)
            self.claim.check()
            storage.create(path, file.content)
            storage.sync(path)

    def _folder(self, table: str) -> str:
        spec, layout = self.run.spec, self.run.layout
        root = layout.landing.removesuffix(spec.name_in_source.replace(".", "/", 1))
        folder = join(root.rstrip("/"), table.replace(".", "/", 1))
        if (text := self.run.dialect.options.path_format) is None:
            return folder
        return join(folder, PathFormat.parsed(text).folder(self.run.runtime.clock()))

    def _keep(self, batch: Batch, mark: Mark | None) -> None:
        offsets = {**self.known.offsets, **batch.offsets}
        self.known = replace(self.known, offsets=offsets, mark=mark or self.known.mark)
        self._store()

    def _store(self) -> None:
        self.claim.check()
        self.source.positions.write(self.known)


def _pattern(table: str) -> str:
    """A regular expression of Java's for this name, without the comma that ends one in a list."""
    return re.escape(table).replace(",", r"\x2c")


_SOURCE, _PARTS, _TRUNCATE = b'"source":{', json.JSONDecoder(), '"op":"t"'


def table_of(value: bytes | None) -> tuple[str, str | None]:
    """`schema.name` of an event, by its own `source`, since topics replace characters; empty: no change of a row.

    Returns:
        That, and the transaction of a table's `TRUNCATE`; None: the event is none.
    """
    at = (value or b"").rfind(_SOURCE)
    if value is None or at < 0:
        return "", None
    text = value[at + len(_SOURCE) - 1 :].decode("utf-8", "replace")
    source, end = _PARTS.raw_decode(text)
    schema, name = source.get("schema"), source.get("table")
    # The operation stands behind the source.
    transaction = str(source.get("txId") or "") if _TRUNCATE in text[end:] else None
    return f"{schema}.{name}" if schema and name else "", transaction


def unproven(value: bytes | None) -> bytes | None:
    """The event with texts that are none where bytes were replaced, so that its row is quarantined for its column."""
    if value is None or REPLACED not in value:
        return value
    schema, mark, payload = value.partition(b',"payload":')
    return schema + mark + payload.replace(REPLACED, NO_UTF8)
