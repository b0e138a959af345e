"""The source database through SQLAlchemy: what columns a table has, and its rows by range of the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract import connections
from airflow_gddl.contract.errors import FatalError
from spark_jobs.verification.source_values import SourceType

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

_ROWS_AT_ONCE = 2000
Range = tuple[int | None, int | None]
"""Of the first key column: from, inclusive, to, exclusive; null: open."""


def url_of(name: str, environ: Mapping[str, str]) -> URL:
    """The connection of this name, see `connections.lent_url_of`.

    Raises:
        FatalError: `SOURCE_CONNECTION_REFUSED`; `SOURCE_CONNECTION_MISSING`, without its content;
            `SOURCE_DRIVER_MISSING`.
    """
    found: URL = connections.lent_url_of(_sqlalchemy(), name, environ)
    return found


def _sqlalchemy() -> Any:
    try:
        import sqlalchemy  # noqa: PLC0415 - only who compares with a source needs it
    except ImportError as error:
        raise FatalError(
            "SOURCE_DRIVER_MISSING",
            f"SQLAlchemy is not installed: {error}",
            remedy="pip install 'airflow-gddl[source]'",
        ) from error
    return sqlalchemy


@dataclass(frozen=True)
class SourceTable:
    """A table within one transaction, so that all reads see the same moment where the database supports it."""

    connection: Any
    table: Any

    @property
    def types(self) -> dict[str, SourceType]:
        return {column.name: _type_of(column.type) for column in self.table.columns}

    def now(self) -> datetime:
        """Current time of the database."""
        found = self.connection.execute(_sqlalchemy().select(_sqlalchemy().func.current_timestamp())).scalar()
        moment = found if isinstance(found, datetime) else datetime.fromisoformat(str(found))
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

    def rows(self, columns: Sequence[str], key: str, within: Range) -> Iterator[tuple[Any, ...]]:
        """Rows whose first key column `key` is in the range, in any order."""
        sa = _sqlalchemy()
        low, high = within
        wanted = sa.select(*(self.table.c[c] for c in columns))
        wanted = wanted if low is None else wanted.where(self.table.c[key] >= low)
        wanted = wanted if high is None else wanted.where(self.table.c[key] < high)
        streaming = self.connection.execution_options(yield_per=_ROWS_AT_ONCE)
        for row in streaming.execute(wanted):
            yield tuple(row)


@contextmanager
def opened(url: URL, schema: str, name: str) -> Iterator[SourceTable]:
    """The table in one read-only transaction, at the strictest isolation level that the database supports.

    Raises:
        FatalError: `SOURCE_TABLE_MISSING`, `SOURCE_DRIVER_MISSING`.
        RetriableError: `SOURCE_UNREACHABLE`.
    """
    sa = _sqlalchemy()
    try:
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool, future=True)
    except (ImportError, sa.exc.NoSuchModuleError) as error:
        raise connections.no_driver(url, error) from error
    try:
        with engine.connect() as connection:
            if url.get_backend_name() in ("postgresql", "mysql", "mariadb"):
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                made = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)
                yield SourceTable(connection, made)
    except sa.exc.NoSuchTableError as error:
        raise FatalError(
            "SOURCE_TABLE_MISSING", f"the source has no table {schema}.{name}", remedy="check connection and rights"
        ) from error
    except sa.exc.DBAPIError as error:
        raise connections.unreachable(url, error) from error
    finally:
        engine.dispose()


def _type_of(kind: Any) -> SourceType:
    from sqlalchemy import types as T  # noqa: PLC0415 - imported when needed

    # The first that fits: some are special cases of later ones. Those without a name are not compared.
    names: tuple[tuple[type, str], ...] = (
        (T.Enum, ""), (T.CHAR, ""), (T.Interval, ""),
        (T.DateTime, "aware" if getattr(kind, "timezone", False) else "naive"),
        (T.Boolean, "boolean"), (T.Integer, "whole"), (T.REAL, "single"), (T.Float, "double"), (T.Date, "date"),
        (T.LargeBinary, "binary"), (T.Numeric, "decimal"), (T.String, "text"),
    )  # fmt: skip
    name = next((name for known, name in names if isinstance(kind, known)), "")
    return SourceType(kind=name or str(kind), scale=kind.scale if name == "decimal" else None)
