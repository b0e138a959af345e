"""A source database by the name of its connection: whether it answers, and what its log lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.codes import SOURCE_DRIVER_MISSING
from airflow_gddl.contract.connections import engine_of, lent_url_of, unreachable, url_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import ProbeSkippedError
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.postgresql_log import Finding, published_table, slot_state, source_findings, table_findings
from airflow_gddl.contract.sources.capture import PUBLICATION, SLOT, properties_of
from airflow_gddl.contract.spec import TableSpec


@dataclass(frozen=True)
class SourceDatabase:
    """A source database by the name of its connection."""

    connection: str
    environ: Mapping[str, str]

    def connect_once(self) -> str:
        """Connect as a row's `verify_connection` does; return host and database.

        Raises:
            FatalError: `SOURCE_CONNECTION_REFUSED`, `SOURCE_CONNECTION_MISSING`, `SOURCE_DRIVER_MISSING`,
                `SOURCE_REFUSED`.
            RetriableError: `SOURCE_UNREACHABLE`.
        """
        url = lent_url_of(self.sqlalchemy(), self.connection, self.environ)
        with self.connected():
            return f"{url.drivername} at {url.host or url.database} answers"

    def log_findings(self, specs: Sequence[TableSpec]) -> tuple[list[Finding], str]:
        """What the source's log lacks for these tables, all of one source; and what is found besides.

        Raises:
            FatalError: as `connect_once`; `SOURCE_LOG_REFUSED`. RetriableError: `SOURCE_UNREACHABLE`.
        """
        sa, properties = self.sqlalchemy(), properties_of(specs[0])
        with self.connected() as (connection, _):
            if (name := connection.dialect.name) != "postgresql":
                raise ProbeSkippedError(f"what a log of {name} needs is not checked")
            findings = list(source_findings(sa, connection, properties[SLOT], properties[PUBLICATION]))
            for spec in specs:
                published = published_table(sa, connection, properties[PUBLICATION], spec.name_in_source)
                findings += table_findings(spec, published, properties[PUBLICATION])
            return findings, f"publication {properties[PUBLICATION]}; {slot_state(sa, connection, properties[SLOT])}"

    @staticmethod
    def sqlalchemy() -> Any:
        """The SQLAlchemy module, version 2 or newer, which reads the catalogs of a schema at once."""
        with needed_by("reading a source database", install="airflow-gddl[source]"):
            import sqlalchemy as sa  # noqa: PLC0415 - needed only for reading a database
        if int(sa.__version__.split(".")[0]) < 2:
            remedy = "run this command in an environment of its own: pip install 'airflow-gddl[source]' 'sqlalchemy>=2'"
            raise FatalError(SOURCE_DRIVER_MISSING, f"SQLAlchemy {sa.__version__} is too old", remedy=remedy)
        return sa

    @contextmanager
    def connected(self) -> Iterator[tuple[Any, Any]]:
        sa = self.sqlalchemy()
        url = url_of(sa, self.connection, self.environ)
        engine = engine_of(sa, url)
        try:
            with engine.connect() as connection:
                yield connection, sa.inspect(connection)
        except sa.exc.DBAPIError as error:
            raise unreachable(url, error) from error
        finally:
            engine.dispose()
