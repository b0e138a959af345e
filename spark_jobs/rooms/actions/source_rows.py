"""Rows of a table read from its source database: ranges of its primary key, a short query each, as Arrow batches.

Used by `gddl load` (`actions.initial_load`) and by `gddl resync` of some rows (`actions.resync_rows`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from airflow_gddl.contract.codes import INITIAL_LOAD_REFUSED, INITIAL_LOAD_TEXT
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import is_kept, rows_for
from airflow_gddl.contract.postgresql_log import position_of
from airflow_gddl.contract.result import Warnings
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.contract.spec import InitialLoad
from airflow_gddl.contract.sql_types import MAX_PRECISION
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.batch import notices
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.rooms.actions.source_values import INSTANT, PLAIN, SourceColumn, is_read_as_text, is_written_as_text
from spark_jobs.rooms.dialects.dms import name_in_files
from spark_jobs.rooms.sources import reader_of
from spark_jobs.source_tables import SourceTable, as_written, connected, in_bytes, opened, quoted, url_of

_ROWS_AT_ONCE = 10_000


@dataclass
class RowRate:
    """Bounds rows a second over all connections; None: any number."""

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


_KEY_TYPES: Mapping[str, tuple[type, Any, Any]] = {
    "o": (bool, str, "True".__eq__), "i": (int, str, int), "s": (str, str, str), "n": (Decimal, str, Decimal),
    "f": (float, repr, float),
    "t": (datetime, datetime.isoformat, datetime.fromisoformat), "d": (date, date.isoformat, date.fromisoformat),
    "u": (UUID, str, UUID), "b": (bytes, bytes.hex, bytes.fromhex),
}  # fmt: skip
"""Types of key values, each before those that it is, too; how they become text, and are read from it."""


def key_text(values: Sequence[Any]) -> str | None:
    """A key as JSON, a list of pairs of type and text; None: a value has a type that ranges are not made of."""
    pairs = []
    for value in values:
        kind = next((k for k, (known, _, _) in _KEY_TYPES.items() if isinstance(value, known)), None)
        if kind is None:
            return None
        pairs.append((kind, _KEY_TYPES[kind][1](value)))
    return json.dumps(pairs)


def key_values(text: str) -> tuple[Any, ...]:
    """The key that `key_text` has written."""
    return tuple(_KEY_TYPES[kind][2](value) for kind, value in json.loads(text))


def arrow_type(column: Any, kind: str, database: str, *, in_utc: bool) -> pa.DataType | None:
    """The type of a column's values in a file; None: the database writes them as text.

    Args:
        column: of SQLAlchemy, reflected.
        kind: as in `SourceType`.
        database: SQLAlchemy's name of it.
        in_utc: see `SourceRows`.
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
    special = {T.CHAR: pa.string(), T.BINARY: pa.binary(), T.VARBINARY: pa.binary()}
    special |= {T.TIMESTAMP: INSTANT} if in_utc else {}
    return next((made for known, made in special.items() if isinstance(of_column, known)), PLAIN.get(kind))


def _column_of(
    run: TableRun, source_table: SourceTable, column: Any, made: tuple[pa.DataType, str] | None, *, in_utc: bool
) -> SourceColumn:
    """How a column is read.

    Args:
        column: of SQLAlchemy, reflected.
        made: type and SQL of its values where they are not read as they are.
    """
    name, database = column.name, source_table.connection.dialect.name
    # Columns of the dialect `dms` alone may have the names of its own.
    in_files = name_in_files(name, run.dialect.op_column) if run.spec.dialect == "dms" else name
    kind_there = source_table.types[name].kind
    kind, sql = made or (arrow_type(column, kind_there, database, in_utc=in_utc), "")
    if source_table.is_unencoded and (kind is None or pa.types.is_string(kind)) and not sql:
        return SourceColumn(name, in_files, pa.string(), kind is None, False, in_bytes(name), in_bytes=True)
    if kind is None:
        return SourceColumn(name, in_files, pa.string(), True, True, sql)
    read_as_text = is_written_as_text(kind) if sql else is_read_as_text(kind_there, database)
    return SourceColumn(name, in_files, kind, False, read_as_text, sql)


Seen = Callable[[LoadedTransactions], None]
Conditions = Callable[[Any, Any], Sequence[Any]]
"""Conditions on the rows of a table, made of SQLAlchemy and its table."""


@dataclass(frozen=True)
class SourceRows:
    """The table in its database, with a connection for each statement.

    Attributes:
        rate: at most so many rows are read.
        keys: its primary key, whose ranges become files; empty: it has none, or one of a type without ranges.
        rows_about: number of its rows by the database's statistics; None: they have none.
        in_utc: MySQL's columns of type TIMESTAMP are read as instants.
        at_once: all rows are read in one snapshot, for the transactions in it tell which changes are in the load.
        seen: transactions that every read sees; None: the database, or the dialect, names none.
        left_out: names of the table's columns that the row does not let in.
    """

    url: Any
    table: str
    settings: InitialLoad
    rate: RowRate
    columns: tuple[SourceColumn, ...]
    keys: tuple[str, ...]
    position: str
    rows_about: int | None = None
    in_utc: bool = False
    at_once: bool = False
    seen: LoadedTransactions | None = None
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, run: TableRun) -> SourceRows:
        """
        Raises:
            FatalError: as `url_of` and `opened`; `INITIAL_LOAD_REFUSED`: it is the replica of a database, which lags
                behind, and the table is loaded already.
            RetriableError: `SOURCE_UNREACHABLE`.
        """
        url = url_of(run.source_connection, run.runtime.environ)
        spec, settings = run.spec, run.spec.initial_load or InitialLoad()
        with opened(url, spec.name_in_source) as source_table:
            in_utc = run.dialect.zoned_timestamps and source_table.connection.dialect.name in ("mysql", "mariadb")
            forms = reader_of(spec).load_forms(run, source_table)
            row_of = rows_for([column.name for column in source_table.table.columns], spec)
            columns = tuple(
                _column_of(run, source_table, column, forms.get(column.name), in_utc=in_utc)
                for column in source_table.table.columns
                if is_kept(column.name, row_of[column.name]) or column.name.lower() in lowered(spec.sequence_by)
            )
            _require_primary(run, source_table)
            keys = tuple(column.name for column in source_table.table.primary_key.columns)
            ranged = all(column.name not in keys or not (column.as_text or column.in_bytes) for column in columns)
            names_them = run.dialect.names_transactions and is_primary(source_table.connection)
            at_once = not spec.keys and names_them
            seen = transactions_seen(source_table.connection) if names_them else None
            position = log_position(source_table.connection)
            rows = estimated_rows(source_table.connection, spec.name_in_source)
        keys = keys if ranged and not at_once else ()
        read = {column.name for column in columns}
        left_out = tuple(name for name in row_of if name not in read)
        rate = RowRate(settings.max_rows_per_second)
        return cls(
            url, spec.name_in_source, settings, rate, columns, keys, position, rows, in_utc, at_once, seen, left_out
        )

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field() for column in self.columns])

    def warnings(self) -> Warnings:
        message = "columns whose types have no equal are loaded as text; options.types gives them one"
        return notices.of_names(INITIAL_LOAD_TEXT, message, [column.name for column in self.columns if column.as_text])

    def boundary(self, after: str | None, rows: int) -> str | None:
        """The last key of the next `rows` rows; None: so many do not follow."""
        with self._opened() as (sa, source_table):
            wanted = self._wanted(sa, source_table, self._key_columns, after)
            row = source_table.connection.execute(wanted.offset(rows - 1).limit(1)).first()
        return None if row is None else key_text(tuple(row))

    def rows(
        self, after: str | None, to: str | None, within: Conditions = lambda _sa, _table: (),
        seen: Seen = lambda _: None,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Rows of a range in the order of their keys.

        Args:
            seen: is given the transactions that are in them, before the first row, where the table is read at once.
        """
        with self._opened() as (sa, source_table):
            if self.at_once:
                seen(transactions_seen(source_table.connection))
            wanted = self._wanted(sa, source_table, self.columns, after, to).where(*within(sa, source_table.table))
            streamed = source_table.connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(wanted)
            for rows in streamed.partitions():
                self.rate.take(len(rows))
                values = zip(*rows, strict=True)
                arrays = [column.array(one) for column, one in zip(self.columns, values, strict=True)]
                fields = [column.field(one.type) for column, one in zip(self.columns, arrays, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def position_now(self) -> str:
        """Where the source's log is: everything that was read until now was committed before. Empty: not known here."""
        with connected(self.url) as connection:
            return log_position(connection, inserted=True)

    def _wanted(
        self, sa: Any, source_table: SourceTable, columns: Sequence[SourceColumn], after: str | None,
        to: str | None = None,
    ) -> Any:  # fmt: skip
        """The statement for rows after a key and up to another one, in the order of their keys; None: no such limit."""
        table, keys = source_table.table, [source_table.table.c[name] for name in self.keys]
        wanted = sa.select(*(self._selected(sa, source_table, one) for one in columns)).select_from(table)
        wanted = wanted if after is None else wanted.where(_greater_key(sa, keys, key_values(after)))
        wanted = wanted if to is None else wanted.where(~_greater_key(sa, keys, key_values(to)))
        return wanted.order_by(*keys)

    @staticmethod
    def _selected(sa: Any, source_table: SourceTable, column: SourceColumn) -> Any:
        expression = source_table.table.c[column.name]
        is_padded = source_table.connection.dialect.name == "postgresql" and _may_be_padded(sa, expression.type)
        if column.sql:
            expression = sa.literal_column(column.sql.replace("{}", quoted(column.name)))
        if column.read_as_text:
            expression = sa.literal_column(as_written(column.name)) if is_padded else sa.cast(expression, sa.String)
        return expression.label(column.name)

    @property
    def _key_columns(self) -> list[SourceColumn]:
        return [next(column for column in self.columns if column.name == key) for key in self.keys]

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, SourceTable]]:
        import sqlalchemy as sa  # noqa: PLC0415 - `url_of` has said so if it is missing

        with opened(self.url, self.table) as source_table:
            limit = statement_limit(source_table.connection.dialect, float(seconds(self.settings.statement_timeout)))
            if limit:
                source_table.connection.exec_driver_sql(limit)
            if self.in_utc:
                source_table.connection.exec_driver_sql("SET time_zone = '+00:00'")
            yield sa, source_table


def _may_be_padded(sa: Any, kind: Any) -> bool:
    """Whether a column may be `bpchar`, or a domain of it or of `char(n)`: a cast to text cuts its blanks, no log does.

    Args:
        kind: of SQLAlchemy, which has no type for `bpchar`, nor for those of extensions.
    """
    from sqlalchemy.dialects.postgresql import DOMAIN  # noqa: PLC0415 - imported when needed

    base = kind.data_type if isinstance(kind, DOMAIN) else kind
    return isinstance(base, (sa.types.CHAR, sa.types.NullType))


def is_primary(connection: Any) -> bool:
    """Whether it is a PostgreSQL and no standby, whose snapshots do not name the transactions that are open."""
    is_postgresql = connection.dialect.name == "postgresql"
    return is_postgresql and not connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar()


def transactions_seen(connection: Any) -> LoadedTransactions:
    """Those that all reads of PostgreSQL's connection see, in its transaction."""
    snapshot = connection.exec_driver_sql("SELECT CAST(pg_current_snapshot() AS text)").scalar()
    upto = connection.exec_driver_sql("SELECT CAST(pg_current_wal_insert_lsn() AS text)").scalar()
    return LoadedTransactions(snapshot=str(snapshot), upto=position_of(str(upto)))


def statement_limit(dialect: Any, limit: float) -> str:
    """The statement that limits how long a query may take; empty where the database has none that is known here."""
    if dialect.name == "postgresql":
        return f"SET LOCAL statement_timeout = {int(limit * 1000)}"
    if dialect.name in ("mysql", "mariadb"):
        is_mariadb = getattr(dialect, "is_mariadb", False)
        return f"SET max_statement_time = {limit}" if is_mariadb else f"SET max_execution_time = {int(limit * 1000)}"
    return ""


_POSITIONS = {
    "postgresql": "SELECT CAST(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE {now} END AS text)",
    "mysql": "SELECT @@gtid_executed",
    "mariadb": "SELECT @@gtid_current_pos",
}


def log_position(connection: Any, *, inserted: bool = False) -> str:
    """Where the source's log is, as the database writes it; empty where that is not known here.

    Args:
        inserted: also what PostgreSQL has not written to its disk yet, since others may read its rows.
    """
    dialect = connection.dialect
    name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
    query = _POSITIONS.get(name, "").format(now="pg_current_wal_insert_lsn()" if inserted else "pg_current_wal_lsn()")
    return str((connection.exec_driver_sql(query).scalar() if query else None) or "")


_COUNTS = {
    "postgresql": "SELECT CAST(reltuples AS bigint) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = :schema AND c.relname = :name AND reltuples >= 0",
    **dict.fromkeys(
        ("mysql", "mariadb"),
        "SELECT table_rows FROM information_schema.tables WHERE table_schema = :schema AND table_name = :name",
    ),
}


def estimated_rows(connection: Any, table: str) -> int | None:
    """Rows of a table by the database's statistics; null where it has none, or they are not known here."""
    import sqlalchemy as sa  # noqa: PLC0415 - see above

    statement = _COUNTS.get(connection.dialect.name)
    if statement is None:
        return None
    schema, name = table.split(".", 1)
    return int(connection.execute(sa.text(statement), {"schema": schema, "name": name}).scalar() or 0) or None


def _require_primary(run: TableRun, source_table: SourceTable) -> None:
    """Refuse a standby where it may lack changes that are older than the load's first file.

    The table was loaded before, or jobs have read the log already.
    """
    is_loaded = run.ledger().state.keys is not None
    if source_table.connection.dialect.name != "postgresql" or not (is_loaded or reads_of(run.spec) == "log"):
        return
    if not is_primary(source_table.connection):
        why = "is loaded already" if is_loaded else "is followed by jobs"
        what = f"{run.spec.table} {why}, and its connection leads to a standby, which may lag behind"
        remedy = "load it from the primary: name its connection by --source-connection"
        raise FatalError(INITIAL_LOAD_REFUSED, what, where=run.spec.table, remedy=remedy)


def _greater_key(sa: Any, keys: Sequence[Any], values: Sequence[Any]) -> Any:
    """Whether a key is greater than these values, compared left to right; written out, which every database
    understands."""
    first = _bound(sa, keys[0], values[0])
    if len(keys) == 1:
        return keys[0] > first
    rest = sa.and_(keys[0] == first, _greater_key(sa, keys[1:], values[1:]))
    # The first condition alone lets the database use its index.
    return sa.and_(keys[0] >= first, sa.or_(keys[0] > first, rest))


def _bound(sa: Any, key: Any, value: Any) -> Any:
    """A value to compare with; the text of a number or time becomes one in the database."""
    is_text = isinstance(value, str) and isinstance(key.type, (sa.Date, sa.DateTime, sa.Numeric))
    return sa.cast(sa.literal(value, sa.String()), key.type) if is_text else value
