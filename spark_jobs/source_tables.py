"""A table of a source database, read within one transaction; imports sqlalchemy when it is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract import connections
from airflow_gddl.contract.codes import SOURCE_TABLE_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import needed_by

if TYPE_CHECKING:
    from sqlalchemy.engine import URL


_ROWS_AT_ONCE = 2000
Range = tuple[int | None, int | None]
"""Of the first key column: from, inclusive, to, exclusive; None: open."""


def url_of(name: str, environ: Mapping[str, str]) -> URL:
    """The connection of this name, see `connections.lent_url_of`.

    Raises:
        FatalError: `SOURCE_CONNECTION_REFUSED`; `SOURCE_CONNECTION_MISSING`, without its content;
            `SOURCE_DRIVER_MISSING`.
    """
    url: URL = connections.lent_url_of(_sqlalchemy(), name, environ)
    return url


def _sqlalchemy() -> Any:
    with needed_by("reading a source database", install="airflow-gddl[source]"):
        import sqlalchemy  # noqa: PLC0415 - only who compares with a source needs it
    return sqlalchemy


@dataclass(frozen=True)
class SourceTable:
    """A table within one transaction, so that all reads see the same moment where the database supports it.

    Attributes:
        is_unencoded: the database is a PostgreSQL whose texts may be in any encoding (`SQL_ASCII`).
    """

    connection: Any
    table: Any
    is_unencoded: bool = False

    @property
    def types(self) -> dict[str, SourceType]:
        return {column.name: _type_of(column.type) for column in self.table.columns}

    def now(self) -> datetime:
        """Current time of the database, in UTC where it gives no zone."""
        func = _sqlalchemy().func
        functions = {"mysql": func.utc_timestamp(6), "mariadb": func.utc_timestamp(6), "mssql": func.sysutcdatetime()}
        time = functions.get(self.connection.dialect.name, func.current_timestamp())
        value = self.connection.execute(_sqlalchemy().select(time)).scalar()
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

    def rows(self, columns: Sequence[str], key: str, within: Range) -> Iterator[tuple[Any, ...]]:
        """Rows whose first key column `key` is in the range, in any order."""
        sa = _sqlalchemy()
        low, high = within
        wanted = sa.select(*(self._read(sa, name) for name in columns)).select_from(self.table)
        wanted = wanted if low is None else wanted.where(self.table.c[key] >= low)
        wanted = wanted if high is None else wanted.where(self.table.c[key] < high)
        streaming = self.connection.execution_options(yield_per=_ROWS_AT_ONCE)
        yield from self._decoded(columns, streaming.execute(wanted))

    def _read(self, sa: Any, name: str) -> Any:
        """Dates and times of PostgreSQL as text: Python has neither infinity nor all years. Keys as they are. Labels of
        enums as text, for the driver would refuse others than the reflected ones; JSON as text, see `_is_document`."""
        column, kind = self.table.c[name], self.types[name].kind
        if self._is_in_bytes(name):
            return sa.literal_column(in_bytes(name)).label(name)
        is_far = self.connection.dialect.name == "postgresql" and kind in ("date", "naive", "aware")
        is_cast = (is_far or kind == "label" or self._is_document(name)) and not column.primary_key
        return sa.cast(column, sa.String).label(name) if is_cast else column

    def _is_document(self, name: str) -> bool:
        """JSON, whose text has all digits of its numbers; drivers make fractions of them."""
        return self.types[name].kind in ("JSON", "JSONB")

    def _is_in_bytes(self, name: str) -> bool:
        return self.is_unencoded and self.types[name].kind in ("text", "label")

    def _decoded(self, columns: Sequence[str], rows: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Texts that were read as bytes; one that is none in UTF-8 equals no text of the lake."""
        texts = {at for at, name in enumerate(columns) if self._is_in_bytes(name)}
        for row in rows:
            values = enumerate(row)
            yield tuple(bytes(v).decode("utf-8", "replace") if v is not None and n in texts else v for n, v in values)

    def rows_since(self, columns: Sequence[str], time: str, since: datetime) -> Iterator[tuple[Any, ...]]:
        """Rows whose column `time` is at or after a moment (naive: UTC, as in columns without a zone), in any order."""
        sa = _sqlalchemy()
        read = (self._read(sa, c) if self._is_in_bytes(c) or self._is_document(c) else self.table.c[c] for c in columns)
        wanted = sa.select(*read).select_from(self.table).where(self.table.c[time] >= since)
        yield from self._decoded(columns, self.connection.execution_options(yield_per=_ROWS_AT_ONCE).execute(wanted))


def in_bytes(column: str) -> str:
    """SQL for the bytes of a column's values as PostgreSQL writes them, in the encoding that they have."""
    return f"convert_to({as_written(column)}, 'SQL_ASCII')"


def as_written(column: str) -> str:
    """SQL for a column's values as their type writes them, which is what the log has; a cast cuts blanks of some."""
    name = quoted(column)
    return f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END"


def state_of(error: Any) -> str | None:
    """The SQLSTATE of an error of SQLAlchemy, which drivers name differently; None: it has none."""
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


def quoted(column: str) -> str:
    """A column's name in SQL of PostgreSQL, for `literal_column`."""
    return '"' + column.replace('"', '""') + '"'


_STATED = (
    "SET LOCAL TIME ZONE 'UTC'", "SET LOCAL datestyle = 'ISO'", "SET LOCAL intervalstyle = 'postgres'",
    "SET LOCAL bytea_output = 'hex'", "SET LOCAL extra_float_digits = 3", "SET LOCAL lc_monetary = 'C'",
    "SET LOCAL row_security = off", "SET LOCAL quote_all_identifiers = off",
    "SET LOCAL standard_conforming_strings = on",
)  # fmt: skip
"""How PostgreSQL writes values as text, whatever the database or the role has set; a policy that would hide rows is an
error."""


@contextmanager
def opened(url: URL, table: str) -> Iterator[SourceTable]:
    """The table, `schema.name`, in one read-only transaction, at the strictest isolation level of the database.

    Raises:
        FatalError: `SOURCE_TABLE_MISSING`; as `connected`.
        RetriableError: as `connected`.
    """
    (schema, name), sa, level = table.split(".", 1), _sqlalchemy(), None
    if url.get_backend_name() in ("postgresql", "mysql", "mariadb"):
        level = "REPEATABLE READ"
    with connected(url, level) as connection, connection.begin():
        is_postgresql = connection.dialect.name == "postgresql"
        for statement in _STATED if is_postgresql else ():
            connection.execute(sa.text(statement))
        try:
            made = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)
        except sa.exc.NoSuchTableError as error:
            raise FatalError(
                SOURCE_TABLE_MISSING, f"the source has no table {table}", remedy="check connection and rights"
            ) from error
        is_unencoded = is_postgresql and connection.execute(sa.text("SHOW server_encoding")).scalar() == "SQL_ASCII"
        yield SourceTable(connection, made, is_unencoded=is_unencoded)


@contextmanager
def connected(url: URL, isolation_level: str | None = "AUTOCOMMIT") -> Iterator[Any]:
    """A connection, by default one whose statements are transactions of their own.

    Raises:
        FatalError: `SOURCE_DRIVER_MISSING`, `SOURCE_REFUSED`.
        RetriableError: `SOURCE_UNREACHABLE`.
    """
    sa = _sqlalchemy()
    engine = connections.engine_of(sa, url)
    try:
        with engine.connect() as connection:
            if isolation_level is not None:
                connection.execution_options(isolation_level=isolation_level)
            yield connection
    except sa.exc.DBAPIError as error:
        raise connections.unreachable(url, error) from error
    finally:
        engine.dispose()


def _type_of(kind: Any) -> SourceType:
    from sqlalchemy import types as T  # noqa: PLC0415 - imported when needed

    # The first that fits: some are special cases of later ones. Those without a name are not compared.
    names: tuple[tuple[type, str], ...] = (
        (T.Enum, "label"), (T.CHAR, ""), (T.Interval, ""),
        (T.DateTime, "aware" if getattr(kind, "timezone", False) else "naive"),
        (T.Boolean, "boolean"), (T.Integer, "whole"), (T.REAL, "single"), (T.Float, "double"), (T.Date, "date"),
        (T.LargeBinary, "binary"), (T.Numeric, "decimal"), (T.String, "text"),
    )  # fmt: skip
    name = next((name for known, name in names if isinstance(kind, known)), "")
    return SourceType(kind=name or str(kind), scale=kind.scale if name == "decimal" else None)


@dataclass(frozen=True, kw_only=True)
class SourceType:
    """What a column of the source is, as far as it matters here.

    Attributes:
        kind: `whole`, `decimal`, `double`, `single`, `boolean`, `text`, `label` (of an enum), `date`, `naive` and
            `aware` (times), `binary`; else its name in the database.
        scale: digits after the point of a `decimal`; None: the column doesn't say.
    """

    kind: str
    scale: int | None = None
