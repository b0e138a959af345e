"""`gddl load`: the full load of a table read from its source database, in the files that AWS DMS would write.

`LOAD00000000.parquet`, which has no rows, is written first: what the CDC service writes after it belongs to this load.
Then each range of keys becomes one file, by a short query of its own. Changes during the load are in the CDC service's
files, which come after the load in order, so it must have captured the table since before the load
(docs/initial-load.md, docs/decisions/sources.md).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.capture import capture_of
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.names import is_kept
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.spec import InitialLoad
from airflow_gddl.contract.sql_types import MAX_PRECISION
from airflow_gddl.contract.table_spec import lowered
from airflow_gddl.stores import Storage
from spark_jobs.actions.source_values import (
    INSTANT,
    PLAIN,
    ParquetContent,
    SourceColumn,
    is_read_as_text,
    is_written_as_text,
)
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.dialects.dms import name_in_files
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.load_progress import FOLDER, LoadedRange, LoadProgress, read_progress, write_progress
from spark_jobs.plan.loaded_transactions import LoadedTransactions, place_of
from spark_jobs.sources import number_of_log, reader_of
from spark_jobs.verification import SourceTable, opened, url_of

_ROWS_AT_ONCE = 10_000
_AFTER_DIGITS = ":"
"""Load files sort after it, change files and folders of dates before it."""
_MARK = b"gddl_load"
"""Key of the metadata of a file: the load and the number of the file in it."""


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Write the files of a full load; the next run takes them. A load that was interrupted is resumed.

    Raises:
        FatalError: `INITIAL_LOAD_REFUSED`, `INITIAL_LOAD_VALUE`; as `url_of` and `opened`.
        RetriableError: `TABLE_BUSY`: another process loads the table; `SOURCE_UNREACHABLE`, `JOB_CANCELLED`.
    """
    _require_possible(run)
    runtime, folder = run.runtime, join(run.layout.state, FOLDER)
    settings = run.spec.initial_load or InitialLoad()
    with Claim.acquire(runtime.storage, folder, run.job.run_id, runtime.clock, run.job.options.wait_seconds) as claim:
        found = read_progress(runtime.storage, run.layout.state)
        resumed = found is not None and found.ended is None
        if not resumed:
            _require_wanted(run, found)
        log = reader_of(run.spec).open_log(run)  # before a row is read: what is committed meanwhile is in it
        resumed = resumed and found is not None and found.log == log
        source = Source.of(run, settings)
        totals.warn(source.warnings())
        done = _Load(run, source, settings, claim, found if resumed else None, found, log).carry_out()
    rows = [one.rows or 0 for one in done.ranges]
    details = {
        "rows": sum(rows), "files": len(rows), "resumed": resumed, "began": done.began, "position": done.position,
        "keys": list(done.keys),
    }  # fmt: skip
    return run.result(totals, status="succeeded", details=details)


def _require_possible(run: TableRun) -> None:
    """Refuse tables whose files would not be understood, or not be the whole of the table."""
    spec, what = run.spec, ""
    if not DIALECTS.get(spec.dialect).takes_source_rows:
        what = f"its dialect {spec.dialect} takes no load from the source"
        remedy = "let the CDC service take a snapshot"
    elif spec.shards:
        what, remedy = "the table has several sources", "let the CDC service load each of them"
    elif not (run.job.options.source_connection or run.dialect.options.verify_connection):
        what, remedy = "no connection to the source is named", "set connection in the row's source"
    if what:
        raise FatalError("INITIAL_LOAD_REFUSED", f"{spec.table}: {what}", where=spec.table, remedy=remedy)


def _require_wanted(run: TableRun, former: LoadProgress | None) -> None:
    """Refuse a second load that was not confirmed, and one beside load files of another writer."""
    spec, storage = run.spec, run.runtime.storage
    mine = {_file_name(number) for number in range(len(former.ranges) + 1)} if former else set()
    names = (item.path.rpartition("/")[2] for item in storage.list(run.layout.landing, _AFTER_DIGITS))
    foreign = sorted(n for n in names if n not in mine and (known := run.dialect.classify(n)) and known[0] == "load")
    if foreign:
        what = f"{spec.table}: the landing folder has {len(foreign)} load files of another writer, e.g. {foreign[0]}"
        remedy = "remove them there if the source is to be loaded again, or run `gddl run` to load them"
        raise FatalError("INITIAL_LOAD_REFUSED", what, where=run.layout.landing, remedy=remedy)
    if run.ledger().state.keys is not None and not run.job.options.confirmed:
        what = f"{spec.table} is loaded already; rows that the source lacks would be removed"
        raise FatalError("INITIAL_LOAD_REFUSED", what, where=spec.table, remedy="confirm it by --again")


@dataclass
class RowRate:
    """Bounds rows a second over all connections; null: any number."""

    most: int | None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _next: float = 0.0

    def take(self, rows: int) -> None:
        """Wait until so many rows may be read."""
        if self.most is None:
            return
        with self._lock:
            now = self.clock()
            pause = max(0.0, self._next - now)
            self._next = max(self._next, now) + rows / self.most
        self.sleep(pause)


@dataclass
class _Load:
    """One load, from the start or resumed.

    Attributes:
        former: the load before it; null: there was none.
        log: see `open_log`.
        _began: seconds, when this process began; `_found`: rows that were written before.
    """

    run: TableRun
    source: Source
    settings: InitialLoad
    claim: Claim
    resumed: LoadProgress | None
    former: LoadProgress | None
    log: str
    _rate: RowRate = field(init=False)
    _progress: LoadProgress = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _found: int = 0
    _failed: threading.Event = field(default_factory=threading.Event)

    def carry_out(self) -> LoadProgress:
        self._rate = RowRate(self.settings.max_rows_per_second)
        if self.resumed is not None and self.resumed.keys == self.source.keys:
            self._progress, self._found = self.resumed, self.resumed.rows
        else:
            self._begin()
        self._write(0, lambda: iter(()))
        with ThreadPoolExecutor(self.settings.parallel, thread_name_prefix="load") as pool:
            self._fill(pool)
        self._remove_older()
        self._keep(ended=iso(self.run.runtime.clock()))
        return self._progress

    def _begin(self) -> None:
        former = self.former
        before = max(former.before, len(former.ranges)) if former else 0
        self._progress = LoadProgress(
            began=iso(self.run.runtime.clock()), keys=self.source.keys, before=before, position=self.source.position,
            log=self.log,
        )  # fmt: skip
        self._keep()
        reader_of(self.run.spec).follow(self.run, self.log)

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        """Write the files that are missing, while the ranges after them are found."""
        pending: dict[Future[int], int] = {}
        try:
            for number in self._missing():
                while len(pending) >= 2 * self.settings.parallel:
                    self._note(pending)
                pending[pool.submit(self._load_range, number, self._progress.ranges[number - 1])] = number
            while pending:
                self._note(pending)
        except BaseException:
            self._failed.set()  # else the pool would wait until the others have read their ranges
            for future in pending:
                future.cancel()
            raise

    def _missing(self) -> Iterator[int]:
        """Numbers of files to write; ranges are found as they are asked for."""
        number = 0
        while number < len(self._progress.ranges) or not self._progress.is_divided:
            if number == len(self._progress.ranges):
                self._divide()
            number += 1
            if self._progress.ranges[number - 1].rows is None:
                yield number

    def _divide(self) -> None:
        """Find the next range."""
        ranges = self._progress.ranges
        after = ranges[-1].to if ranges else None
        to = self.source.boundary(after, self.settings.chunk_rows) if self._progress.keys else None
        self._keep(ranges=(*ranges, LoadedRange(after=after, to=to)), is_divided=to is None)

    def _note(self, pending: dict[Future[int], int]) -> None:
        """Wait for a file, and note that it is written."""
        done, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        self.run.go_on()
        for future in done:
            number, rows = pending.pop(future), future.result()
            ranges = list(self._progress.ranges)
            ranges[number - 1] = replace(ranges[number - 1], rows=rows)
            self._keep(ranges=tuple(ranges))
            self.run.report(f"loaded from the source{self._outlook()}", number, self._progress.rows)

    def _outlook(self) -> str:
        """How much is loaded, and how long the rest takes at this speed, by the database's own estimate of its rows."""
        done, every = self._progress.rows, self.source.rows_about
        if every is None or done >= every or done <= self._found:
            return ""
        left = (time.monotonic() - self._began) / (done - self._found) * (every - done)
        return (
            f", about {100 * done // every} %, {left / 60:.0f} min left"
            if left >= 60
            else f", about {100 * done // every} %"
        )

    def _load_range(self, number: int, within: LoadedRange) -> int:
        return self._write(number, lambda: self.source.rows(within.after, within.to, seen=self._keep_seen))

    def _keep_seen(self, found: LoadedTransactions) -> None:
        """Before the rows are written, so that no file is there without it."""
        self._keep(seen=replace(found, log=number_of_log(self.log)))

    def _write(self, number: int, rows: Callable[[], Iterator[pa.RecordBatch]]) -> int:
        """Write a file unless this load has written it; returns its rows.

        A file that is there is not written again: with other content it would open a generation.
        """
        path = join(self.run.layout.landing, _file_name(number))
        mark = f"{self._progress.began} {number}".encode()
        storage = self.run.runtime.storage
        if (there := _rows_of(storage, path, mark)) is not None:
            return there
        content = ParquetContent(self.source.schema.with_metadata({_MARK: mark}))
        for batch in rows():
            self.run.go_on()
            if self._failed.is_set():
                raise CancelledError
            self._rate.take(batch.num_rows)
            content.add(batch)
        self.claim.check()
        storage.write(path, content.finished())
        return content.rows

    def _remove_older(self) -> None:
        """Remove files of the load before, which was divided into more ranges."""
        names = [_file_name(n) for n in range(len(self._progress.ranges) + 1, self._progress.before + 1)]
        if names:
            self.run.runtime.storage.delete(*(join(self.run.layout.landing, name) for name in names))

    def _keep(self, **changes: Any) -> None:
        self.claim.check()
        self._progress = replace(self._progress, **changes)
        write_progress(self.run.runtime.storage, self.run.layout.state, self._progress)


def _file_name(number: int) -> str:
    return f"LOAD{number:08X}.parquet"


def _rows_of(storage: Storage, path: str, mark: bytes) -> int | None:
    """Rows of a file with this mark; null: there is none."""
    if storage.stat(path) is None:
        return None
    with storage.open_input(path) as stream:
        try:
            footer = pq.read_metadata(stream)
        except pa.ArrowException:
            return None
        return int(footer.num_rows) if (footer.metadata or {}).get(_MARK) == mark else None


_KINDS: Mapping[str, tuple[type, Any, Any]] = {
    "o": (bool, str, "True".__eq__), "i": (int, str, int), "s": (str, str, str), "n": (Decimal, str, Decimal),
    "f": (float, repr, float),
    "t": (datetime, datetime.isoformat, datetime.fromisoformat), "d": (date, date.isoformat, date.fromisoformat),
    "u": (UUID, str, UUID), "b": (bytes, bytes.hex, bytes.fromhex),
}  # fmt: skip
"""Types of key values, each before those that it is, too; how they become text, and are read from it."""


def key_text(values: Sequence[Any]) -> str | None:
    """A key as JSON, a list of pairs of type and text; null: a value has a type that ranges are not made of."""
    found = []
    for value in values:
        kind = next((k for k, (known, _, _) in _KINDS.items() if isinstance(value, known)), None)
        if kind is None:
            return None
        found.append((kind, _KINDS[kind][1](value)))
    return json.dumps(found)


def key_values(text: str) -> tuple[Any, ...]:
    """The key that `key_text` has written."""
    return tuple(_KINDS[kind][2](value) for kind, value in json.loads(text))


def arrow_type(column: Any, kind: str, database: str) -> pa.DataType | None:
    """The type of a column's values in a file; null: the database writes them as text.

    Args:
        column: of SQLAlchemy, reflected.
        kind: as in `SourceType`.
        database: SQLAlchemy's name of it.
    """
    from sqlalchemy import types as T  # noqa: PLC0415 - imported when needed

    of_column = column.type
    if kind == "decimal":
        precision, scale = of_column.precision, of_column.scale
        fits = precision is not None and 0 <= (scale or 0) <= precision <= MAX_PRECISION
        return pa.decimal128(precision, scale or 0) if fits else None
    if kind == "whole":
        if getattr(of_column, "unsigned", False) or database == "sqlite":
            return pa.decimal128(20, 0) if isinstance(of_column, T.BigInteger) and database != "sqlite" else pa.int64()
        widths = ((T.SmallInteger, pa.int16()), (T.BigInteger, pa.int64()))
        return next((made for known, made in widths if isinstance(of_column, known)), pa.int32())
    if isinstance(of_column, T.CHAR):
        return pa.string()
    if isinstance(of_column, (T.BINARY, T.VARBINARY)):
        return pa.binary()
    return PLAIN.get(kind)


def _in_files(run: TableRun, column: str) -> str:
    """Columns of the dialect `dms` alone may have the names of its own."""
    return name_in_files(column, run.dialect.op_column) if run.spec.dialect == "dms" else column


def _is_timestamp(column: Any) -> bool:
    from sqlalchemy import types as T  # noqa: PLC0415 - imported when needed

    return isinstance(column.type, T.TIMESTAMP)


Seen = Callable[[LoadedTransactions], None]
Conditions = Callable[[Any, Any], Sequence[Any]]
"""Conditions on the rows of a table, made of SQLAlchemy and its table."""


def unconditional(_sa: Any, _table: Any) -> Sequence[Any]:
    """All rows."""
    return ()


@dataclass(frozen=True)
class Source:
    """The table in its database, with a connection for each statement.

    Attributes:
        keys: its primary key, whose ranges become files; empty: it has none, or one of a type without ranges.
        rows_about: number of its rows by the database's statistics; null: they have none.
        in_utc: MySQL's columns of type TIMESTAMP are read as instants.
        at_once: all rows are read in one snapshot, for the transactions in it tell which changes are in the load.
    """

    url: Any
    table: str
    settings: InitialLoad
    columns: tuple[SourceColumn, ...]
    keys: tuple[str, ...]
    position: str
    rows_about: int | None = None
    in_utc: bool = False
    at_once: bool = False

    @classmethod
    def of(cls, run: TableRun, settings: InitialLoad) -> Source:
        """
        Raises:
            FatalError: as `url_of` and `opened`; `INITIAL_LOAD_REFUSED`: it is the replica of a database, which lags
                behind, and the table is loaded already.
            RetriableError: `SOURCE_UNREACHABLE`.
        """
        name = run.job.options.source_connection or run.dialect.options.verify_connection
        url = url_of(str(name), run.runtime.environ)
        spec = run.spec
        schema, table = spec.name_in_source.split(".", 1)
        with opened(url, schema, table) as found:
            database, kinds = found.connection.dialect.name, found.types
            in_utc = run.dialect.zoned_timestamps and database in ("mysql", "mariadb")
            forms = reader_of(run.spec).load_forms(run, found)
            columns = tuple(
                SourceColumn(
                    column.name, _in_files(run, column.name), kind or pa.string(), kind is None,
                    kind is None or (bool(sql) and is_written_as_text(kind))
                    or (not sql and is_read_as_text(kinds[column.name].kind, database)), sql,
                )
                for column in found.table.columns
                if is_kept(column.name, spec) or column.name.lower() in lowered(spec.sequence_by)
                for kind, sql in [
                    forms.get(column.name)
                    or (INSTANT if in_utc and _is_timestamp(column)
                    else arrow_type(column, kinds[column.name].kind, database), "")
                ]
            )  # fmt: skip
            _require_primary(run, found)
            keys = tuple(column.name for column in found.table.primary_key.columns)
            ranged = all(column.name not in keys or not column.as_text for column in columns)
            at_once = not spec.keys and run.dialect.names_transactions and is_primary(found.connection)
            position, rows = log_position(found.connection), estimated_rows(found.connection, schema, table)
        keys = keys if ranged and not at_once else ()
        return cls(url, spec.name_in_source, settings, columns, keys, position, rows, in_utc, at_once)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field() for column in self.columns])

    def warnings(self) -> tuple[RunWarning, ...]:
        texts = tuple(column.name for column in self.columns if column.as_text)
        if not texts:
            return ()
        message = "columns whose types have no equal are loaded as text; options.types gives them one"
        return (RunWarning(code="INITIAL_LOAD_TEXT", message=message, count=len(texts), sample=texts[:5]),)

    def boundary(self, after: str | None, rows: int, within: Conditions = unconditional) -> str | None:
        """The last key of the next `rows` rows; null: so many do not follow."""
        with self._opened() as (sa, found):
            keys = [found.table.c[name] for name in self.keys]
            shown = [self._selected(sa, found.table, column) for column in self._key_columns]
            wanted = sa.select(*shown).where(*_beyond(sa, keys, after), *within(sa, found.table))
            row = found.connection.execute(wanted.order_by(*keys).offset(rows - 1).limit(1)).first()
        return None if row is None else key_text(tuple(row))

    def rows(
        self, after: str | None, to: str | None, within: Conditions = unconditional, seen: Seen = lambda _: None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a range in the order of their keys.

        Args:
            seen: is given the transactions that are in them, before the first row, where the table is read at once.
        """
        with self._opened() as (sa, found):
            if self.at_once:
                seen(transactions_seen(found.connection))
            keys = [found.table.c[name] for name in self.keys]
            wanted = sa.select(*(self._selected(sa, found.table, column) for column in self.columns))
            limits = (*_beyond(sa, keys, after), *_up_to(sa, keys, to), *within(sa, found.table))
            wanted = wanted.where(*limits).order_by(*keys)
            streamed = found.connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(wanted)
            for rows in streamed.partitions():
                values = zip(*rows, strict=True)
                arrays = [column.array(one) for column, one in zip(self.columns, values, strict=True)]
                fields = [column.field(one.type) for column, one in zip(self.columns, arrays, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    @staticmethod
    def _selected(sa: Any, table: Any, column: SourceColumn) -> Any:
        found = table.c[column.name]
        if column.sql:
            quoted = '"' + column.name.replace('"', '""') + '"'
            found = sa.literal_column(column.sql.replace("{}", quoted))
        return (sa.cast(found, sa.String) if column.read_as_text else found).label(column.name)

    @property
    def _key_columns(self) -> list[SourceColumn]:
        return [next(column for column in self.columns if column.name == key) for key in self.keys]

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, SourceTable]]:
        import sqlalchemy as sa  # noqa: PLC0415 - `url_of` has said so if it is missing

        with opened(self.url, *self.table.split(".", 1)) as found:
            limit = statement_limit(found.connection.dialect, float(seconds(self.settings.statement_timeout)))
            if limit:
                found.connection.execute(sa.text(limit))
            if self.in_utc:
                found.connection.execute(sa.text("SET time_zone = '+00:00'"))
            yield sa, found


def is_primary(connection: Any) -> bool:
    """Whether it is a PostgreSQL and no standby, whose snapshots do not name the transactions that are open."""
    import sqlalchemy as sa  # noqa: PLC0415 - see above

    is_postgresql = connection.dialect.name == "postgresql"
    return is_postgresql and not connection.execute(sa.text("SELECT pg_is_in_recovery()")).scalar()


def transactions_seen(connection: Any) -> LoadedTransactions:
    """Those that all reads of PostgreSQL's connection see, in its transaction."""
    import sqlalchemy as sa  # noqa: PLC0415 - see above

    snapshot = connection.execute(sa.text("SELECT CAST(pg_current_snapshot() AS text)")).scalar()
    upto = connection.execute(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)")).scalar()
    return LoadedTransactions(snapshot=str(snapshot), upto=place_of(str(upto)))


def statement_limit(dialect: Any, limit: float) -> str:
    """The statement that limits how long a query may take; empty where the database has none that is known here."""
    if dialect.name == "postgresql":
        return f"SET LOCAL statement_timeout = {int(limit * 1000)}"
    if dialect.name in ("mysql", "mariadb"):
        is_mariadb = getattr(dialect, "is_mariadb", False)
        return f"SET max_statement_time = {limit}" if is_mariadb else f"SET max_execution_time = {int(limit * 1000)}"
    return ""


_POSITIONS = {
    "postgresql": "SELECT CAST(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
    "ELSE pg_current_wal_lsn() END AS text)",
    "mysql": "SELECT @@gtid_executed",
    "mariadb": "SELECT @@gtid_current_pos",
}


def log_position(connection: Any) -> str:
    """Where the source's log is, as the database writes it; empty where that is not known here."""
    import sqlalchemy as sa  # noqa: PLC0415 - see above

    dialect = connection.dialect
    name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
    found = connection.execute(sa.text(_POSITIONS[name])).scalar() if name in _POSITIONS else None
    return str(found or "")


_COUNTS = {
    "postgresql": "SELECT CAST(reltuples AS bigint) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = :schema AND c.relname = :name AND reltuples >= 0",
    **dict.fromkeys(
        ("mysql", "mariadb"),
        "SELECT table_rows FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name",
    ),
}


def estimated_rows(connection: Any, schema: str, name: str) -> int | None:
    """Rows of a table by the database's statistics; null where it has none, or they are not known here."""
    import sqlalchemy as sa  # noqa: PLC0415 - see above

    statement = _COUNTS.get(connection.dialect.name)
    found = (
        None if statement is None else connection.execute(sa.text(statement), {"schema": schema, "name": name}).scalar()
    )
    return int(found) if found else None


def _require_primary(run: TableRun, found: SourceTable) -> None:
    """Refuse a standby where it may lack changes that are older than the load's first file.

    The table was loaded before, or jobs have read the log already.
    """
    is_loaded = run.ledger().state.keys is not None
    if found.connection.dialect.name != "postgresql" or not (is_loaded or capture_of(run.spec)):
        return
    if not is_primary(found.connection):
        why = "is loaded already" if is_loaded else "is followed by jobs"
        what = f"{run.spec.table} {why}, and its connection leads to a standby, which may lag behind"
        remedy = "load it from the primary: name its connection by --source-connection"
        raise FatalError("INITIAL_LOAD_REFUSED", what, where=run.spec.table, remedy=remedy)


def _beyond(sa: Any, keys: Sequence[Any], after: str | None) -> list[Any]:
    """Keys after this one, compared left to right; written out, which every database understands."""
    return [] if after is None else [greater_key(sa, keys, key_values(after))]


def _up_to(sa: Any, keys: Sequence[Any], to: str | None) -> list[Any]:
    return [] if to is None else [sa.not_(greater_key(sa, keys, key_values(to)))]


def greater_key(sa: Any, keys: Sequence[Any], values: Sequence[Any]) -> Any:
    """Whether a key, or its first columns, is greater than these values, compared left to right."""
    first = _bound(sa, keys[0], values[0])
    if len(keys) == 1:
        return keys[0] > first
    rest = sa.and_(keys[0] == first, greater_key(sa, keys[1:], values[1:]))
    # The first condition alone lets the database use its index.
    return sa.and_(keys[0] >= first, sa.or_(keys[0] > first, rest))


def _bound(sa: Any, key: Any, value: Any) -> Any:
    """A value to compare with; the text of a number or time becomes one in the database."""
    is_text = isinstance(value, str) and isinstance(key.type, (sa.Date, sa.DateTime, sa.Numeric))
    return sa.cast(sa.literal(value, sa.String()), key.type) if is_text else value
