"""PostgreSQL: its identity, its slot, and marks in its log."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.codes import (
    PUBLISHED_WITHOUT_KEY,
    SOURCE_LOG_LOST,
    SOURCE_LOG_REFUSED,
    SOURCE_LOG_RESTARTED,
    TABLE_BUSY,
)
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import PLACEHOLDER
from airflow_gddl.contract.postgresql_log import (
    PublishedTable,
    lsn_of,
    position_of,
    published_table,
    shown,
    source_findings,
    table_findings,
)
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.sources.capture import PUBLICATION, SLOT
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.rooms.sources.capture.engine import Batch
from spark_jobs.rooms.sources.capture.frames import own_topics
from spark_jobs.rooms.sources.capture.position import LogPosition, Mark
from spark_jobs.rooms.sources.capture.relation_messages import (
    Descriptions,
    Versions,
    described,
    read_messages,
    read_versions,
)
from spark_jobs.source_tables import state_of

_PREFIX = "gddl"
_PORT = 5432
_FREE_SECONDS = 90.0
_CANCELLED = "57014"
_FAILED_AT = re.compile(r"Error while processing event at offset \{(?:[^}]*[ {])?lsn=(\d+)")
_AGAIN = (
    "load the source's tables again, which opens the log anew first: `gddl load --again --table T` for each of them"
)
# What a value looks like is set for this connection, whatever database and role say.
_SETTINGS = (
    "bytea_output=hex", "DateStyle=ISO", "IntervalStyle=postgres", "extra_float_digits=1", "xmloption=content",
    "lc_monetary=C", "quote_all_identifiers=off", "standard_conforming_strings=on", "statement_timeout=0",
    "lock_timeout=0", "idle_in_transaction_session_timeout=0",
)  # fmt: skip
_PROPERTIES: Mapping[str, str] = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",
    "slot.drop.on.stop": "false",
    "snapshot.mode": "no_data",
    "interval.handling.mode": "string",
    "money.fraction.digits": "2",
    # As text, for NaN would come as null; with precision and scale beside it.
    "decimal.handling.mode": "string",
    "datatype.propagate.source.type": r"(?i).+\.(numeric|money)",
    "include.unknown.datatypes": "true",
    "unavailable.value.placeholder": PLACEHOLDER,
    # A null is no default. The default of `source.snapshot`, which is `false`, then comes as null, too.
    "value.converter.replace.null.with.default": "false",
    "key.converter.replace.null.with.default": "false",
    "driver.options": " ".join(f"-c {setting}" for setting in _SETTINGS),
}

# To a client of UTF-8 the server sends no byte that is no character: it ends the log for all tables. Debezium reads
# the log as UTF-8 whatever the encoding, and writes U+FFFD for such a byte. Its driver always asks for UTF-8, before
# `options`; so another parameter of the connection's start stands behind a NUL, which ends them.
_UNENCODED: Mapping[str, str] = {
    "driver.options": f"{_PROPERTIES['driver.options']}\0client_encoding\0LATIN1",
    "driver.allowEncodingChanges": "true",
    "database.initial.statements": "SET client_encoding = 'UTF8'",
}
REPLACED, NO_UTF8 = "\ufffd".encode(), b"\xff"
"""What Debezium has written for bytes that are no character, and one that makes its text none for readers, too."""


@dataclass(frozen=True)
class PostgreSQL:
    """Attributes:
    sa: the module `sqlalchemy`; `connection`: an `sqlalchemy.Connection`.
    stated: properties that the source states, with the names of slot and publication.
    open_seconds: how long `open` waits for transactions that write.
    """

    sa: Any
    connection: Any
    stated: Mapping[str, str]
    open_seconds: int

    @property
    def slot(self) -> str:
        return self.stated[SLOT]

    def is_unencoded(self) -> bool:
        """Whether texts of the database may be in any encoding, so that the server can't convert them."""
        return bool(self._scalar("SHOW server_encoding") == "SQL_ASCII")

    def properties(self, url: Any, *, is_unencoded: bool) -> tuple[dict[str, str], str]:
        """Properties of the connector, and the path of the server's Unix socket; empty: it has an address.

        Args:
            url: an `sqlalchemy.engine.URL`.
        """
        query = {name: value if isinstance(value, str) else value[0] for name, value in url.query.items()}
        host = url.host or query.get("host") or "localhost"
        port = url.port or int(query.get("port") or _PORT)
        known = {
            "database.hostname": host, "database.port": str(port), "database.dbname": url.database or url.username,
            "database.user": url.username, "database.password": url.password,
            **{f"database.{name}": query.get(name) for name in ("sslmode", "sslcert", "sslkey", "sslrootcert")},
        }  # fmt: skip
        socket = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else ""
        given = {name: str(value) for name, value in known.items() if value is not None}
        return {**_PROPERTIES, **(_UNENCODED if is_unencoded else {}), **self.stated, **given}, socket

    def require_ready(self, spec: TableSpec) -> Warnings:
        """See that the log can be read for the row's table.

        Returns:
            Warnings (`PUBLISHED_WITHOUT_KEY`) about other tables of the publication.

        Raises:
            FatalError: `SOURCE_LOG_REFUSED`.
        """
        findings = list(source_findings(self.sa, self.connection, self.slot, self.stated[PUBLICATION]))
        own = [one for one in findings if one.concerns([spec.name_in_source])]
        if own:
            what, remedy = shown(own)
            raise FatalError(SOURCE_LOG_REFUSED, what, where=f"slot {self.slot}", remedy=remedy)
        if not findings:
            return ()
        what, remedy = shown(findings)
        sample = tuple(sorted({name for one in findings for name in one.of_tables}))[:5]
        message = f"{what}; this table is loaded. Remedy: {remedy}"
        return (RunWarning(code=PUBLISHED_WITHOUT_KEY, message=message, count=len(findings), sample=sample),)

    def require_published(self, spec: TableSpec) -> PublishedTable:
        """
        Raises:
            FatalError: `NOT_PUBLISHED`, `SOURCE_TABLE_MISSING`, `SOURCE_ROWS_HIDDEN`.
        """
        published = published_table(self.sa, self.connection, self.stated[PUBLICATION], spec.name_in_source)
        if findings := list(table_findings(spec, published, self.stated[PUBLICATION])):
            what, remedy = shown(findings)
            raise FatalError(findings[0].code, what, where=spec.name_in_source, remedy=remedy)
        return published

    def server(self) -> str:
        query = """SELECT (SELECT system_identifier FROM pg_control_system()) || '/'
          || substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8) || '/'
          || (SELECT oid FROM pg_database WHERE datname = current_database())"""
        return str(self._scalar(query))

    def published(self) -> str:
        """Changes with each `ALTER PUBLICATION … SET (…)`, too: what was left out meanwhile is in no log."""
        query = "SELECT oid || '/' || xmin FROM pg_publication WHERE pubname = CAST(:name AS name)"
        return str(self._scalar(query, name=self.stated[PUBLICATION]))

    def require_absent(self) -> None:
        """
        Raises:
            FatalError: `SOURCE_LOG_REFUSED`: another program has made a slot of this name.
        """
        if self._slot() is None:
            return
        what = f"the slot {self.slot} is there, and no job of this lake has made it: another program may read it"
        statement = f"SELECT pg_drop_replication_slot('{self.slot}')"
        remedy = f"name another slot in capture.properties of the source; or, if nothing reads it, drop it: {statement}"
        raise FatalError(SOURCE_LOG_REFUSED, what, where=self.slot, remedy=remedy)

    def open(self) -> str:
        """Create the slot, in place of one that this lake has made before; returns where the log begins.

        A slot is made once all transactions that write have ended that were open when it was asked for.

        Raises:
            RetriableError: `TABLE_BUSY`: another connection reads the slot, or transactions stay open.
        """
        if self._slot() is not None:
            self._wait_until_free()
            self._scalar("SELECT pg_drop_replication_slot(CAST(:slot AS name))", slot=self.slot)
        query = "SELECT CAST(lsn AS text) FROM pg_create_logical_replication_slot(CAST(:slot AS name), 'pgoutput')"
        self._scalar("SELECT set_config('statement_timeout', :most, false)", most=f"{self.open_seconds}s")
        try:
            return str(self._scalar(query, slot=self.slot))
        except self.sa.exc.OperationalError as error:
            if state_of(error) != _CANCELLED:
                raise
            raise self._held_up() from error
        finally:
            self._scalar("SELECT set_config('statement_timeout', '0', false)")

    def _held_up(self) -> RetriableError:
        query = """SELECT string_agg(what, ', ' ORDER BY since) FROM (
          SELECT 'process ' || pid || COALESCE(' of ' || usename, '') AS what, xact_start AS since FROM pg_stat_activity
          WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
          UNION ALL SELECT 'prepared ' || gid, prepared FROM pg_prepared_xacts) AS open"""
        held = self._scalar(query) or "none any more"
        what = f"the slot {self.slot} can't be made while transactions that write are open: {held}"
        remedy = "end them (COMMIT, ROLLBACK, COMMIT PREPARED, pg_terminate_backend), or wait: the next run tries again"
        return RetriableError(TABLE_BUSY, what, where=self.slot, remedy=remedy)

    def require_same_source(self, known: LogPosition) -> None:
        """Refuse another server, or another publication.

        Raises:
            FatalError: `SOURCE_LOG_RESTARTED`.
        """
        if (server := self.server()) != known.server:
            raise self._restarted(f"the server was restored or failed over: it is {server}, and was {known.server}")
        if self.published() != known.published:
            publication = self.stated[PUBLICATION]
            raise self._restarted(f"publication {publication} was made again or altered: changes may be in no log")

    def require_same(self, known: LogPosition) -> None:
        """Refuse a log that does not go on where it was read last.

        Raises:
            FatalError: `SOURCE_LOG_LOST`: the slot is gone, or without changes that were not read;
                `SOURCE_LOG_RESTARTED`: the server is another, restored, failed over, or the slot was made again; or the
                publication was.
            RetriableError: `TABLE_BUSY`: another connection reads the slot.
        """
        self.require_same_source(known)
        there = self._slot()
        if there is None or there["wal_status"] == "lost" or there["confirmed"] is None:
            how = "was dropped" if there is None else "is lost: the database has removed changes that were not read"
            raise FatalError(SOURCE_LOG_LOST, f"the slot {self.slot} {how}", where=self.slot, remedy=_AGAIN)
        self._wait_until_free()
        read, end = self._read_until(known), position_of(str(there["flushed"]))
        if end < read:
            raise self._restarted(
                f"the log ends at {there['flushed']}, and was read until {lsn_of(read)}: it was restored"
            )
        confirmed = position_of(str(there["confirmed"]))
        if confirmed > read:
            raise self._restarted(
                f"the slot {self.slot} begins at {there['confirmed']}, after {lsn_of(read)}: it was made again"
            )
        if known.mark and confirmed < position_of(known.mark.place) and not self._has(known.mark):
            raise self._restarted(f"the log lacks what was read of it at {known.mark.place}: it was restored")

    def mark(self) -> Mark:
        """Put a message into the log: behind all that was committed before."""
        token = uuid.uuid4().hex
        query = "SELECT CAST(pg_logical_emit_message(true, :prefix, :token) AS text)"
        place = str(self._scalar(query, prefix=_PREFIX, token=token))
        return Mark(
            token=token,
            place=place,
            upto=str(self._scalar("SELECT CAST(pg_current_wal_insert_lsn() AS text)")),
        )

    def versions(self) -> Versions:
        """What the catalog says of all that is published."""
        return read_versions(self.sa, self.connection, self.stated[PUBLICATION])

    def described(self, known: Descriptions, versions: Versions, mark: Mark) -> Descriptions:
        """How the log has described tables until the mark, beside what is known of it."""
        now = described(self.sa, self.connection, versions)
        self._wait_until_free()
        self._scalar("SELECT set_config('statement_timeout', '0', false)")
        found = read_messages(self.sa, self.connection, self.slot, self.stated[PUBLICATION], mark.upto)
        return known.after(found, now)

    def table_of_failure(self, mark: Mark, message: str) -> str | None:
        """`schema.name` of the table whose change has ended the engine, by its message; None: that is not known."""
        if (found := _FAILED_AT.search(message)) is None:
            return None
        self._wait_until_free()
        query = """SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE c.oid IN (SELECT CAST('x' || encode(substr(data, 2, 4), 'hex') AS bit(32))\\:\\:bigint\\:\\:oid
            FROM pg_logical_slot_peek_binary_changes(CAST(:slot AS name), CAST(:upto AS pg_lsn), NULL,
              'proto_version', '1', 'publication_names', :publication)
            WHERE lsn = CAST(:at AS pg_lsn) AND substr(data, 1, 1) IN ('I', 'U', 'D'))"""
        values = {
            "slot": self.slot, "upto": mark.upto, "publication": self.stated[PUBLICATION], "at": lsn_of(int(found[1])),
        }  # fmt: skip
        table = self._scalar(query, **values)
        return None if table is None else str(table)

    @staticmethod
    def has_reached(batch: Batch, mark: Mark, prefix: str) -> bool:
        """Whether the batch has the message; `prefix`: of its topics."""
        content, topic = base64.b64encode(mark.token.encode()), own_topics(prefix)[0]
        return any(one.topic == topic and content in (one.value or b"") for one in batch.records)

    def _slot(self) -> Mapping[str, Any] | None:
        query = """SELECT COALESCE(wal_status, '') AS wal_status, active,
          CAST(confirmed_flush_lsn AS text) AS confirmed, CAST(pg_current_wal_flush_lsn() AS text) AS flushed
          FROM pg_replication_slots WHERE slot_name = CAST(:slot AS name)"""
        row = self.connection.execute(self.sa.text(query), {"slot": self.slot}).mappings().first()
        return None if row is None else dict(row)

    def _wait_until_free(self) -> None:
        """The server ends the connection of a job that was killed a moment later."""
        until = time.monotonic() + _FREE_SECONDS
        while (there := self._slot()) is not None and there["active"]:
            if time.monotonic() > until:
                what = f"another connection reads the slot {self.slot}"
                remedy = "wait until the job that reads it has ended; no other program may read it"
                raise RetriableError(TABLE_BUSY, what, where=self.slot, remedy=remedy)
            time.sleep(0.2)

    @staticmethod
    def _read_until(known: LogPosition) -> int:
        """The greatest place that was read; that of the opening where nothing was."""
        places = [position_of(known.opened)]
        for offset in map(json.loads, known.offsets.values()):
            places += [int(offset[name]) for name in ("lsn", "lsn_proc", "lsn_commit") if offset.get(name) is not None]
        return max(places)

    @staticmethod
    def last_commit(known: LogPosition) -> int | None:
        """The last commit before what was read last; None: none was read."""
        places = [json.loads(offset).get("lsn_commit") for offset in known.offsets.values()]
        return max((int(place) for place in places if place is not None), default=None)

    def _has(self, mark: Mark) -> bool:
        query = """SELECT EXISTS (SELECT FROM pg_logical_slot_peek_binary_changes(CAST(:slot AS name),
          CAST(:upto AS pg_lsn), NULL, 'proto_version', '1', 'publication_names', :publication, 'messages', 'true')
          WHERE position(convert_to(:token, 'UTF8') IN data) > 0)"""
        values = {
            "slot": self.slot,
            "upto": mark.upto,
            "publication": self.stated[PUBLICATION],
            "token": mark.token,
        }
        return bool(self._scalar(query, **values))

    def _restarted(self, what: str) -> FatalError:
        return FatalError(SOURCE_LOG_RESTARTED, what, where=f"slot {self.slot}", remedy=_AGAIN)

    def _scalar(self, statement: str, **values: Any) -> Any:
        return self.connection.execute(self.sa.text(statement), values).scalar()
